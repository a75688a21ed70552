// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The chunks of a round in its present attempt: how many contributors have pushed each of them,
// which are whole or being reduced, and the digests and norms of those that were reduced.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_ATTEMPT_H_
#define BASIN_AGGREGATOR_CORE_ATTEMPT_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"

#include "aggregator/core/event.h"
#include "protocol/layout.h"
#include "protocol/messages.h"
#include "protocol/placement.h"

namespace basin::aggregator {

class Attempt {
 public:
  uint32_t chunks() const { return static_cast<uint32_t>(states_.size()); }
  uint32_t tensors() const { return static_cast<uint32_t>(skips_.size()); }
  bool IsOpen(uint32_t flat) const { return states_[flat] == State::kOpen; }
  bool IsReduced(uint32_t flat) const { return states_[flat] == State::kReduced; }
  // Returns whether no chunk is queued or being reduced.
  bool idle() const { return ready_.empty() && reducing_ == 0; }
  bool AnyReady() const { return !ready_.empty(); }
  // Returns how many contributors skip the tensor.
  uint32_t Skips(TensorIndex tensor) const { return skips_[tensor]; }
  // Returns whether the chunk was reduced in this attempt, and its result was lost since with the
  // shard that had it.
  bool IsRedone(uint32_t flat) const { return redone_.count(flat) > 0; }
  bool AnyRedone() const { return !redone_.empty(); }
  // REQUIRES: IsReduced(flat).
  Digest DigestOf(uint32_t flat) const { return digests_[flat]; }

  // The layout has grown, or the round begins with it.
  void Grow(const Layout& layout);

  // ---- what contributors have
  void Arrived(uint32_t flat) { ++arrived_[flat]; }
  void Left(uint32_t flat) { --arrived_[flat]; }
  void ClearArrived();
  void Skipped(TensorIndex tensor) { ++skips_[tensor]; }
  void NoLongerSkipped(TensorIndex tensor) { --skips_[tensor]; }

  // ---- what is reduced
  // Returns whether the chunk has not gone to the reducer yet, and every one of the `contributors`
  // that does not skip its tensor has pushed it. False if all skip the tensor.
  bool IsWhole(TensorIndex tensor, uint32_t flat, uint32_t contributors) const {
    const uint32_t needed = contributors - skips_[tensor];
    return IsOpen(flat) && needed > 0 && arrived_[flat] == needed;
  }
  // Queues a chunk that is whole.
  void Queue(uint32_t flat) { ready_.push_back(flat); }
  void ClearQueue() { ready_.clear(); }
  // Returns the chunks at the head of the queue that can be reduced together: at least one, and no
  // more than `bytes` bytes of `tensors` tensors if there are several, on one shard. `alike` must
  // accept the first tensor with each other one. REQUIRES: AnyReady().
  ChunkRanges Next(const Layout& layout, const Shares& shares, uint64_t bytes, uint32_t tensors,
                   absl::FunctionRef<bool(TensorIndex, TensorIndex)> alike) const;
  // The first `count` chunks of the queue go to the reducer.
  void Start(uint32_t count);
  // Returns false if the reducer did not have one of the chunks.
  bool Finish(const Layout& layout, const ReduceDone& done);
  // Returns the chunks that went to the reducer: the next attempt must reduce them again.
  std::vector<uint32_t> Started() const;
  void StartAgain();
  // The chunk is not being reduced and has no result any more: its shard is lost.
  void Reopen(uint32_t flat);
  // Nothing more is reduced.
  void Stop();

  // ---- what was found
  // Returns the facts about the reduced chunks, and their norms; without the totals of counts.
  RoundFacts Facts(const Layout& layout) const;

  auto Fields() const {
    return std::tie(states_, arrived_, digests_, norms_, skips_, ready_, reducing_, overflow_,
                    nonfinite_, redone_);
  }

 private:
  enum class State : uint8_t { kOpen = 0, kReducing = 1, kReduced = 2 };

  double SquaredNorm(const Layout& layout, TensorIndex tensor) const;

  // By flat chunk.
  std::vector<State> states_;
  std::vector<uint32_t> arrived_;  // Contributors that have it.
  std::vector<Digest> digests_;
  std::vector<ChunkNorm> norms_;

  std::vector<uint32_t> skips_;  // By tensor.
  std::deque<uint32_t> ready_;   // Whole chunks that have not gone to the reducer yet.
  uint32_t reducing_ = 0;
  bool overflow_ = false;
  std::optional<NonFinite> nonfinite_;
  std::set<uint32_t> redone_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ATTEMPT_H_
