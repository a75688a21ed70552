// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/arena.h"

#include <algorithm>
#include <utility>

namespace basin::client {
namespace {

constexpr uint64_t kLeastBytes = uint64_t{16} << 10;
// What was missing may be there again later. The pause doubles, because a failure may take long.
constexpr uint32_t kFirstPause = 16;
constexpr uint32_t kLongestPause = 4096;

}  // namespace

template <typename Place>
BasicArena<Place>::BasicArena(Make make) : make_(std::move(make)), next_pause_(kFirstPause) {}

template <typename Place>
bool BasicArena<Place>::TryBegin(LaneHandle lane) {
  {
    MutexLock lock(mutex_);
    const auto found = lanes_.find(lane);
    if (found != lanes_.end() && !found->second.free) return false;
  }
  Begin(lane);
  return true;
}

template <typename Place>
void BasicArena<Place>::Begin(LaneHandle handle) {
  MutexLock lock(mutex_);
  Lane& lane = lanes_[handle];
  if (!lane.free) return;  // By TryBegin.
  lane.free = false;
  ++lane.round;
  // Without a verdict, the aggregator may still read all places.
  if (lane.round % kArenaExpiry == 0 && lane.retained.empty()) Expire(lane);
  if (pause_ > 0) --pause_;
}

template <typename Place>
void BasicArena<Place>::Remove(LaneHandle handle) {
  MutexLock lock(mutex_);
  lanes_.erase(handle);
}

template <typename Place>
void BasicArena<Place>::Expire(Lane& lane) {
  std::map<const Memory*, uint64_t> used;
  for (const Tensor& tensor : lane.tensors) {
    if (tensor.place.segment == nullptr) continue;
    used[tensor.place.segment.get()] += IsUnused(lane, tensor) ? 0 : tensor.bytes;
  }
  for (const auto& [memory, bytes] : used) {
    if (bytes >= memory->size() / 2) continue;
    lane.shared_bytes -= memory->size();
    for (Tensor& tensor : lane.tensors) {
      if (tensor.place.segment.get() == memory) tensor.place = {};
    }
  }
}

template <typename Place>
void BasicArena<Place>::Free(LaneHandle handle, bool verdict) {
  MutexLock lock(mutex_);
  Lane& lane = lanes_[handle];
  lane.free = true;
  if (verdict) {
    // Frames that refer to them were sent before those of the round that has just ended.
    lane.retained.clear();
    return;
  }
  for (const Tensor& tensor : lane.tensors) {
    const std::shared_ptr<Memory>& segment = tensor.place.segment;
    if (segment == nullptr || tensor.taken != lane.round) continue;
    if (std::find(lane.retained.begin(), lane.retained.end(), segment) == lane.retained.end()) {
      lane.retained.push_back(segment);
    }
  }
  for (const std::shared_ptr<Memory>& segment : lane.retained) {
    bool used = false;
    for (Tensor& tensor : lane.tensors) {
      if (tensor.place.segment != segment) continue;
      tensor.place.segment.reset();
      used = true;
    }
    if (used) lane.shared_bytes -= segment->size();
  }
}

template <typename Place>
void BasicArena<Place>::Add(LaneHandle handle, TensorHandle tensor, uint64_t bytes,
                            uint64_t alignment) {
  MutexLock lock(mutex_);
  Lane& lane = lanes_[handle];
  std::vector<Tensor>& tensors = lane.tensors;
  if (tensors.size() <= tensor) tensors.resize(size_t{tensor} + 1);
  if (tensors[tensor].bytes == 0 && !lane.free) tensors[tensor].taken = lane.round;
  tensors[tensor].wanted = lane.round;
  tensors[tensor].bytes = bytes;
  tensors[tensor].alignment = std::max<uint64_t>(1, alignment);
}

template <typename Place>
typename BasicArena<Place>::Tensor* BasicArena<Place>::FindFree(LaneHandle handle,
                                                                TensorHandle tensor) {
  const auto found = lanes_.find(handle);
  if (found == lanes_.end() || found->second.free) return nullptr;
  Lane& lane = found->second;
  if (tensor >= lane.tensors.size() || lane.tensors[tensor].bytes == 0) return nullptr;
  // Until the lane knows a verdict again, it takes no more memory than it has.
  if (!lane.retained.empty()) return nullptr;
  // A second contribution in the round is refused, and must not change the first.
  return lane.tensors[tensor].taken == lane.round ? nullptr : &lane.tensors[tensor];
}

template <typename Place>
std::optional<Place> BasicArena<Place>::Take(LaneHandle handle, TensorHandle tensor) {
  for (bool extended = false;; extended = true) {
    {
      MutexLock lock(mutex_);
      Tensor* const found = FindFree(handle, tensor);
      if (found == nullptr) return std::nullopt;
      Lane& lane = lanes_[handle];
      // Others may be used again with it, so that they get places together in the next round.
      const bool again = IsUnused(lane, *found);
      found->wanted = lane.round;
      if (found->place.segment != nullptr) {
        found->taken = lane.round;
        return found->place;
      }
      // A tensor does not wait for another thread that makes the segment.
      if (again || extended || pause_ > 0 || lane.extending) return std::nullopt;
      lane.extending = true;
    }
    Extend(handle);
  }
}

// Tensors follow each other without gaps, so that those of one frame are one piece.
template <typename Place>
void BasicArena<Place>::Extend(LaneHandle handle) {
  std::vector<std::pair<TensorHandle, uint64_t>> offsets;
  uint64_t end = 0;
  {
    MutexLock lock(mutex_);
    Lane& lane = lanes_[handle];
    for (TensorHandle tensor = 0; tensor < lane.tensors.size(); ++tensor) {
      const Tensor& placed = lane.tensors[tensor];
      if (placed.place.segment != nullptr || IsUnused(lane, placed)) continue;
      end = (end + placed.alignment - 1) / placed.alignment * placed.alignment;
      offsets.emplace_back(tensor, end);
      end += placed.bytes;
    }
    // Makes no segment for bytes that travel in a frame anyway, and, for some rounds, none for each
    // tensor of a lane that grows.
    const bool rests = lane.shared_bytes > 0 && lane.round < lane.extended + kArenaExpiry;
    if (end < kLeastBytes || (rests && end < lane.shared_bytes / 2)) {
      lane.extending = false;
      return;
    }
  }
  const std::shared_ptr<Memory> segment = make_(end);
  MutexLock lock(mutex_);
  Lane& lane = lanes_[handle];
  lane.extending = false;
  if (segment == nullptr) return Pause();
  lane.shared_bytes += segment->size();
  lane.extended = lane.round;
  for (const auto& [tensor, offset] : offsets) lane.tensors[tensor].place = {segment, offset};
}

template <typename Place>
void BasicArena<Place>::Pause() {
  pause_ = next_pause_;
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
}

template <typename Place>
void BasicArena<Place>::Refuse(const std::shared_ptr<Memory>& segment) {
  MutexLock lock(mutex_);
  Pause();
  for (auto& [handle, lane] : lanes_) {
    for (Tensor& tensor : lane.tensors) {
      if (tensor.place.segment == segment) tensor.place.segment.reset();
    }
  }
}

template class BasicArena<ArenaPlace>;
template class BasicArena<DevicePlace>;

std::shared_ptr<Segment> MakeSegment(uint64_t bytes) {
  return Segment::Create(bytes).value_or(nullptr);
}

}  // namespace basin::client
