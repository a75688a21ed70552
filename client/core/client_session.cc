// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/client_session.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/core/client_calls.h"
#include "client/core/client_message.h"
#include "client/core/client_shards.h"
#include "client/core/client_view.h"
#include "client/core/lane_registration.h"
#include "client/core/lane_round.h"

namespace basin::client {
namespace {

// Refusals that another try cannot change.
bool IsFinal(ErrorCode code) {
  return IsFatal(code) || code == ErrorCode::kVersionMismatch || code == ErrorCode::kMismatch ||
         code == ErrorCode::kInvalidArgument;
}

// The rounds for which the trainer waits, of those that the aggregator of this session knows.
std::vector<RoundWait> Waits(const ClientState& state, absl::Time now) {
  std::vector<RoundWait> waits;
  for (const Lane& lane : state.lanes.all()) {
    if (const auto wait = lane.TrainerWaits(now)) waits.push_back(*wait);
  }
  return waits;
}

Hello MakeHello(const ClientState& state) {
  Hello hello;
  hello.job = state.config.job;
  hello.run = state.identity.run;
  hello.worker = state.config.worker;
  hello.nonce = state.config.nonce;
  hello.features =
      state.config.features | kFeatureRanks | kFeatureSamples | kFeatureGlobalBatch | kFeatureLetGo;
  hello.ranks = state.ranks.count;
  hello.group = state.config.group;
  hello.software = state.config.software;
  hello.fresh = state.config.fresh && !state.in_job.saw_members;
  hello.settings = state.config.settings;
  hello.incarnation = state.identity.incarnation;
  hello.from_start = state.identity.from_start;
  if (!state.in_job.has_history) return hello;
  hello.membership = state.in_job.membership;
  hello.lacks_state = state.in_job.lacks_state;
  for (const Lane& lane : state.lanes.all()) {
    if (std::optional<LaneHistory> history = lane.History()) {
      hello.lanes.push_back(std::move(*history));
    }
  }
  return hello;
}

void EndSession(ClientState& state, const Scope& scope, SessionInput input, Error error) {
  if (!state.session.Apply(state.config, input, std::move(error), scope.actions)) return;
  for (Lane& lane : state.lanes) lane.EndSession();
  state.blobs.EndSession();
  state.placements.Clear();
  OnPause(state, scope, "");  // Sent again, if it lasts.
}

void LoseIncarnation(ClientState& state, const Scope& scope, const Error& error) {
  for (Lane& lane : state.lanes) {
    FailRoundInFlight(lane, scope, error);
    FailRequest(lane, scope, error);
    lane.Forget();
  }
  // The state that it was loading is no longer available either.
  if (state.in_job.has_history) state.blobs.FailAll(scope, error);
  state.lanes.ForgetIndexes();
  state.lanes.ForgetStarts();
  // A worker that never was a member is as ready as before, and declares it again after the
  // welcome.
  if (state.in_job.has_history) state.in_job.ready.reset();
  state.in_job.evicted = state.in_job.evicted || state.in_job.has_history;
  state.blobs.EndIncarnation();
  state.in_job.has_history = state.in_job.lacks_state = false;
  state.in_job.draining = false;
  SetMembership(state, scope, Membership{}, Role::kJoiner, false, std::nullopt);
}

void Stop(ClientState& state, const Scope& scope, Error error) {
  for (Lane& lane : state.lanes) {
    FailRoundInFlight(lane, scope, error);
    FailRequest(lane, scope, error);
  }
  state.blobs.FailAll(scope, error);
  EndSession(state, scope, SessionInput::kStop, error);
  state.departure.fatal = error;
  scope.actions.push_back(Fatal{std::move(error)});
}

void FinishLeave(ClientState& state, const Scope& scope) {
  const Error error{ErrorCode::kOk, absl::StrCat("Worker ", state.config.worker, " left job ",
                                                 state.config.job, ".")};
  state.blobs.FailAll(scope, {ErrorCode::kFailedPrecondition, error.text});
  EndSession(state, scope, SessionInput::kStop, error);
  state.departure.left = true;
  scope.actions.push_back(Left{});
}

// A lane that this worker has let go may be gone since. Another lane may have its name now.
void ForgetGone(ClientState& state, const Scope& scope, const Welcome& welcome) {
  std::map<std::string, const LaneLayout*> layouts;
  for (const LaneLayout& layout : welcome.layouts) layouts[layout.name] = &layout;
  std::vector<LaneHandle> gone;
  for (const Lane& lane : state.lanes.all()) {
    if (!lane.HasLetGo()) continue;
    const auto layout = layouts.find(lane.name);
    const bool here = layout != layouts.end() && layout->second->round >= lane.next() &&
                      (layout->second->lane == *lane.index || layout->second->round == lane.next());
    if (!here) gone.push_back(lane.handle);
  }
  // So may one that it has not registered; its chain would not be that of the next lane.
  state.lanes.ForgetStartsUnless([&](const StartRound& start) {
    const auto layout = layouts.find(start.lane);
    return layout != layouts.end() && layout->second->lane == start.index;
  });
  for (const LaneHandle handle : gone) OnGone(state, scope, handle, /*registers=*/false);
}

// Applies the welcome, and repeats the messages that the new session lacks.
void Resume(ClientState& state, const Scope& scope, const Welcome& welcome) {
  ForgetGone(state, scope, welcome);
  for (const Placement& placement : welcome.placements) state.placements.Take(placement);
  for (const LaneLayout& layout : welcome.layouts) {
    if (!OnLayout(state, scope, layout)) return;
  }
  for (const LastVerdicts& last : welcome.verdicts) {
    for (const VerdictRecord& record : last.verdicts) {
      if (!OnVerdict(state, scope, last.lane, record, std::nullopt, std::nullopt)) return;
    }
  }
  // A worker that has become a member meanwhile gets a message with the rounds to start at.
  const Role role = welcome.role == Role::kMember && state.in_job.role != Role::kMember
                        ? state.in_job.role
                        : welcome.role;
  // A worker that is not a member ignores everything that an earlier aggregator sent.
  const bool dropped = state.in_job.role == Role::kMember && role != Role::kMember;
  if (dropped) state.in_job.ready.reset();
  if (!state.in_job.has_history ||
      !(welcome.membership.generation < state.in_job.membership.generation)) {
    SetMembership(state, scope, welcome.membership, role, false, std::nullopt);
  }
  std::set<const Lane*> open_lanes;
  for (const OpenRound& open : welcome.open) {
    Lane* lane = state.lanes.Find(open.lane);
    if (lane == nullptr) continue;
    open_lanes.insert(lane);
    OnOpen(*lane, scope, open);
  }
  for (Lane& lane : state.lanes) {
    if (dropped && open_lanes.count(&lane) == 0) EndMembership(lane, scope);
  }
  FollowShards(state, scope);
  for (const Lane& lane : state.lanes) SendRegister(lane, scope);
  if (state.in_job.ready.has_value() && welcome.role != Role::kMember) {
    scope.Send(*state.in_job.ready);
  }
  if (state.busy.has_value()) scope.Send(*state.busy);
  if (state.departure.finished) scope.Send(Finished{});
  for (Lane& lane : state.lanes) Advance(lane, scope);
  state.blobs.StartSession(scope);
  if (state.departure.leave_by.has_value()) scope.Send(Leave{state.departure.forgets});
}

}  // namespace

// ---- up and down

void OnSessionUp(ClientState& state, const Scope& scope) {
  if (state.session.Apply(state.config, SessionInput::kUp, Error{}, scope.actions)) {
    scope.Send(MakeHello(state));
  }
}

void OnSessionDown(ClientState& state, const Scope& scope, const std::string& reason) {
  if (state.departure.leave_by.has_value() && state.session.welcomed()) {
    FinishLeave(state, scope);
    return;
  }
  EndSession(state, scope, SessionInput::kDown, {ErrorCode::kUnavailable, reason});
}

void OnStreamUp(ClientState& state, const Scope& scope, uint32_t stream) {
  if (!scope.welcomed || !state.session.streams().Names(stream)) return;
  state.session.StreamUp(stream, scope.now);
  ReportReach(state, scope, stream);
  for (Lane& lane : state.lanes) Advance(lane, scope);
}

void OnStreamDown(ClientState& state, const Scope& scope, const StreamDown& down) {
  if (!scope.welcomed || !state.session.streams().Names(down.stream)) return;
  for (Lane& lane : state.lanes) LoseStream(lane, scope, down.stream);
  state.session.StreamDown(state.config, scope.now, down.stream, down.reason, scope.actions);
  ReportReach(state, scope, down.stream);
  for (Lane& lane : state.lanes) Advance(lane, scope);
}

void OnEnded(ClientState& state, const Scope& scope, const Error& error) {
  if (state.departure.leave_by.has_value()) {
    FinishLeave(state, scope);
  } else if (IsFinal(error.code)) {
    Stop(state, scope, error);
  } else if (error.code == ErrorCode::kEvicted) {
    EndSession(state, scope, SessionInput::kAgain, error);
    state.identity.incarnation = Incarnation{};
    state.identity.from_start = false;
    LoseIncarnation(state, scope, error);
  } else {
    EndSession(state, scope, SessionInput::kRetry, error);
  }
}

// ---- time

void OnTick(ClientState& state, const Scope& scope) {
  if (state.departure.leave_by.has_value() && scope.now >= *state.departure.leave_by) {
    FinishLeave(state, scope);
    return;
  }
  if (state.session.BeatIsDue(scope.now)) {
    state.session.Beat(scope.now, Waits(state, scope.now), scope.actions);
  }
  for (Lane& lane : state.lanes) OnTick(lane, scope);
  state.blobs.Tick(scope);
  if (scope.now >= state.answer_by) {
    state.answer_by = absl::InfiniteFuture();
    if (!state.session.welcomed() && state.pause.empty()) {
      state.session.NoteSilence(
          {ErrorCode::kUnavailable,
           absl::StrCat(
               "The aggregator at ", state.config.aggregator, " has not answered for ",
               absl::FormatDuration(state.config.answer_warning),
               ". Check that it runs and that the address is right; this worker keeps trying.")});
    }
  }
}

// ---- welcome

void OnWelcome(ClientState& state, const Scope& scope, const Welcome& welcome) {
  if (state.session.phase() != SessionPhase::kGreeting) return;
  if (state.in_job.has_history && welcome.term < state.identity.term) {
    EndSession(state, scope, SessionInput::kRetry,
               {ErrorCode::kStale, absl::StrCat("An aggregator of term ", welcome.term,
                                                " answered, but this worker has been in term ",
                                                state.identity.term, ".")});
    return;
  }
  if (!state.identity.run.empty() && welcome.run != state.identity.run) {
    EndSession(
        state, scope, SessionInput::kRetry,
        {ErrorCode::kRunConflict, absl::StrCat("An aggregator answered for run ", welcome.run,
                                               ", not run ", state.identity.run, ".")});
    return;
  }
  if (state.ranks.grouped && (welcome.features & kFeatureRanks) == 0) {
    Error error = WhyNoRanks(state);
    error.text =
        absl::StrCat("Job ", state.config.job, ", worker ", state.config.worker, ": ", error.text);
    Stop(state, scope, std::move(error));
    return;
  }
  state.session.Apply(state.config, SessionInput::kWelcome, Error{}, scope.actions);
  state.answer_by = absl::InfiniteFuture();
  OnPause(state, scope, "");
  const Scope in_session = state.MakeScope(scope.now, scope.actions);
  const bool same = welcome.incarnation == state.identity.incarnation;
  if (state.identity.abandoned && same) {
    in_session.Send(Abandon{});
    EndSession(state, in_session, SessionInput::kAgain,
               {ErrorCode::kEvicted, "The incarnation was abandoned."});
    return;
  }
  if (!same && state.in_job.has_history) {
    LoseIncarnation(state, in_session,
                    {ErrorCode::kEvicted,
                     absl::StrCat("Worker ", state.config.worker, " of job ", state.config.job,
                                  " was disconnected for too long and was evicted. "
                                  "Declare ready and rejoin with state.")});
  }
  state.identity.abandoned = false;
  state.identity.incarnation = welcome.incarnation;
  if (!same) state.identity.from_start = welcome.membership.generation.term == 0;
  state.in_job.job_runs = welcome.job_runs;
  state.in_job.max_workers = welcome.settings.max_workers;
  state.identity.run = welcome.run;
  state.identity.term = welcome.term;
  state.session.Configure(scope.now, welcome, scope.actions);
  Resume(state, state.MakeScope(scope.now, scope.actions), welcome);
}

// ---- the end of an incarnation, and of everything

bool OnFinding(ClientState& state, const Scope& scope, const Finding& finding) {
  switch (finding.consequence) {
    case Consequence::kNone:
      return true;
    case Consequence::kReconnect:
      EndSession(state, scope, SessionInput::kRetry, finding.error);
      break;
    case Consequence::kGiveUp:
      GiveUp(state, scope, finding.error);
      break;
    case Consequence::kFatal:
      Stop(state, scope, finding.error);
      break;
  }
  return false;
}

void GiveUp(ClientState& state, const Scope& scope, const Error& error) {
  // Without a session, it is sent after the next welcome, if the welcome is for the same
  // incarnation.
  state.identity.abandoned = state.identity.incarnation != Incarnation{};
  if (scope.welcomed) {
    scope.Send(Abandon{});
    EndSession(state, scope, SessionInput::kAgain, error);
  }
  LoseIncarnation(state, scope, error);
}

}  // namespace basin::client
