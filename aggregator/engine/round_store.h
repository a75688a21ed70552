// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The bytes of one round: chunks of contributions that wait to be reduced, and results that a
// worker may still want. It carries out the core's actions and decides nothing.
//
// Thread contract: none of its own; the engine's loop owns it.
// Failure: an action that names bytes which are not here would be a broken invariant between core
// and engine; the return value reports it, and the caller ends the process.

#ifndef BASIN_AGGREGATOR_ENGINE_ROUND_STORE_H_
#define BASIN_AGGREGATOR_ENGINE_ROUND_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "aggregator/core/action.h"
#include "aggregator/engine/reduction.h"
#include "runtime/frames/frame.h"

namespace basin::aggregator {

class RoundStore {
 public:
  // Keeps chunks of a contribution frame. REQUIRES: the frame has them, and the runs of a list have
  // their sizes.
  void Keep(const Incarnation& contributor, const ChunkRanges& ranges,
            const ContributionHeader& frame, const IncomingFrame& incoming);
  // Returns whether all of them were here.
  bool Discard(const Incarnation& contributor, const std::vector<ChunkRange>& ranges);

  // A new ballot frees the results of the one before. Those of this one go to the arena where they
  // can; null: there is none.
  void Start(const StartAttempt& start, ResultArena* arena = nullptr);

  // Takes the inputs of a reduction out. Empty when one is not here, or the ballot is not that of
  // the attempt.
  std::unique_ptr<Reduction> TakeInputs(const Reduce& reduce);

  // Holds the result of a reduction; drops it when its attempt is over.
  // REQUIRES: the reduction did not fail.
  void Hold(const Reduction& reduction);

  // A frame with the results in `ranges`, or nothing when one of them is not here.
  std::optional<OutgoingFrame> FrameOf(LaneIndex lane, RoundNumber round,
                                       const ChunkRanges& ranges) const;
  bool Release(const Ballot& ballot, const ChunkRange& range);

  const std::shared_ptr<const AttemptTerms>& terms() const { return terms_; }
  uint64_t parked_bytes() const { return parked_bytes_; }
  uint64_t result_bytes() const { return result_bytes_; }

 private:
  struct Result {
    PayloadPart part;
    Digest digest = 0;
  };
  using ChunkKey = uint64_t;  // Tensor and chunk.
  static ChunkKey KeyOf(TensorIndex tensor, uint32_t chunk) {
    return uint64_t{tensor} << 32 | chunk;
  }

  std::shared_ptr<const AttemptTerms> terms_;
  std::shared_ptr<ResultHalf> half_;  // For the results of the attempt; null: memory of the pool.
  std::map<Incarnation, absl::flat_hash_map<ChunkKey, ChunkInput>> parked_;
  absl::flat_hash_map<ChunkKey, Result> results_;
  uint64_t parked_bytes_ = 0;
  uint64_t result_bytes_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_ROUND_STORE_H_
