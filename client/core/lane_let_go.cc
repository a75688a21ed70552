// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/lane_let_go.h"

#include "client/core/unnamed.h"

namespace basin::client {

void OnLetGo(Lane& lane, const Scope& scope, const LetGo& asked) {
  // The order of calls without a name follows from the rounds of all their lanes.
  if (lane.kind != LaneKind::kCall || IsUnnamedLane(lane.name)) return;
  // Until this worker is a member it has no history of the lane.
  if (lane.started && asked.round < lane.last_verdict) return;
  lane.asked_to_let_go = asked.round;
  AnswerLetGo(lane, scope);
}

void AnswerLetGo(Lane& lane, const Scope& scope) {
  if (!lane.asked_to_let_go.has_value() || !scope.welcomed || !lane.IsIdle()) return;
  const RoundNumber after = *lane.asked_to_let_go;
  // A verdict counts when its results are here, too.
  if (lane.started && lane.last_verdict < after) return;
  lane.asked_to_let_go.reset();
  if (lane.started && lane.last_verdict != after) return;
  lane.let_go = after;
  scope.Send(LetGo{*lane.index, after});
}

void BeginAnew(Lane& lane, const Scope& scope) {
  if (lane.round.has_value()) {
    lane.round->ForgetIndexes(scope);
    lane.round->Postpone(scope, 0);
  }
  lane.Forget();
}

}  // namespace basin::client
