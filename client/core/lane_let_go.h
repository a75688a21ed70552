// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a call lane goes: the aggregator of a job with many names asks whether this worker needs it,
// and says when no worker does. The name is then free, also for a call of another shape. Changes
// the lane and its round in flight.

#ifndef BASIN_CLIENT_CORE_LANE_LET_GO_H_
#define BASIN_CLIENT_CORE_LANE_LET_GO_H_

#include "client/core/lane.h"
#include "protocol/messages.h"

namespace basin::client {

// The question is answered now, or when the lane is idle. It is void once the lane has another
// verdict.
void OnLetGo(Lane& lane, const Scope& scope, const LetGo& asked);
// The lane may be idle now: its round has ended, or the worker takes part in no other.
void AnswerLetGo(Lane& lane, const Scope& scope);
// The lane is gone, but the trainer is about to use it, or does: it is a new lane by the same
// handle, and the round in flight is the first one.
void BeginAnew(Lane& lane, const Scope& scope);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LANE_LET_GO_H_
