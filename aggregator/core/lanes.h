// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The lanes of a job, and what they hold of the service's memory budget and of the job's share of
// it (limits.job_memory).
//
// A lane keeps its index for good. A lane without a name is an index that recovery left free, so
// that later lanes keep their indexes. How much a lane holds depends on the number of workers that
// it is planned for: `workers` in the methods, max_workers of the job.
//
// Thread contract: a plain value; the methods append actions and have no other effect.

#ifndef BASIN_AGGREGATOR_CORE_LANES_H_
#define BASIN_AGGREGATOR_CORE_LANES_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/config.h"
#include "aggregator/core/lane.h"
#include "aggregator/core/memory.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class Lanes {
 public:
  Lane& operator[](LaneIndex index) { return lanes_[index]; }
  const Lane& operator[](LaneIndex index) const { return lanes_[index]; }
  LaneIndex size() const { return static_cast<LaneIndex>(lanes_.size()); }
  std::vector<Lane>::iterator begin() { return lanes_.begin(); }
  std::vector<Lane>::iterator end() { return lanes_.end(); }
  std::vector<Lane>::const_iterator begin() const { return lanes_.begin(); }
  std::vector<Lane>::const_iterator end() const { return lanes_.end(); }

  // ---- existing lanes
  // Returns size() if no lane has this name.
  LaneIndex IndexOf(const std::string& name) const;
  // Returns null if no lane has this name.
  const Lane* Named(const std::string& name) const;
  Lane& Add(const std::string& name, LaneKind kind);
  void RemoveLast() { lanes_.pop_back(); }
  // Adds unnamed lanes until the next lane gets this index.
  void LeaveIndexesBefore(LaneIndex index);
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
  // Returns whether the worker remembers something that the recovery should have known, because
  // another aggregator went on meanwhile. Until the recovery stands, this is any later verdict or
  // staged value. After that, it is the verdict of a value that the recovery has adopted and
  // prepared again: the workers that hold the value are past that round, so neither its bytes nor
  // the state from before it need exist any more.
  bool Lack(const Hello& hello, bool recovery_stands) const;

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
  // `next` unless it is null. `drop_cached` releases the kept broadcast values. Returns why the
  // charge is impossible.
  std::string Charge(const Config& config, uint64_t workers, MemoryBudget& memory, Lane& lane,
                     const TensorSpec* next, absl::FunctionRef<void()> drop_cached) const;
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

  auto Fields() const { return std::tie(lanes_); }

 private:
  void Expire(LaneIndex index, JobId job, MemoryBudget& memory, std::vector<Action>& actions);

  std::vector<Lane> lanes_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_LANES_H_
