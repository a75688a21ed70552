// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/client.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/core/client_calls.h"
#include "client/core/client_message.h"
#include "client/core/client_session.h"
#include "client/core/client_view.h"
#include "client/core/lane_round.h"
#include "client/core/lane_verdict.h"
#include "protocol/overloaded.h"

namespace basin::client {

void Client::Step(const Event& event, absl::Time now, std::vector<Action>& actions) {
  if (state_.session.phase() == SessionPhase::kNew) {
    state_.session.Apply(state_.config, SessionInput::kStart, Error{}, actions);
    state_.answer_by = now + state_.config.answer_warning;
  }
  const Scope scope = state_.MakeScope(now, actions);
  if (state_.session.phase() == SessionPhase::kOver) {
    if (IsCall(event)) {
      Refuse(state_, scope,
             state_.departure.fatal.value_or(
                 Error{ErrorCode::kFailedPrecondition,
                       absl::StrCat("Worker ", state_.config.worker, " has left job ",
                                    state_.config.job, ".")}));
    }
    return;
  }
  std::visit(
      Overloaded{
          [&](const client::Tick&) { OnTick(state_, scope); },
          [&](const SessionUp&) { OnSessionUp(state_, scope); },
          [&](const SessionDown& down) { OnSessionDown(state_, scope, down.reason); },
          [&](const StreamUp& up) { OnStreamUp(state_, scope, up.stream); },
          [&](const StreamDown& down) { OnStreamDown(state_, scope, down); },
          [&](const MessageReceived& received) { OnMessage(state_, scope, received.message); },
          [&](const ResultReceived& frame) {
            if (Lane* lane = state_.lanes.Find(frame.lane)) {
              OnFinding(state_, scope, OnResult(*lane, scope, frame));
            }
          },
          [&](const BlobReceived& received) {
            if (scope.welcomed) state_.blobs.OnChunks(scope, received);
          },
          [&](const auto&) {
            state_.session.Progress();
            OnCall(state_, scope, event);
          },
      },
      event);
  // What one lane has in flight holds the frames of the others back.
  if (scope.welcomed && state_.session.streams().TakeHeldBack(scope.frame.chunks)) {
    for (Lane& lane : state_.lanes) Advance(lane, scope);
  }
  TellDonor(state_, scope);
}

absl::Time Client::NextDeadline() const {
  if (state_.session.phase() == SessionPhase::kNew) return absl::InfinitePast();
  if (state_.session.phase() == SessionPhase::kOver) return absl::InfiniteFuture();
  absl::Time next = std::min(state_.session.NextDeadline(), state_.blobs.NextDeadline());
  next = std::min(
      {next, state_.departure.leave_by.value_or(absl::InfiniteFuture()), state_.answer_by});
  for (const Lane& lane : lanes()) next = std::min(next, lane.NextDeadline());
  return next;
}

}  // namespace basin::client
