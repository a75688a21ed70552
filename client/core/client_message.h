// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages of the aggregator within a session.

#ifndef BASIN_CLIENT_CORE_CLIENT_MESSAGE_H_
#define BASIN_CLIENT_CORE_CLIENT_MESSAGE_H_

#include <optional>

#include "client/core/client_state.h"

namespace basin::client {

void OnMessage(ClientState& state, const Scope& scope, const ToWorker& message);

// ---- also for a welcome. Each returns whether the session continues.
// The caller sends the frames that the layout allows, because a welcome has
// more to handle first.
bool OnLayout(ClientState& state, const Scope& scope, const LaneLayout& layout);
// The call lane is gone. Unless the trainer needs it, so is its handle; else it is a new lane that
// is not registered. `registers`: it is being registered in this session, so that the aggregator
// takes the worker for one that knows the new lane. REQUIRES: it has an index.
void OnGone(ClientState& state, const Scope& scope, LaneHandle handle, bool registers);
// `placement`: that of the round that follows; absent in a welcome, whose layouts have it.
bool OnVerdict(ClientState& state, const Scope& scope, LaneIndex index, const VerdictRecord& record,
               const std::optional<WorkerId>& donor,
               const std::optional<RoundPlacement>& placement);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_CLIENT_MESSAGE_H_
