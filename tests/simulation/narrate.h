// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages and frames as lines of a trace.
//
// Thread contract: pure functions.

#ifndef BASIN_TESTS_SIMULATION_NARRATE_H_
#define BASIN_TESTS_SIMULATION_NARRATE_H_

#include <string>

#include "client/core/action.h"
#include "protocol/messages.h"
#include "tests/simulation/payload.h"

namespace basin::simulation {

std::string Narrate(const ToAggregator& message);
std::string Narrate(const ToWorker& message);
std::string Narrate(const PushFrame& frame);
std::string Narrate(const ResultFrame& frame);
std::string Narrate(const VerdictRecord& record);
std::string Narrate(const client::MembershipNow& now);

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_NARRATE_H_
