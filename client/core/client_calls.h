// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The calls of the trainer.

#ifndef BASIN_CLIENT_CORE_CLIENT_CALLS_H_
#define BASIN_CLIENT_CORE_CLIENT_CALLS_H_

#include "client/core/client_state.h"
#include "client/core/event.h"

namespace basin::client {

// Whether the trainer made this event, rather than the network or the clock.
bool IsCall(const Event& event);
// REQUIRES: IsCall. A wrong call is answered with Refused and changes nothing.
void OnCall(ClientState& state, const Scope& scope, const Event& call);
// Nothing for kOk.
void Refuse(const ClientState& state, const Scope& scope, Error error);

// Why a worker that stands for several trainers cannot use this aggregator.
Error WhyNoRanks(const ClientState& state);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_CLIENT_CALLS_H_
