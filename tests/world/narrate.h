// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages and frames as lines of a trace of the simulator or the explorer.
//
// Thread contract: pure functions.

#ifndef BASIN_TESTS_WORLD_NARRATE_H_
#define BASIN_TESTS_WORLD_NARRATE_H_

#include <string>

#include "client/core/action.h"
#include "protocol/messages.h"
#include "tests/world/sums.h"

namespace basin::world {

std::string Narrate(const ToAggregator& message);
std::string Narrate(const ToWorker& message);
std::string Narrate(const PushFrame<Chunk>& frame);
std::string Narrate(const ResultFrame<Chunk>& frame);
std::string Narrate(const VerdictRecord& record);
std::string Narrate(const client::MembershipNow& now);

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_NARRATE_H_
