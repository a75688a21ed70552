// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The shards at which data streams of the worker end: which there are, and which of them it cannot
// reach.

#ifndef BASIN_CLIENT_CORE_CLIENT_SHARDS_H_
#define BASIN_CLIENT_CORE_CLIENT_SHARDS_H_

#include <cstdint>

#include "client/core/client_state.h"

namespace basin::client {

// The aggregator has added a shard, or lost one.
void OnPlacement(ClientState& state, const Scope& scope, const Placement& placement);
// Opens streams to the shards of the present placement and of those that lanes use, and closes
// those to others. What was in flight to these is pushed again, to where it is now.
void FollowShards(ClientState& state, const Scope& scope);
// A stream has come up, or could not be opened: reports it if this changes whether the shard can be
// reached.
void ReportReach(ClientState& state, const Scope& scope, uint32_t stream);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_CLIENT_SHARDS_H_
