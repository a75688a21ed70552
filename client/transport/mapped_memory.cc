// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/mapped_memory.h"

#include <memory>

namespace basin::client {

std::optional<ArenaPlace> MappedMemory::PlaceOf(LaneHandle lane, const Source& source,
                                                const TensorInfo& info, bool may_copy) {
  const std::shared_ptr<Segments> shared = connector_.shared();
  if (shared == nullptr) return std::nullopt;
  // What the aggregator does not map is sent from the trainer's memory, without a copy.
  const auto is_mapped = [&](const std::optional<ArenaPlace>& place) {
    return place.has_value() && shared->Offer(place->segment);
  };
  std::optional<ArenaPlace> place;
  if (registered_.any() && source.encoding().wire_dtype == DType::kUnspecified) {
    place = registered_.Find(source.data(), info.bytes, ElementSize(info.spec.dtype));
    if (is_mapped(place)) return place;
  }
  if (!may_copy) return std::nullopt;
  place = host_.Take(lane, source.tensor());
  return is_mapped(place) ? place : std::nullopt;
}

std::optional<DevicePlace> MappedMemory::TakeOnDevice(LaneHandle lane, TensorHandle tensor,
                                                      const TensorInfo& info, int device,
                                                      const DeviceArena::Make& make) {
  const std::shared_ptr<Segments> shared = connector_.shared();
  if (shared == nullptr || !shared->takes_devices()) return std::nullopt;
  DeviceArena* found = nullptr;
  {
    MutexLock lock(mutex_);
    std::unique_ptr<DeviceArena>& made = devices_[device];
    if (made == nullptr) made = std::make_unique<DeviceArena>(make);
    found = made.get();
  }
  DeviceArena& arena = *found;
  arena.Add(lane, tensor, info.bytes, ElementSize(info.spec.dtype));
  std::optional<DevicePlace> place = arena.Take(lane, tensor);
  if (!place.has_value()) return std::nullopt;
  if (!shared->Offer(place->segment)) {
    arena.Refuse(place->segment);
    return std::nullopt;
  }
  // Until it is mapped, its bytes would have to be read by the host.
  if (!shared->Find({{place->at(), 1}}).has_value()) return std::nullopt;
  return place;
}

void MappedMemory::Add(LaneHandle lane, TensorHandle tensor, const TensorInfo& info) {
  host_.Add(lane, tensor, info.bytes, ElementSize(info.spec.dtype));
}

void MappedMemory::Remove(LaneHandle lane) {
  host_.Remove(lane);
  MutexLock lock(mutex_);
  for (const auto& [index, arena] : devices_) arena->Remove(lane);
}

void MappedMemory::BeginRound(LaneHandle lane) {
  host_.Begin(lane);
  MutexLock lock(mutex_);
  for (const auto& [index, arena] : devices_) arena->Begin(lane);
}

void MappedMemory::EndRound(LaneHandle lane, bool verdict) {
  host_.Free(lane, verdict);
  MutexLock lock(mutex_);
  for (const auto& [index, arena] : devices_) arena->Free(lane, verdict);
}

}  // namespace basin::client
