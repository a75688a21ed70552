// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/result_arena.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {

// Tensors follow each other without gaps, so that those of one frame are one piece.
void ResultPlaces::Add(const TensorSpec& tensor) {
  const uint64_t element = std::max<uint64_t>(1, ElementSize(tensor.dtype));
  begins.push_back((end + element - 1) / element * element);
  end = begins.back() + TensorBytes(tensor).value_or(0);
}

absl::StatusOr<std::shared_ptr<ResultArena>> ResultArena::Create(ResultPlaces places,
                                                                 Charges charges) {
  std::shared_ptr<ResultArena> arena(new ResultArena(std::move(places)));
  for (size_t i = 0; i < arena->halves_.size(); ++i) {
    absl::StatusOr<std::shared_ptr<Segment>> segment = Segment::Create(arena->places_->end);
    if (!segment.ok()) return segment.status();
    Segment* const memory = segment->get();
    arena->halves_[i].segment = std::shared_ptr<Segment>(
        memory, [held = *std::move(segment), charge = std::move(charges[i])](Segment*) mutable {
          held.reset();
          charge.reset();
        });
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
  auto taken = std::make_shared<ResultHalf>(places_, half.segment, version_);
  half.taken = taken;
  return taken;
}

}  // namespace basin::aggregator
