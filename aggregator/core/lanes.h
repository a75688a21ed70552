// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The lanes of a job, and what they hold of the memory: of the budget of the service, and of the
// job's share of it (limits.job_memory).
//
// A lane keeps its index for good. One whose name is empty is a place that recovery left, so that
// those behind it keep theirs. What a lane holds depends on for how many workers it is planned,
// which is the `workers` of the methods: max_workers of the job.
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
  const std::vector<Lane>& all() const { return lanes_; }

  // ---- which there are
  // size() when no lane has this name.
  LaneIndex IndexOf(const std::string& name) const;
  // Null when no lane has this name.
  const Lane* Named(const std::string& name) const;
  Lane& Add(const std::string& name, LaneKind kind);
  void RemoveLast() { lanes_.pop_back(); }
  // Adds places until the next lane gets this index.
  void LeavePlacesBefore(LaneIndex index);
  // Forgets all lanes, and gives back all that they hold.
  void Drop(JobId job, MemoryBudget& memory, std::vector<Action>& actions);

  // ---- what is open in them
  bool AnyOpen() const;
  bool AnyOpenBesides(const Lane& lane) const;
  bool AnyRoundEver() const;
  // Whether members may change with a verdict of this lane: no other gradient lane is open, or
  // there is none.
  bool IsBoundary(const Lane& lane) const;
  // Where a worker that joins begins.
  std::vector<StartRound> StartRounds() const;
  // The round in which a trainer waits; null when it has ended.
  const Round* RoundOf(const RoundWait& wait) const;

  // ---- what a worker knows of them
  // Whether the worker has what the recovery should have known: another aggregator went on
  // meanwhile. While the recovery does not stand, that is any later verdict or staged value. After
  // that, it is the verdict of a value that the recovery has adopted and that is prepared again:
  // its holders are past that round, and neither its bytes nor the state of before it need be left.
  bool Lack(const Hello& hello, bool recovery_stands) const;

  // ---- when something is due
  absl::Time IdleDue(const Config& config) const;
  // Lanes that nobody has used for long hold no memory any more.
  void ExpireIdle(const Config& config, absl::Time now, MemoryBudget& memory);
  absl::Time RoundDue(const Config& config, LatePolicy late_policy, const Workers& workers) const;
  // Whether a round waits for the job's pace.
  bool AnyPaced() const;

  // ---- limits; an empty text when they allow it
  std::string WhyNoMore(const Config& config) const;
  // Why a hello could not describe all lanes after `next` is added to `lane`, if these are given. A
  // worker that returns must be able to report all that it remembers, and receive what it missed.
  std::string WhyNotRemembered(const Config& config, uint64_t workers, const Lane* lane = nullptr,
                               const TensorSpec* next = nullptr) const;

  // ---- memory
  // Whether the lane has frames that do not fit what it was given.
  static bool NeedsMemory(const Config& config, const Lane& lane);
  // Charges what it takes to keep track of the chunks of the lane, and to describe its tensors,
  // once `next` is one of them; null adds none. `drop_cached` gives back what is kept of broadcast
  // values. Returns why that cannot be.
  std::string Charge(const Config& config, uint64_t workers, MemoryBudget& memory, Lane& lane,
                     const TensorSpec* next, absl::FunctionRef<void()> drop_cached) const;
  // The job has another number of workers from now on.
  void Recharge(uint64_t before, uint64_t after, MemoryBudget& memory);
  // Gives back what the lane holds of the memory budget while it is in use.
  static void Release(MemoryBudget& memory, Lane& lane);
  // What the lanes, which are planned for `now` workers, would hold for this many.
  uint64_t ReservedFor(uint64_t workers, uint64_t now) const;
  // What is left of the job's share, and of the budget as well.
  uint64_t RoomInQuota(const Config& config) const;
  uint64_t Room(const Config& config, const MemoryBudget& memory) const;
  // "1000 of 4096 bytes are free", and which option bounds it.
  std::string DescribeRoom(const Config& config, const MemoryBudget& memory) const;

  auto Fields() const { return std::tie(lanes_); }

 private:
  std::vector<Lane> lanes_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_LANES_H_
