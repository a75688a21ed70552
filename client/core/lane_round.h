// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The round in flight of a lane: the calls of the trainer, and what the aggregator reports about
// the contribution. Reads the lane's registration and history.

#ifndef BASIN_CLIENT_CORE_LANE_ROUND_H_
#define BASIN_CLIENT_CORE_LANE_ROUND_H_

#include <optional>

#include "client/core/lane.h"

namespace basin::client {

// Takes a call of the trainer. An error that is not kOk refuses it, and nothing has changed.
Error Take(Lane& lane, const Scope& scope, const BeginRound& begin);
Error Take(Lane& lane, const Scope& scope, const PushTensor& push);
Error Take(Lane& lane, const Scope& scope, const PushTensors& push);
Error Take(Lane& lane, const Scope& scope, const PushMore& more);
Error Take(Lane& lane, const Scope& scope, const SkipTensor& skip);
Error Take(Lane& lane, const Scope& scope, const CommitRound& commit);
Error Take(Lane& lane, const Scope& scope, const WithdrawRound& withdraw);
Error Take(Lane& lane, const Scope& scope, const RequestResults& request);
Error Take(Lane& lane, const Scope& scope, const WaitRound& wait);

// Ends the round in flight, if any, with an error.
void FailRoundInFlight(Lane& lane, const Scope& scope, const Error& error);
// This worker has ceased to be a member: fails the round that it began, unless the aggregator has
// opened it with this worker.
void EndMembership(Lane& lane, const Scope& scope);
void OnTick(Lane& lane, const Scope& scope);
// Ends the waits that are over, or all waits with `error`, when it is given.
void EndWaits(Lane& lane, const Scope& scope, const std::optional<Error>& error);

void OnOpen(Lane& lane, const Scope& scope, const OpenRound& open);
void OnCredit(Lane& lane, const Scope& scope, const Credit& credit);
void OnPull(Lane& lane, const Scope& scope, const Pull& pull);
void OnHeldUp(Lane& lane, const Scope& scope, const HeldUp& held_up);
void OnRestart(Lane& lane, const Scope& scope, const AttemptRestarted& restart);

void LoseStream(Lane& lane, const Scope& scope, uint32_t stream);
// A new session or stream has opened, or a message allows more to be sent.
void Advance(Lane& lane, const Scope& scope);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LANE_ROUND_H_
