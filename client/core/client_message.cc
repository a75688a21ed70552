// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/client_message.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/client_session.h"
#include "client/core/client_shards.h"
#include "client/core/client_view.h"
#include "client/core/lane_let_go.h"
#include "client/core/lane_registration.h"
#include "client/core/lane_round.h"
#include "client/core/lane_verdict.h"
#include "protocol/overloaded.h"

namespace basin::client {

namespace {

void OnMembership(ClientState& state, const Scope& scope, const MembershipChanged& changed) {
  if (changed.membership.generation < state.in_job.membership.generation) return;
  const bool joined = changed.role == Role::kMember && state.in_job.role != Role::kMember;
  if (joined) {
    state.in_job.has_history = true;
    state.in_job.lacks_state = changed.donor.has_value() && *changed.donor != state.config.worker;
    state.lanes.ForgetStarts();
    for (const StartRound& start : changed.start) {
      Lane* lane = state.lanes.Named(start.lane);
      if (lane == nullptr) {
        state.lanes.SetStart(start);
        continue;
      }
      // A round left over from an earlier membership cannot go on from other state.
      FailRoundInFlight(
          *lane, scope,
          {ErrorCode::kEvicted,
           absl::StrCat(
               "Worker ", state.config.worker, " of job ", state.config.job,
               " rejoined and must load the state again, before this round had a verdict.")});
      lane->Start(start.round, start.chain, start.committed);
      if (lane->in_session && !lane->Use(state.placements, start.placement)) {
        return void(OnFinding(state, scope, lane->UnknownPlacement()));
      }
    }
    FollowShards(state, scope);
    for (Lane& lane : state.lanes) lane.StartAtLayout();
  }
  const bool dropped = state.in_job.role == Role::kMember && changed.role != Role::kMember;
  SetMembership(state, scope, changed.membership, changed.role, joined, changed.donor);
  for (Lane& lane : state.lanes) {
    if (dropped) EndMembership(lane, scope);
    Advance(lane, scope);
  }
}

void OnRejected(ClientState& state, const Scope& scope, const Rejected& rejected) {
  const Error& error = rejected.error;
  if (!rejected.lane_name.empty()) {
    Lane* named = state.lanes.Named(rejected.lane_name);
    // The layout shows that a tensor differs in the job, whichever worker was first.
    const bool in_layout = error.code == ErrorCode::kMismatch && !rejected.tensor.empty();
    if (named != nullptr && !in_layout) {
      OnRegistrationRefused(*named, scope, rejected.tensor, error);
    }
    scope.actions.push_back(Refused{error});
    return;
  }
  if (!rejected.lane.has_value()) {
    if (error.code == ErrorCode::kPaused) {
      for (Lane& lane : state.lanes) EndWaits(lane, scope, error);
    } else if (error.code == ErrorCode::kNotFound) {
      // A lane that was idle for a long time is registered again, with the round that did not find
      // it.
      for (Lane& lane : state.lanes) RegisterAgain(lane, scope);
    } else {
      scope.actions.push_back(Refused{error});
    }
    return;
  }
  Lane* lane = state.lanes.Find(*rejected.lane);
  if (lane == nullptr || lane->InFlight(rejected.round) == nullptr) return;
  switch (error.code) {
    case ErrorCode::kStale:
      // This worker is behind by more verdicts than the aggregator remembers.
      GiveUp(state, scope, {ErrorCode::kEvicted, error.text});
      return;
    case ErrorCode::kFailedPrecondition:
      // Not a member of this round: no further messages about it will come.
      FailRoundInFlight(*lane, scope, error);
      return;
    default:
      if (!lane->round->OnRefusal(error.text)) return;
      scope.actions.push_back(RoundRejected{lane->handle, rejected.round, error});
      return;
  }
}

}  // namespace

bool OnLayout(ClientState& state, const Scope& scope, const LaneLayout& layout) {
  Lane* lane = state.lanes.Named(layout.name);
  if (lane == nullptr) return true;  // A lane of others; sent again if it is registered here.
  const std::optional<LaneIndex> before = lane->index;
  // The call lane that this worker knew is gone, and this one has its name.
  const bool another = lane->kind == LaneKind::kCall && lane->started && before.has_value() &&
                       *before != layout.lane && layout.round < lane->next();
  if (another) BeginAnew(*lane, scope);
  if (!OnFinding(state, scope, OnLayout(*lane, scope, layout))) return false;
  state.lanes.SetIndex(*lane, before, layout.lane);
  if (state.in_job.has_history) lane->StartAtLayout();
  return true;
}

void OnGone(ClientState& state, const Scope& scope, LaneHandle handle, bool registers) {
  Lane& lane = state.lanes[handle];
  if (!lane.claimed && !registers && !lane.round.has_value()) {
    scope.actions.push_back(ForgetLane{handle});
    state.lanes.Remove(lane);
    return;
  }
  state.lanes.ForgetIndex(*lane.index, lane);
  BeginAnew(lane, scope);
}

bool OnVerdict(ClientState& state, const Scope& scope, LaneIndex index, const VerdictRecord& record,
               const std::optional<WorkerId>& donor,
               const std::optional<RoundPlacement>& placement) {
  Lane* lane = state.lanes.Find(index);
  if (lane == nullptr) return true;
  const bool late = !placement.has_value();
  if (!late && lane->in_session && record.round == lane->next()) {
    // Whatever the worker still has of this round is not needed any longer.
    if (!lane->Use(state.placements, *placement)) {
      return OnFinding(state, scope, lane->UnknownPlacement());
    }
    if (state.placements.SetPresent(placement->number)) FollowShards(state, scope);
  }
  if (!OnFinding(state, scope, OnVerdict(*lane, scope, record, late))) return false;
  // A verdict that was missed comes in a welcome, which has newer members.
  const bool news = !late && state.in_job.has_history && lane->last_verdict >= record.round &&
                    state.in_job.membership.generation < record.next.generation;
  if (!news) return true;
  const auto& members = record.next.members;
  const bool listed =
      std::find(members.begin(), members.end(), state.config.worker) != members.end();
  // A listed joiner gets a message with the rounds to start at.
  const Role role = listed ? state.in_job.role : Role::kJoiner;
  if (state.in_job.role == Role::kMember && !listed) state.in_job.ready.reset();
  SetMembership(state, scope, record.next, role, false, donor);
  return true;
}

void OnMessage(ClientState& state, const Scope& scope, const ToWorker& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    return OnWelcome(state, scope, *welcome);
  }
  if (const auto* ended = std::get_if<Ended>(&message)) return OnEnded(state, scope, ended->error);
  // A job that recovers welcomes no worker until then, and reports why.
  if (const auto* held_up = std::get_if<HeldUp>(&message);
      held_up != nullptr && held_up->round == 0) {
    return OnPause(state, scope, held_up->text);
  }
  if (!scope.welcomed) return;
  std::visit(Overloaded{
                 [](const Welcome&) {},
                 [](const Ended&) {},
                 [&](const MembershipChanged& changed) { OnMembership(state, scope, changed); },
                 [&](const LaneLayout& layout) {
                   if (!OnLayout(state, scope, layout)) return;
                   Lane* lane = state.lanes.Find(layout.lane);
                   if (lane == nullptr) return;
                   if (layout.placement.number != 0) FollowShards(state, scope);
                   lane->laid_out |= layout.first == 0;
                   Advance(*lane, scope);
                 },
                 [&](const Credit& credit) {
                   if (Lane* lane = state.lanes.Find(credit.lane)) OnCredit(*lane, scope, credit);
                 },
                 [&](const Pull& pull) {
                   if (Lane* lane = state.lanes.Find(pull.lane)) OnPull(*lane, scope, pull);
                 },
                 [&](const AttemptRestarted& restart) {
                   if (Lane* lane = state.lanes.Find(restart.lane)) {
                     OnRestart(*lane, scope, restart);
                   }
                 },
                 [&](const Prepared& prepared) {
                   if (Lane* lane = state.lanes.Find(prepared.lane)) {
                     OnFinding(state, scope, OnPrepared(*lane, scope, prepared));
                   }
                 },
                 [&](const Supply& supply) {
                   if (Lane* lane = state.lanes.Find(supply.lane)) OnSupply(*lane, scope, supply);
                 },
                 [&](const Verdict& verdict) {
                   OnVerdict(state, scope, verdict.lane, verdict.record, verdict.donor,
                             verdict.placement);
                 },
                 [&](const Rejected& rejected) { OnRejected(state, scope, rejected); },
                 [&](const Drain& drain) { state.in_job.draining |= !drain.service; },
                 [&](const Ask& ask) { state.blobs.OnAsk(scope, ask); },
                 [&](const BlobKnown& known) { state.blobs.OnKnown(scope, known); },
                 [&](const GetFailed& failed) { state.blobs.OnFailed(scope, failed); },
                 [&](const HeldUp& held_up) {
                   if (Lane* lane = state.lanes.Find(held_up.lane)) OnHeldUp(*lane, scope, held_up);
                 },
                 [&](const SamplesLeased& leased) {
                   if (Lane* lane = state.lanes.Find(leased.lane)) OnLeased(*lane, scope, leased);
                 },
                 [&](const LetGo& asked) {
                   if (Lane* lane = state.lanes.Find(asked.lane)) {
                     OnLetGo(*lane, scope, asked);
                   } else {  // It was registered before this worker dropped its name.
                     scope.Send(asked);
                   }
                 },
                 [&](const LaneGone& gone) {
                   state.lanes.ForgetStart(gone.lane);
                   const Lane* lane = state.lanes.Find(gone.lane);
                   if (lane == nullptr) return;
                   const LaneHandle handle = lane->handle;
                   OnGone(state, scope, handle, !lane->laid_out);
                   if (state.lanes.Has(handle)) SendRegister(state.lanes[handle], scope);
                 },
                 [&](const Placement& placement) { OnPlacement(state, scope, placement); },
                 [&](const BatchReported& reported) {
                   if (Lane* lane = state.lanes.Find(reported.lane)) {
                     OnReported(*lane, scope, reported);
                   }
                 },
             },
             message);
}

}  // namespace basin::client
