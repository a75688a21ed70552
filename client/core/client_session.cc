// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The client's session as a whole: hello and welcome, its end, and the end of an incarnation.

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/client.h"
#include "client/core/lane_registration.h"
#include "client/core/lane_round.h"

namespace basin::client {
namespace {

// Refusals that another try cannot change.
bool IsFinal(ErrorCode code) {
  return IsFatal(code) || code == ErrorCode::kVersionMismatch || code == ErrorCode::kMismatch ||
         code == ErrorCode::kInvalidArgument;
}

}  // namespace

// ---- up and down

void Client::OnSessionUp(const Scope& scope) {
  if (session_.Apply(config_, SessionInput::kUp, Error{}, scope.actions)) scope.Send(MakeHello());
}

void Client::OnSessionDown(const Scope& scope, const std::string& reason) {
  if (leave_by_.has_value() && session_.welcomed()) {
    FinishLeave(scope);
    return;
  }
  EndSession(scope, SessionInput::kDown, {ErrorCode::kUnavailable, reason});
}

void Client::OnStreamUp(const Scope& scope, uint32_t stream) {
  if (!scope.welcomed || stream >= session_.streams().size()) return;
  session_.StreamUp(stream, scope.now);
  for (Lane& lane : lanes_) Advance(lane, scope);
}

void Client::OnStreamDown(const Scope& scope, const StreamDown& down) {
  if (!scope.welcomed || down.stream >= session_.streams().size()) return;
  for (Lane& lane : lanes_) LoseStream(lane, scope, down.stream);
  session_.StreamDown(config_, scope.now, down.stream, down.reason, scope.actions);
  for (Lane& lane : lanes_) Advance(lane, scope);
}

Hello Client::MakeHello() const {
  Hello hello;
  hello.job = config_.job;
  hello.run = run_;
  hello.worker = config_.worker;
  hello.nonce = config_.nonce;
  hello.features = config_.features | kFeatureRanks;
  hello.ranks = ranks_;
  hello.group = config_.group;
  hello.fresh = config_.fresh && !saw_members_;
  hello.settings = config_.settings;
  hello.incarnation = incarnation_;
  hello.from_start = from_start_;
  if (!has_history_) return hello;
  hello.membership = membership_;
  hello.lacks_state = lacks_state_;
  for (const Lane& lane : lanes_) {
    if (std::optional<LaneHistory> history = lane.History()) {
      hello.lanes.push_back(std::move(*history));
    }
  }
  return hello;
}

void Client::EndSession(const Scope& scope, SessionInput input, Error error) {
  if (!session_.Apply(config_, input, std::move(error), scope.actions)) return;
  for (Lane& lane : lanes_) lane.EndSession();
  blobs_.EndSession();
  OnPause(scope, "");  // Sent again, if it lasts.
}

void Client::OnEnded(const Scope& scope, const Error& error) {
  if (leave_by_.has_value()) {
    FinishLeave(scope);
  } else if (IsFinal(error.code)) {
    Stop(scope, error);
  } else if (error.code == ErrorCode::kEvicted) {
    EndSession(scope, SessionInput::kAgain, error);
    incarnation_ = Incarnation{};
    from_start_ = false;
    LoseIncarnation(scope, error);
  } else {
    EndSession(scope, SessionInput::kRetry, error);
  }
}

// ---- welcome

void Client::OnWelcome(const Scope& scope, const Welcome& welcome) {
  if (session_.phase() != SessionPhase::kGreeting) return;
  if (has_history_ && welcome.term < term_) {
    EndSession(scope, SessionInput::kRetry,
               {ErrorCode::kStale,
                absl::StrCat("An aggregator of term ", welcome.term,
                             " answered, but this worker has been in term ", term_, ".")});
    return;
  }
  if (!run_.empty() && welcome.run != run_) {
    EndSession(scope, SessionInput::kRetry,
               {ErrorCode::kRunConflict, absl::StrCat("An aggregator answered for run ",
                                                      welcome.run, ", not run ", run_, ".")});
    return;
  }
  if (grouped_ && (welcome.features & kFeatureRanks) == 0) {
    Error error = WhyNoRanks();
    error.text = absl::StrCat("Job ", config_.job, ", worker ", config_.worker, ": ", error.text);
    Stop(scope, std::move(error));
    return;
  }
  session_.Apply(config_, SessionInput::kWelcome, Error{}, scope.actions);
  answer_by_ = absl::InfiniteFuture();
  OnPause(scope, "");
  const Scope in_session = MakeScope(scope.now, scope.actions);
  const bool same = welcome.incarnation == incarnation_;
  if (abandoned_ && same) {
    in_session.Send(Abandon{});
    EndSession(in_session, SessionInput::kAgain,
               {ErrorCode::kEvicted, "The incarnation was abandoned."});
    return;
  }
  if (!same && has_history_) {
    LoseIncarnation(in_session, {ErrorCode::kEvicted,
                                 absl::StrCat("Worker ", config_.worker, " of job ", config_.job,
                                              " was disconnected for too long and was evicted. "
                                              "Declare ready and rejoin with state.")});
  }
  abandoned_ = false;
  incarnation_ = welcome.incarnation;
  if (!same) from_start_ = welcome.membership.generation.term == 0;
  job_runs_ = welcome.job_runs;
  max_workers_ = welcome.settings.max_workers;
  run_ = welcome.run;
  term_ = welcome.term;
  session_.Configure(scope.now, welcome, scope.actions);
  Resume(MakeScope(scope.now, scope.actions), welcome);
}

// Applies the welcome, and repeats the messages that the new session lacks.
void Client::Resume(const Scope& scope, const Welcome& welcome) {
  for (const LaneLayout& layout : welcome.layouts) {
    if (!OnLayout(scope, layout)) return;
  }
  for (const LastVerdicts& last : welcome.verdicts) {
    for (const VerdictRecord& record : last.verdicts) {
      if (!OnVerdict(scope, last.lane, record, std::nullopt, true)) return;
    }
  }
  // A worker that has become a member meanwhile gets a message with the rounds to start at.
  const Role role = welcome.role == Role::kMember && role_ != Role::kMember ? role_ : welcome.role;
  // A worker that is not a member ignores everything that an earlier aggregator sent.
  const bool dropped = role_ == Role::kMember && role != Role::kMember;
  if (dropped) ready_.reset();
  if (!has_history_ || !(welcome.membership.generation < membership_.generation)) {
    SetMembership(scope, welcome.membership, role, false, std::nullopt);
  }
  std::set<const Lane*> open_lanes;
  for (const OpenRound& open : welcome.open) {
    Lane* lane = Find(open.lane);
    if (lane == nullptr) continue;
    open_lanes.insert(lane);
    OnOpen(*lane, scope, open);
  }
  for (Lane& lane : lanes_) {
    if (dropped && open_lanes.count(&lane) == 0) EndMembership(lane, scope);
  }
  for (const Lane& lane : lanes_) SendRegister(lane, scope);
  if (ready_.has_value() && welcome.role != Role::kMember) scope.Send(*ready_);
  if (busy_.has_value()) scope.Send(*busy_);
  if (finished_) scope.Send(Finished{});
  for (Lane& lane : lanes_) Advance(lane, scope);
  blobs_.StartSession(scope);
  if (leave_by_.has_value()) scope.Send(Leave{leave_forgets_});
}

// ---- the end of an incarnation, and of everything

bool Client::OnFinding(const Scope& scope, const Finding& finding) {
  switch (finding.consequence) {
    case Consequence::kNone:
      return true;
    case Consequence::kReconnect:
      EndSession(scope, SessionInput::kRetry, finding.error);
      break;
    case Consequence::kGiveUp:
      GiveUp(scope, finding.error);
      break;
    case Consequence::kFatal:
      Stop(scope, finding.error);
      break;
  }
  return false;
}

void Client::GiveUp(const Scope& scope, const Error& error) {
  // Without a session, it is sent after the next welcome, if the welcome is for the same
  // incarnation.
  abandoned_ = incarnation_ != Incarnation{};
  if (scope.welcomed) {
    scope.Send(Abandon{});
    EndSession(scope, SessionInput::kAgain, error);
  }
  LoseIncarnation(scope, error);
}

void Client::LoseIncarnation(const Scope& scope, const Error& error) {
  for (Lane& lane : lanes_) {
    FailRoundInFlight(lane, scope, error);
    lane.Forget();
  }
  // The state that it was loading is no longer available either.
  if (has_history_) blobs_.FailAll(scope, error);
  by_index_.clear();
  starts_.clear();
  // A worker that never was a member is as ready as before, and declares it again after the
  // welcome.
  if (has_history_) ready_.reset();
  evicted_ = evicted_ || has_history_;
  blobs_.EndIncarnation();
  has_history_ = lacks_state_ = false;
  draining_ = false;
  SetMembership(scope, Membership{}, Role::kJoiner, false, std::nullopt);
}

void Client::Stop(const Scope& scope, Error error) {
  for (Lane& lane : lanes_) FailRoundInFlight(lane, scope, error);
  blobs_.FailAll(scope, error);
  EndSession(scope, SessionInput::kStop, error);
  fatal_ = error;
  scope.actions.push_back(Fatal{std::move(error)});
}

void Client::FinishLeave(const Scope& scope) {
  const Error error{ErrorCode::kOk,
                    absl::StrCat("Worker ", config_.worker, " left job ", config_.job, ".")};
  blobs_.FailAll(scope, {ErrorCode::kFailedPrecondition, error.text});
  EndSession(scope, SessionInput::kStop, error);
  left_ = true;
  scope.actions.push_back(Left{});
}

}  // namespace basin::client
