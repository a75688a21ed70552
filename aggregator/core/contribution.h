// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The contribution of one member to a round: its state, and its chunks that have arrived.
//
// The table below has the states and the transitions between them; Round makes the decisions. A
// contribution does not know when its worker is lost: the round drops it then, unless it is
// effective.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_CONTRIBUTION_H_
#define BASIN_AGGREGATOR_CORE_CONTRIBUTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/by_shard.h"
#include "protocol/bitmap.h"
#include "protocol/layout.h"
#include "protocol/messages.h"
#include "protocol/transitions.h"

namespace basin::aggregator {

enum class ContributionState : uint8_t {
  kAwaited = 0,    // Its worker has not begun the round; chunks may be here already.
  kBegun = 1,      // The round knows its spec and its counts.
  kCommitted = 2,  // The round knows its tensors and its digest, but lacks bytes of it.
  kEffective = 3,  // It is complete, and its digest is that of the commit.
  kWithdrawn = 4,  // Not counted; its worker stages, unless it is left out (see Presence).
  kDropped = 5,    // Not counted: its worker is lost, or is no member when the round begins.
};

enum class ContributionInput : uint8_t {
  kBegin = 0,     // Its worker begins the round.
  kCommit = 1,    // Its worker commits it.
  kComplete = 2,  // All its chunks are here, and their digest is right.
  kTakeBack = 3,  // The next attempt needs bytes of it again.
  kWithdraw = 4,  // Its worker withdraws, does not take part or is late; or the round refuses it.
  kDrop = 5,      // Its worker is lost, or is no member when the round begins.
  kTakePart = 6,  // Its worker takes part in the call after all.
  kRunAgain = 7,  // The round is run again.
};

struct ContributionTransition {
  ContributionState from;
  ContributionInput input;
  ContributionState to;
  const char* when;
};

inline constexpr ContributionTransition kContributionTransitions[] = {
    // from                        input                         to
    {ContributionState::kAwaited, ContributionInput::kBegin, ContributionState::kBegun,
     "its worker begins the round"},
    {ContributionState::kAwaited, ContributionInput::kWithdraw, ContributionState::kWithdrawn,
     "its worker withdraws, finishes, waits for another round or a value, joined after the value "
     "was fixed, commits without a begin, or is late"},
    {ContributionState::kAwaited, ContributionInput::kDrop, ContributionState::kDropped,
     "its worker is lost, or is no member when the round begins"},

    {ContributionState::kBegun, ContributionInput::kCommit, ContributionState::kCommitted,
     "its worker commits it"},
    {ContributionState::kBegun, ContributionInput::kWithdraw, ContributionState::kWithdrawn,
     "its worker withdraws or is late; or it is refused because its spec differs from the others', "
     "a tensor cannot be reduced, or its commit is wrong"},
    {ContributionState::kBegun, ContributionInput::kDrop, ContributionState::kDropped,
     "its worker is lost"},

    {ContributionState::kCommitted, ContributionInput::kComplete, ContributionState::kEffective,
     "all its chunks are here, and their digest is right"},
    {ContributionState::kCommitted, ContributionInput::kWithdraw, ContributionState::kWithdrawn,
     "its digest is wrong, for the second time or with an empty commit; it is late; or it is "
     "refused because its spec differs from the others', or a tensor cannot be reduced"},
    {ContributionState::kCommitted, ContributionInput::kDrop, ContributionState::kDropped,
     "its worker is lost; or it was lost before, and the next attempt needs its bytes again"},

    {ContributionState::kEffective, ContributionInput::kTakeBack, ContributionState::kCommitted,
     "the next attempt needs bytes of it again"},
    {ContributionState::kEffective, ContributionInput::kWithdraw, ContributionState::kWithdrawn,
     "the specs are compared again, and another one is chosen; it pushes a tensor that cannot be "
     "reduced"},
    {ContributionState::kEffective, ContributionInput::kDrop, ContributionState::kDropped,
     "its worker was lost, and has returned in a new life"},
    {ContributionState::kEffective, ContributionInput::kRunAgain, ContributionState::kAwaited,
     "the round is run again"},

    {ContributionState::kWithdrawn, ContributionInput::kTakePart, ContributionState::kAwaited,
     "its worker takes part in the call after all"},
    {ContributionState::kWithdrawn, ContributionInput::kRunAgain, ContributionState::kAwaited,
     "the round is run again, and its worker joined after the value was fixed"},
};
static_assert(IsUnambiguous(kContributionTransitions));

// The fields that every frame reads come first, so that they are close in memory.
class Contribution {
 public:
  ContributionState state() const { return machine_.state(); }
  // Returns whether its worker is one of the contributors.
  bool counts() const { return state() <= ContributionState::kEffective; }
  bool begun() const { return counts() && state() >= ContributionState::kBegun; }
  bool committed() const { return counts() && state() >= ContributionState::kCommitted; }
  bool effective() const { return state() == ContributionState::kEffective; }
  // Returns whether it is effective, or was before the next attempt needed its bytes again.
  bool was_complete() const { return committed() && was_effective_; }
  // Returns whether it counts and is not effective yet.
  bool incomplete() const { return state() < ContributionState::kEffective; }

  // Empty before the first begin, and kept when the round is run again.
  const Begin& begin() const { return begin_; }
  // What has to be the same in all contributions that give it; nullopt if this one does not give
  // it, or is not counted.
  std::optional<uint64_t> compared_step() const {
    return counts() && begin_.compares_step ? std::optional(begin_.step_label) : std::nullopt;
  }
  std::optional<uint64_t> compared_optimizer() const {
    return counts() && begin_.optimizer != 0 ? std::optional(begin_.optimizer) : std::nullopt;
  }
  const Commit& commit() const { return commit_; }

  const Bitmap& have() const { return have_; }  // Chunks that are parked or part of this attempt.
  bool Has(uint32_t flat) const { return have_.Test(flat); }
  // Returns whether the chunk has arrived in any attempt, so that its digest is known.
  bool Knows(uint32_t flat) const { return known_.Test(flat); }
  bool Skips(TensorIndex tensor) const { return skipped_.Test(tensor); }
  bool KnowsAny(const Layout& layout, TensorIndex tensor) const;
  Digest DigestOf(uint32_t flat) const { return digests_[flat]; }
  Digest digest() const { return digest_; }  // Sum over the chunks of have().
  // Bytes that are not reduced yet, and those that its worker still has to push or skip.
  const ByShard& parked() const { return parked_; }
  const ByShard& missing() const { return missing_; }

  bool refetched() const { return refetched_; }

  // The layout has grown by these bytes, or the round begins with them.
  void Grow(const Layout& layout, const ByShard& bytes);
  // A shard was lost: what is missing is to be pushed to others.
  void Place(const Layout& layout, const Shares& shares);

  // ---- what its worker sends; the round sets the state that follows
  void OnBegin(const Begin& begin);
  // Returns whether this changes anything.
  bool OnSkip(const Layout& layout, const Shares& shares, TensorIndex tensor);
  // REQUIRES: !Has(flat).
  void OnChunk(uint32_t flat, uint64_t size, Digest digest, ShardId shard);
  // Returns why the commit cannot be right ("claims a tensor that it skipped"); empty if it can.
  std::string WhatIsWrongWith(const Layout& layout, const Commit& commit) const;
  void OnCommit(const Commit& commit);
  // Returns whether the commit contains the tensor. REQUIRES: there is a commit.
  bool Commits(TensorIndex tensor) const { return Names(commit_, tensor); }
  bool Complete() const { return have_.count() == commit_.chunks; }

  // For observers: when the round first and last stopped waiting for it, because it was effective
  // or did not count any more. InfinitePast if the round still waits.
  absl::Time first_arrived() const { return first_arrived_; }
  absl::Time arrived() const { return arrived_; }
  void NoteArrival(absl::Time now) {
    arrived_ = now;
    if (first_arrived_ == absl::InfinitePast()) first_arrived_ = now;
  }

  // ---- what the round does with it
  // The chunk was reduced, so its bytes are no longer held.
  void NoteReduced(uint32_t flat, uint64_t size, ShardId shard) {
    if (have_.Test(flat)) parked_.Subtract(shard, size);
  }
  // The chunk must be pushed again to the shard. `parked`: its bytes are still held there. Returns
  // whether the chunk was here.
  bool TakeBack(uint32_t flat, uint64_t size, ShardId shard, bool parked);
  // Its digest is not that of its commit, so all of it is pushed again. Any chunk may then have
  // other bytes than before.
  void Refetch() {
    refetched_ = true;
    known_.ClearAll();
  }
  void ForgetParked() { parked_.Clear(); }
  // All changes of the state go through here. Returns whether the table has the input in this
  // state; if not, nothing changes. A contribution that no longer counts keeps no chunks.
  bool Apply(ContributionInput input);
  const RowsTaken& taken() const { return machine_.taken(); }

  auto Fields() const {
    return std::tie(machine_, have_, known_, digests_, digest_, skipped_, parked_, missing_, begin_,
                    commit_, refetched_, was_effective_);
  }

 private:
  static bool Names(const Commit& commit, TensorIndex tensor) {
    return tensor < commit.layout_version && commit.present.Test(tensor);
  }

  StateMachine<kContributionTransitions> machine_;
  ByShard parked_;
  ByShard missing_;
  Digest digest_ = 0;
  Bitmap have_;
  Bitmap known_;
  std::vector<Digest> digests_;  // By flat chunk.
  Bitmap skipped_;               // Tensors.
  Begin begin_;
  Commit commit_;
  bool refetched_ = false;
  bool was_effective_ = false;
  absl::Time first_arrived_ = absl::InfinitePast();
  absl::Time arrived_ = absl::InfinitePast();
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_CONTRIBUTION_H_
