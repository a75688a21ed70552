// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// These functions choose the members of a job's next generation, their order, and the member that
// sends the job's state to joiners. The job decides in job_rounds.cc (at a verdict) and in
// ReconsiderMembers (job_members.cc) when members change.
//
// Thread contract: pure functions over plain values.

#ifndef BASIN_AGGREGATOR_CORE_MEMBERSHIP_H_
#define BASIN_AGGREGATOR_CORE_MEMBERSHIP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/workers.h"
#include "protocol/messages.h"

namespace basin::aggregator {

inline bool IsMember(const Worker& worker) { return worker.state == WorkerState::kMember; }

// The list of these workers with the trainers that each stands for. REQUIRES: all are in `workers`.
MemberList ListOf(std::vector<WorkerId> ids, const Workers& workers);

// The ready workers. Those of a group join together, or not at all: while some are members and
// others are not, the members would wait for the others in a round, and these for the end of the
// round.
struct Candidates {
  // What joins together: one worker, or the workers of a group. In the order in which the first of
  // each became ready, as they are in each.
  std::vector<std::vector<Slot>> parties;
  std::vector<Slot> waiting;  // For others of their group, which are not here yet.
};
Candidates CandidatesOf(const Workers& workers);

// Returns when the next ready worker has waited too long for its group.
absl::Time GroupDue(const Workers& workers, absl::Duration timeout);

// These flags decide which members of `current` stay, and whether ready workers join.
struct NextMembers {
  bool admit = true;      // Candidates join while there is room.
  bool keep_all = false;  // Members stay even if they drain or have finished.
  uint32_t most = 0;      // max_workers of the job.
};

// Members that stay keep their order; joiners follow in the order of the candidates. A group for
// which there is no room stays out.
MemberList ChooseMembers(const std::vector<WorkerId>& current, const Workers& workers,
                         const NextMembers& which);

// The members of a job's first generation are the first candidates, at most `most`. Their ranks
// follow the worker ids, so that ranks do not depend on which worker was quick.
MemberList FirstMembers(const Workers& workers, uint32_t most);

// Returns whether a worker in `next` is another incarnation under the rank of the earlier one.
bool AnyRevived(const std::vector<WorkerId>& next, const Workers& workers);

// Chooses the donor among workers that form a job, each with its own state. There is none if all
// declare the same state; otherwise it is the worker with the highest step, the lowest id among
// equals.
std::optional<WorkerId> ChooseFirstDonor(const std::vector<WorkerId>& next, const Workers& workers);

// Chooses the donor in a job that has members: one that holds the state, if a worker in `next`
// lacks it. A worker that joins before the first round (`trained` is false) and declares the same
// state does not lack it.
std::optional<WorkerId> ChooseDonor(const std::vector<WorkerId>& current,
                                    const std::vector<WorkerId>& next, const Workers& workers,
                                    bool trained);

// Returns whether the named donor can send its state. A donor that has finished or drains still
// serves it while it is here.
bool DonorServes(const std::optional<WorkerId>& donor, const Workers& workers);

// Returns whether there are members, and all of them have finished.
bool NobodyGoesOn(const Workers& workers);

bool AnyMemberHoldsState(const Workers& workers);
bool AnyMemberLacksState(const Workers& workers);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_MEMBERSHIP_H_
