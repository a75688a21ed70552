// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The lanes of a job, and what they hold of the service's memory budget and of the job's share of
// it (limits.job_memory).
//
// A lane keeps its index for good, and no other lane gets it later: what is still on its way about
// a lane that is gone cannot be taken for another one. How much a lane holds depends on the number
// of workers that it is planned for: `workers` in the methods, max_workers of the job.
//
// Thread contract: a plain value; the methods append actions and have no other effect.

#ifndef BASIN_AGGREGATOR_CORE_LANES_H_
#define BASIN_AGGREGATOR_CORE_LANES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/config.h"
#include "aggregator/core/lane.h"
#include "aggregator/core/memory.h"
#include "aggregator/core/workers.h"
#include "protocol/messages.h"
#include "protocol/value_iterator.h"

namespace basin::aggregator {

// Indexes that a job can give.
inline constexpr LaneIndex kMostLaneIndexes = LaneIndex{1} << 30;

// As many as there are workers in a job, so without a node for each.
using SlotSet = absl::btree_set<Slot>;

class Lanes {
 public:
  using iterator = ValueIterator<std::map<LaneIndex, Lane>::iterator>;
  using const_iterator = ValueIterator<std::map<LaneIndex, Lane>::const_iterator>;

  // ---- existing lanes, in the order of their indexes
  bool Has(LaneIndex index) const { return lanes_.count(index) > 0; }
  // Returns whether the lane was here, and is gone.
  bool IsGone(LaneIndex index) const {
    if (index < own_) return recovered_gone_.count(index) > 0;
    return index < next_index_ && !Has(index);
  }
  // REQUIRES: Has(index).
  Lane& operator[](LaneIndex index) { return lanes_.find(index)->second; }
  const Lane& operator[](LaneIndex index) const { return lanes_.find(index)->second; }
  size_t size() const { return lanes_.size(); }
  iterator begin() { return iterator(lanes_.begin()); }
  iterator end() { return iterator(lanes_.end()); }
  const_iterator begin() const { return const_iterator(lanes_.begin()); }
  const_iterator end() const { return const_iterator(lanes_.end()); }
  // Returns nullopt if no lane has this name.
  std::optional<LaneIndex> IndexOf(const std::string& name) const;
  // Returns null if no lane has this name.
  const Lane* Named(const std::string& name) const;

  // ---- new lanes, and lanes that go
  // The index of the lane that is added next.
  LaneIndex next_index() const { return next_index_; }
  // REQUIRES: no lane has this name, and next_index() < kMostLaneIndexes.
  Lane& Add(const std::string& name, LaneKind kind);
  // The same, with an index that a recovery has found. REQUIRES: index >= next_index().
  Lane& Add(const std::string& name, LaneKind kind, LaneIndex index);
  // REQUIRES: nobody has been told of it, and it holds no memory.
  void RemoveLast();
  // Forgets the lane and returns all memory that it holds. REQUIRES: it has no round.
  void Remove(LaneIndex index, JobId job, MemoryBudget& memory, std::vector<Action>& actions);
  // Forgets all lanes and returns all memory that they hold.
  void Drop(JobId job, MemoryBudget& memory, std::vector<Action>& actions);

  // ---- open rounds
  bool AnyOpen() const;
  bool AnyOpenBesides(const Lane& lane) const;
  bool AnyRoundEver() const;
  // Returns whether a verdict of this lane may change the members: it is the only open gradient
  // lane, or the job has no gradient lane.
  bool IsBoundary(const Lane& lane) const;
  // The rounds at which a joiner begins.
  std::vector<StartRound> StartRounds() const;
  // Returns the round in which a trainer waits; null if it has ended.
  const Round* RoundOf(const RoundWait& wait) const;

  // ---- what workers remember of lanes
  // Returns whether this is the history of a call lane that the job has let go, whether or not
  // another lane has its name now. `term`: the job's.
  bool HasLetGo(const Hello& hello, const LaneHistory& history, Term term) const;
  // Returns whether the worker remembers something that the recovery should have known, because
  // another aggregator went on meanwhile. Until the recovery stands, this is any later verdict or
  // staged value. After that, it is the verdict of a value that the recovery has adopted and
  // prepared again: the workers that hold the value are past that round, so neither its bytes nor
  // the state from before it need exist any more.
  bool Lack(const Hello& hello, bool recovery_stands, Term term) const;

  // ---- names that are let go
  // These workers, all that know the lane, are asked to let it go. `asked` has those of them that
  // have not answered yet: an answer is then looked up, and not all workers with it.
  void Ask(LaneIndex index, SlotSet workers) { asked_.emplace(index, std::move(workers)); }
  // The lane is used again.
  void Keep(LaneIndex index) { asked_.erase(index); }
  // A worker has come that would never answer.
  void KeepAll() { asked_.clear(); }
  // A worker needs some lanes no more, and does not say so. TakeFewerKnow: since the last call.
  void FewerKnow() { fewer_know_ = true; }
  bool TakeFewerKnow() { return std::exchange(fewer_know_, false); }
  std::map<LaneIndex, SlotSet>& asked() { return asked_; }
  const std::map<LaneIndex, SlotSet>& asked() const { return asked_; }

  // ---- due times
  absl::Time IdleDue(const Config& config) const;
  // Releases the memory of lanes that no worker has used for long.
  void ExpireIdle(const Config& config, absl::Time now, JobId job, MemoryBudget& memory,
                  std::vector<Action>& actions);
  // Releases the memory of all lanes. REQUIRES: no worker is connected, and no round is open.
  void ExpireAll(JobId job, MemoryBudget& memory, std::vector<Action>& actions);
  absl::Time RoundDue(const Config& config, LatePolicy late_policy, const Workers& workers) const;
  // Returns whether a verdict waits for the job's pace.
  bool AnyPaced() const;

  // ---- limits; an empty text means that they allow it
  uint64_t InUse() const;  // Those that count for limits.lanes: they have not expired.
  // Makes room for one more lane in use: if there are too many, the call lane that was used least
  // recently and has no round gives up its memory, and its place. Its number stays.
  std::string MakeRoom(const Config& config, JobId job, MemoryBudget& memory,
                       std::vector<Action>& actions);
  // Gives up the memory of the call lane that was used least recently and has no round. Returns
  // whether there is one, other than `except`.
  bool ExpireOldest(JobId job, MemoryBudget& memory, std::vector<Action>& actions,
                    const Lane* except = nullptr);
  // Returns the call lane that was used least recently, if the job has so many names that the next
  // ones may not find room before its name is let go. Those that the workers were asked about count
  // as let go. Returns null if there are not too many, or no lane without a round is left.
  const Lane* LeastUsedOfTooMany(const Config& config, uint64_t workers) const;
  // Returns why a hello could not describe all lanes, with `next` added to `lane` if these are
  // given. A returning worker must be able to report all that it remembers, and to receive what it
  // missed.
  std::string WhyNotRemembered(const Config& config, uint64_t workers, const Lane* lane = nullptr,
                               const TensorSpec* next = nullptr) const;

  // ---- memory
  // What the lanes hold of the service's budget, which is what counts for the job's share.
  uint64_t held_bytes() const;
  // Returns whether the lane needs larger frames than its memory allows.
  static bool NeedsMemory(const Config& config, const Lane& lane);
  // Charges the memory that tracks the chunks of the lane and describes its tensors, including
  // `next` unless it is null. `drop_cached` releases the kept broadcast values, and `expire` the
  // memory of one other lane that is idle; false if there is none. Returns why the charge is
  // impossible.
  std::string Charge(const Config& config, uint64_t workers, MemoryBudget& memory, Lane& lane,
                     const TensorSpec* next, absl::FunctionRef<void()> drop_cached,
                     absl::FunctionRef<bool()> expire) const;
  // The job is planned for another number of workers from now on.
  void Recharge(uint64_t before, uint64_t after, MemoryBudget& memory);
  // Returns what the lane holds of the memory budget while it is in use.
  static void Release(MemoryBudget& memory, Lane& lane);
  // Returns how much the lanes, now planned for `now` workers, would hold for `workers`.
  uint64_t ReservedFor(uint64_t workers, uint64_t now) const;
  // Return how much is left of the job's share, and of the share and the budget together.
  uint64_t RoomInQuota(const Config& config) const;
  uint64_t Room(const Config& config, const MemoryBudget& memory) const;
  // Describes the free memory and the option that limits it: "1000 of 4096 bytes are free".
  std::string DescribeRoom(const Config& config, const MemoryBudget& memory) const;

  auto Fields() const {
    return std::tie(lanes_, next_index_, own_, recovered_gone_, rounds_before_, asked_,
                    fewer_know_);
  }

 private:
  static void Expire(Lane& lane, JobId job, MemoryBudget& memory, std::vector<Action>& actions);

  std::map<LaneIndex, Lane> lanes_;
  std::map<std::string, LaneIndex> by_name_;
  LaneIndex next_index_ = 0;
  LaneIndex own_ = 0;  // Those before it were given by aggregators before this one.
  std::set<LaneIndex> recovered_gone_;  // The lanes among these that are gone since.
  bool rounds_before_ = false;          // A lane that is gone had a round.
  std::map<LaneIndex, SlotSet> asked_;
  bool fewer_know_ = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_LANES_H_
