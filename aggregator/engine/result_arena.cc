// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/result_arena.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {

// Tensors follow each other without gaps, so that those of one frame are one piece.
ResultPlaces PlacesOf(const std::vector<TensorSpec>& tensors) {
  ResultPlaces places;
  places.end = Segment::kVersionBytes;
  places.begins.reserve(tensors.size());
  for (const TensorSpec& tensor : tensors) {
    const uint64_t element = std::max<uint64_t>(1, ElementSize(tensor.dtype));
    places.end = (places.end + element - 1) / element * element;
    places.begins.push_back(places.end);
    places.end += TensorBytes(tensor).value_or(0);
  }
  return places;
}

absl::StatusOr<std::shared_ptr<ResultArena>> ResultArena::Create(ResultPlaces places) {
  std::shared_ptr<ResultArena> arena(new ResultArena(std::move(places)));
  for (Half& half : arena->halves_) {
    absl::StatusOr<std::shared_ptr<Segment>> segment = Segment::Create(arena->places_->end);
    if (!segment.ok()) return segment.status();
    half.segment = *std::move(segment);
  }
  return arena;
}

std::shared_ptr<ResultHalf> ResultArena::Take(uint64_t round) {
  // Another attempt of the same round has the half of the first one.
  const bool first = halves_[0].round == round ||
                     (halves_[1].round != round && halves_[0].round < halves_[1].round);
  Half& half = halves_[first ? 0 : 1];
  if (!half.taken.expired()) return nullptr;
  half.round = round;
  half.segment->SetVersion(++half.version);
  if (half.mirror != nullptr && !half.mirror->IsFree()) half.mirror.reset();
  auto taken = std::make_shared<ResultHalf>(places_, half.segment, half.version, half.mirror);
  half.taken = taken;
  return taken;
}

size_t ResultArena::LackingMirror() const {
  size_t index = 0;
  while (index < halves_.size() && halves_[index].mirror != nullptr) ++index;
  return index;
}

void ResultArena::AddMirror(std::shared_ptr<Mirror> mirror) {
  const size_t index = LackingMirror();
  if (index < halves_.size()) halves_[index].mirror = std::move(mirror);
}

}  // namespace basin::aggregator
