// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Members that are left out of a round because they are late. With the late policy `leave_out`, a
// round to which a quorum has contributed waits for the others only for a grace. A member that is
// left out then takes part like one that has withdrawn: it stages and gets the result, and the
// verdict waits for that, because either every member gets a result or none does.
//
// The library of a worker stages while its trainer is elsewhere, but keeps one result: that of the
// next round can be sent only when the trainer has taken it. So a member may be left out if it has
// begun the round, or if the round before counted it, whose result its trainer then had at once.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_LATE_H_
#define BASIN_AGGREGATOR_CORE_ROUND_LATE_H_

#include "aggregator/core/round_scope.h"

namespace basin::aggregator {

// Starts the grace when there is a quorum and whoever is missing may be left out, and ends it when
// that has changed.
void ReviewGrace(Round& round, const RoundScope& scope);
// Leaves out whoever is missing when the grace has passed. Returns whether it has.
bool LeaveOutLate(Round& round, const RoundScope& scope);
// A contribution is complete for the first time. Notes how late it is if there was a quorum before.
void NoteLateness(Round& round, absl::Time now);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_LATE_H_
