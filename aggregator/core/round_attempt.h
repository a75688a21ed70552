// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The reductions of a round: the spec that its contributors agree on, its attempts, which chunks
// are whole, and pull mode.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_ATTEMPT_H_
#define BASIN_AGGREGATOR_CORE_ROUND_ATTEMPT_H_

#include <string>

#include "aggregator/core/round_scope.h"

namespace basin::aggregator {

// Does all that the round can do now, for example after a pause.
void Advance(Round& round, const RoundScope& scope);
void OnReduceDone(Round& round, const RoundScope& scope, const ReduceDone& done);

void StartAttemptNow(const Round& round, const RoundScope& scope);
// Begins the next attempt. Every chunk that was or is being reduced is pushed and reduced again;
// the other parked chunks stay, except those of `refetched`. A lost contributor that would have to
// push a chunk again is dropped.
void Restart(Round& round, const RoundScope& scope, const std::string& reason,
             const RoundMember* refetched = nullptr);
// Returns whether the chunk can be reduced; CheckReady queues it then.
bool IsWhole(const Round& round, TensorIndex tensor, uint32_t flat);
void CheckReady(Round& round, TensorIndex tensor, uint32_t flat);
// Looks for chunks that can be reduced.
void Rescan(Round& round, const RoundScope& scope);
void PumpReduce(Round& round, const RoundScope& scope);

// round_pull.cc: plans anew what is pulled, or first enters pull mode if nothing else helps.
void AdvancePull(Round& round, const RoundScope& scope);
void PlanPull(Round& round, const RoundScope& scope);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_ATTEMPT_H_
