// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a lane's next round ends: its results and its verdict, which extends the history. Changes the
// settlement and the history, and ends the round in flight.

#ifndef BASIN_CLIENT_CORE_LANE_VERDICT_H_
#define BASIN_CLIENT_CORE_LANE_VERDICT_H_

#include "client/core/lane.h"

namespace basin::client {

Finding OnResult(Lane& lane, const Scope& scope, const ResultReceived& frame);
Finding OnPrepared(Lane& lane, const Scope& scope, const Prepared& prepared);
void OnSupply(Lane& lane, const Scope& scope, const Supply& supply);
// `late`: it was in a welcome, so no result can be in flight.
Finding OnVerdict(Lane& lane, const Scope& scope, const VerdictRecord& record, bool late);
// A verdict that arrived before its results is recorded once they are here.
Finding OnEarly(Lane& lane, const Scope& scope, Finding finding);
// Ends the round in flight with its verdict.
void DeliverVerdict(Lane& lane, const Scope& scope, const VerdictRecord& record);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LANE_VERDICT_H_
