// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a worker knows of its job: its rank among the members, and whether the job is paused.

#ifndef BASIN_CLIENT_CORE_CLIENT_VIEW_H_
#define BASIN_CLIENT_CORE_CLIENT_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>

#include "client/core/client_state.h"

namespace basin::client {

// It was welcomed in this incarnation, or in one before that it has not lost.
inline bool WasWelcomed(const ClientState& state) {
  return state.identity.incarnation != Incarnation{};
}
// The worker's rank; absent if it is not a member.
std::optional<uint32_t> Rank(const ClientState& state);
// See Client::expected.
std::optional<ExpectedRank> Expected(const ClientState& state);

// A trainer serves its state to workers that have joined when it begins a round. If a round went on
// without this worker before its trainer had begun it, the trainer begins that round with the state
// before it, and whoever has joined since needs the state after it. So the trainer is told of the
// donor only when it has taken the result, and serves the state with the round after that.
void SetMembership(ClientState& state, const Scope& scope, const Membership& membership, Role role,
                   bool joined, const std::optional<WorkerId>& donor);
// Tells what SetMembership has kept, if the trainer has taken the result meanwhile.
void TellDonor(ClientState& state, const Scope& scope);
// `text`: why the job is paused; empty: it is not.
void OnPause(ClientState& state, const Scope& scope, const std::string& text);
void ReleaseFromPause(ClientState& state, const Scope& scope);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_CLIENT_VIEW_H_
