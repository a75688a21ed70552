// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a round is settled: the value is prepared and staged, and members that lack bytes of it get
// them from others (round_supply.cc). The job sends the verdict.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_SETTLE_H_
#define BASIN_AGGREGATOR_CORE_ROUND_SETTLE_H_

#include <set>
#include <string>

#include "aggregator/core/round_scope.h"

namespace basin::aggregator {

void TryPrepare(Round& round, const RoundScope& scope);
// Aborts the round. Only EndLineage aborts rounds without this function, because no member is left
// to stage.
void PrepareAborted(Round& round, const RoundScope& scope, AbortCause cause,
                    const std::string& reason);
// Sends Prepared at the current ballot to every member that may stage. The value's bytes are those
// of value_ballot.
void SendPrepared(Round& round, const RoundScope& scope, RoundInput input);
// Aborts the round for this `reason`: its members wait for each other. REQUIRES: it awaits a begin.
void EndDeadlock(Round& round, const RoundScope& scope, const std::string& reason);
void Adopt(Round& round, const RoundScope& scope, const StagedValue& staged,
           const std::set<Slot>& holders);

// Sends Prepared to the member if it may stage.
void SendPrepared(Round& round, const RoundScope& scope, RoundMember& member);
// The member's client now knows the lane.
void OnRegistered(Round& round, const RoundScope& scope, Slot slot);
// The member's trainer now has the state before this round, or will never need it.
void OnState(Round& round, const RoundScope& scope, Slot slot);
// The job's last recovery stands from now on.
void OnStanding(Round& round, const RoundScope& scope);

// ---- from the members. REQUIRES: round.Has(slot).
void OnStaged(Round& round, const RoundScope& scope, Slot slot, const Staged& staged);
void OnNeed(Round& round, const RoundScope& scope, Slot slot, const Need& need);
void OnSupply(Round& round, const RoundScope& scope, Slot slot, const FrameReceived& frame);

// Requests the chunks that members lack from the first connected member that holds the value.
void AskSupply(Round& round, const RoundScope& scope);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_SETTLE_H_
