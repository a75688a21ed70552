// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Which workers can be members of a job's next generation, in which order, and which of them gives
// the job's state to those that join. When they change is decided in
// job_verdict.cc (at a verdict) and in Job::ReconsiderMembers (job_members.cc).
//
// Thread contract: pure functions over plain values.

#ifndef BASIN_AGGREGATOR_CORE_MEMBERSHIP_H_
#define BASIN_AGGREGATOR_CORE_MEMBERSHIP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "aggregator/core/workers.h"
#include "protocol/messages.h"

namespace basin::aggregator {

inline bool IsMember(const Worker& worker) { return worker.state == WorkerState::kMember; }

// Workers that are ready, in the order in which they became so.
std::vector<Slot> Candidates(const Workers& workers);

// Which members of `current` stay, and which workers join.
struct NextMembers {
  bool admit = true;      // Candidates join while there is room.
  bool keep_all = false;  // Also those that drain or have finished.
  uint32_t most = 0;      // max_workers of the job.
};

// Survivors keep their order, joiners are appended in the order in which they became ready.
std::vector<WorkerId> ChooseMembers(const std::vector<WorkerId>& current, const Workers& workers,
                                    const NextMembers& which);

// The members of a job's first generation: ranks follow the worker ids, so that they do not depend
// on which worker was quick. A worker that does not fit stays a spare.
std::vector<WorkerId> FirstMembers(const std::vector<Slot>& ready, const Workers& workers,
                                   uint32_t most);

// Whether a worker in `next` has come back as another incarnation under the same rank.
bool AnyRevived(const std::vector<WorkerId>& next, const Workers& workers);

// The donor among workers that form a job, each with its own state: none when all declare the same
// state; else the worker that is furthest, the lowest id among equals.
std::optional<WorkerId> ChooseFirstDonor(const std::vector<WorkerId>& next, const Workers& workers);

// The donor in a job that has members: one that holds the state, while a worker in `next` lacks it.
// A worker that joins before the first round (`trained` is false) and declares the same state does
// not lack it.
std::optional<WorkerId> ChooseDonor(const std::vector<WorkerId>& current,
                                    const std::vector<WorkerId>& next, const Workers& workers,
                                    bool trained);

// Whether the donor that was named can give its state. A donor that has finished, or drains, still
// serves it while it is here.
bool DonorServes(const std::optional<WorkerId>& donor, const Workers& workers);

// Whether there are members, and all of them have finished.
bool NobodyGoesOn(const Workers& workers);

bool AnyMemberHoldsState(const Workers& workers);
bool AnyMemberLacksState(const Workers& workers);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_MEMBERSHIP_H_
