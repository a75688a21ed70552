// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The client's session as a whole: hello and welcome, its end, and the end of
// an incarnation. After the session has ended here, an older scope must not be
// used to send.

#ifndef BASIN_CLIENT_CORE_CLIENT_SESSION_H_
#define BASIN_CLIENT_CORE_CLIENT_SESSION_H_

#include <cstdint>
#include <string>

#include "client/core/client_state.h"
#include "client/core/event.h"

namespace basin::client {

void OnSessionUp(ClientState& state, const Scope& scope);
void OnSessionDown(ClientState& state, const Scope& scope, const std::string& reason);
void OnStreamUp(ClientState& state, const Scope& scope, uint32_t stream);
void OnStreamDown(ClientState& state, const Scope& scope, const StreamDown& down);
void OnTick(ClientState& state, const Scope& scope);
void OnWelcome(ClientState& state, const Scope& scope, const Welcome& welcome);
void OnEnded(ClientState& state, const Scope& scope, const Error& error);

// Draws the consequence of a finding. Returns whether the session continues.
bool OnFinding(ClientState& state, const Scope& scope, const Finding& finding);
// Gives up all rounds in flight, and with them the incarnation.
void GiveUp(ClientState& state, const Scope& scope, const Error& error);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_CLIENT_SESSION_H_
