// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The chunks of a round in its present attempt: how many contributors have pushed each, which are
// whole, which are being reduced, and what came of those that are.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_ATTEMPT_H_
#define BASIN_AGGREGATOR_CORE_ATTEMPT_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"

#include "aggregator/core/event.h"
#include "aggregator/core/layout.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class Attempt {
 public:
  uint32_t chunks() const { return static_cast<uint32_t>(states_.size()); }
  bool IsOpen(uint32_t flat) const { return states_[flat] == State::kOpen; }
  bool IsReduced(uint32_t flat) const { return states_[flat] == State::kReduced; }
  // Nothing is being reduced, or could be.
  bool idle() const { return ready_.empty() && reducing_ == 0; }
  bool AnyReady() const { return !ready_.empty(); }
  // How many contributors skip the tensor.
  uint32_t Skips(TensorIndex tensor) const { return skips_[tensor]; }
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
  // Whether everyone of the `contributors` who does not skip the chunk's tensor has pushed it.
  bool IsWhole(TensorIndex tensor, uint32_t flat, uint32_t contributors) const {
    const uint32_t needed = contributors - skips_[tensor];
    return IsOpen(flat) && needed > 0 && arrived_[flat] == needed;
  }
  // Queues a chunk that is whole.
  void Queue(uint32_t flat) { ready_.push_back(flat); }
  void ClearQueue() { ready_.clear(); }
  // The chunks at the head of the queue that can be reduced together: at least one, and otherwise
  // at most `bytes` bytes of at most `tensors` tensors, which `alike` compares with the first.
  // REQUIRES: AnyReady().
  ChunkRanges Next(const Layout& layout, uint64_t bytes, uint32_t tensors,
                   absl::FunctionRef<bool(TensorIndex, TensorIndex)> alike) const;
  // The chunks at the head of the queue go to the reducer.
  void Start(uint32_t count);
  // False when they were not with the reducer.
  bool Finish(const Layout& layout, const ReduceDone& done);
  // The chunks that were given to the reducer: the next attempt has to do them again.
  std::vector<uint32_t> Started() const;
  void StartAgain();
  // Nothing more is reduced.
  void Stop();

  // ---- what came of it
  // What was seen in the chunks that are reduced, and their norms; without the totals of counts.
  RoundFacts Facts(const Layout& layout) const;

  auto Fields() const {
    return std::tie(states_, arrived_, digests_, norms_, skips_, ready_, reducing_, overflow_,
                    nonfinite_);
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
  std::deque<uint32_t> ready_;   // Whole, not yet given to the reducer.
  uint32_t reducing_ = 0;
  bool overflow_ = false;
  std::optional<NonFinite> nonfinite_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ATTEMPT_H_
