// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The members of a round, and how many of them are in each state that matters for its decisions.
//
// Their states change only here, so that the counts are right.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_ROSTER_H_
#define BASIN_AGGREGATOR_CORE_ROSTER_H_

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "aggregator/core/round_member.h"

namespace basin::aggregator {

class Roster {
 public:
  // `members` are in byte order of the id.
  explicit Roster(std::vector<RoundMember> members);

  size_t size() const { return members_.size(); }
  // In byte order of the id. A worker that was lost and has returned is in it twice.
  const std::vector<RoundMember>& members() const { return members_; }
  std::vector<RoundMember>::const_iterator begin() const { return members_.begin(); }
  std::vector<RoundMember>::const_iterator end() const { return members_.end(); }
  std::vector<RoundMember>::iterator begin() { return members_.begin(); }
  std::vector<RoundMember>::iterator end() { return members_.end(); }

  // Returns whether a live member has the slot.
  bool Has(Slot slot) const { return slot < index_.size() && index_[slot] >= 0; }
  // REQUIRES: Has(slot).
  const RoundMember& At(Slot slot) const { return members_[static_cast<size_t>(index_[slot])]; }
  RoundMember& At(Slot slot) { return members_[static_cast<size_t>(index_[slot])]; }

  uint32_t contributors() const { return tally_.contributors; }
  uint32_t begun() const { return tally_.begun; }        // Contributors that have begun.
  uint32_t trainers() const { return tally_.trainers; }  // In the contributions that have begun.
  // The same, with what is deferred to them: the divisor of an AVERAGE.
  uint32_t gradients() const { return tally_.gradients; }
  uint32_t effective() const { return tally_.effective; }  // Contributors that are effective.
  uint32_t alive() const { return tally_.alive; }
  uint32_t receivers() const { return tally_.receivers; }  // Members that are sent the results.
  uint32_t there() const { return tally_.there; }          // Members that take part.
  uint32_t unstaged() const { return tally_.unstaged; }    // Those that get them and did not stage.
  uint32_t free() const { return tally_.free; }            // Members that can still add something.
  uint32_t waiting() const { return tally_.waiting; }      // Members that can only wait.

  // Numbers the contributors in order, and returns the numbers of those that skip the tensor.
  std::vector<uint32_t> SkippersOf(TensorIndex tensor) const;

  // ---- Each Apply returns whether the table has the input. REQUIRES: `member` is in this list.
  bool Apply(RoundMember& member, ContributionInput input);
  bool Apply(RoundMember& member, PresenceInput input);
  bool Apply(RoundMember& member, StagingInput input);
  void SetBlocked(RoundMember& member, bool blocked);
  void SetWithoutResults(RoundMember& member, bool without);

  void Add(std::vector<RoundMember> joiners);

  auto Fields() const { return std::tie(members_); }

 private:
  struct Tally {
    uint32_t contributors = 0;
    uint32_t begun = 0;
    uint32_t trainers = 0;
    uint32_t gradients = 0;
    uint32_t effective = 0;
    uint32_t alive = 0;
    uint32_t receivers = 0;
    uint32_t there = 0;
    uint32_t unstaged = 0;
    uint32_t free = 0;
    uint32_t waiting = 0;

    // Counts the member once more (`by` is 1) or once less (-1).
    void Count(const RoundMember& member, int32_t by);
  };

  // Makes a change to the member, and keeps the counts right.
  template <typename Change>
  auto Recount(RoundMember& member, Change change);

  void Index();

  std::vector<RoundMember> members_;
  std::vector<int32_t> index_;  // By slot: the position of the live member. Derived from members_.
  Tally tally_;                 // Derived from members_.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROSTER_H_
