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
  half.segment->SetVersion(++version_);
  std::shared_ptr<Mirror> mirror = TakeMirror();
  half.mirror = mirror;
  lacks_mirror_ = mirror == nullptr;
  auto taken = std::make_shared<ResultHalf>(places_, half.segment, version_, std::move(mirror));
  half.taken = taken;
  return taken;
}

std::shared_ptr<Mirror> ResultArena::TakeMirror() {
  std::shared_ptr<Mirror> free;
  for (auto mirror = mirrors_.begin(); mirror != mirrors_.end();) {
    // Asked for early, so that it is released when its turn comes.
    const Mirror::State state = (*mirror)->Reclaim();
    if (state == Mirror::State::kLost) {
      mirror = mirrors_.erase(mirror);
      continue;
    }
    const bool held = std::any_of(halves_.begin(), halves_.end(), [&](const Half& half) {
      return half.mirror.lock() == *mirror && !half.taken.expired();
    });
    if (free == nullptr && !held && state == Mirror::State::kFree) free = *mirror;
    ++mirror;
  }
  return free;
}

bool ResultArena::RequestMirror(absl::Time now) {
  if (!lacks_mirror_ || mirror_requested_ || mirrors_.size() >= kMostMirrors ||
      now < next_request_) {
    return false;
  }
  lacks_mirror_ = false;
  mirror_requested_ = true;
  return true;
}

void ResultArena::AddMirror(std::shared_ptr<Mirror> mirror, absl::Time now) {
  mirror_requested_ = false;
  if (mirror == nullptr) {
    next_request_ = now + absl::Minutes(1);
  } else {
    mirrors_.push_back(std::move(mirror));
  }
}

}  // namespace basin::aggregator
