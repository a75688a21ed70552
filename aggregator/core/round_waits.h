// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Which members a round waits for, for what and since when; which are late, and which are given up.
// Changes nothing but named_late of the members.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_WAITS_H_
#define BASIN_AGGREGATOR_CORE_ROUND_WAITS_H_

#include <string>
#include <utility>
#include <vector>

#include "aggregator/core/round_scope.h"

namespace basin::aggregator {

// Returns what the round waits for from the member.
Awaited Awaits(const Round& round, const Layout& layout, const RoundMember& member);
// Returns the first member that the round waits for, and what it lacks, for errors: "worker w-7:
// tensor layer3.weight". Empty if the round waits for no member.
std::string WaitsFor(const Round& round, const Layout& layout);
// Returns the same for one member; empty if the round does not wait for it.
std::string WaitsFor(const Round& round, const Layout& layout, const RoundMember& member);
// Returns whether the others wait until the member's process takes or stages results. Each step
// of that may take one lease.
bool Owes(const Round& round, const RoundMember& member);

// Names late members, and returns those that the job must give up, and why.
std::vector<std::pair<Slot, std::string>> Overdue(Round& round, const RoundScope& scope);
// When Overdue has something to do next.
absl::Time RoundDeadline(const Round& round, const Config& config, LatePolicy late_policy,
                         const Workers& workers);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_WAITS_H_
