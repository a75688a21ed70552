// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Routing, and the trainer's side. client_session.cc has the session as a whole, client_message.cc
// the messages within a session.

#include "client/core/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/lane_registration.h"
#include "client/core/lane_round.h"
#include "client/core/lane_verdict.h"
#include "protocol/overloaded.h"

namespace basin::client {
namespace {

constexpr size_t kMaxNameBytes = 256;

bool IsUsableName(const std::string& name) { return !name.empty() && name.size() <= kMaxNameBytes; }

// Whether the trainer made this event, rather than the network or the clock.
bool IsCall(const Event& event) {
  return std::visit(Overloaded{
                        [](const client::Tick&) { return false; },
                        [](const SessionUp&) { return false; },
                        [](const SessionDown&) { return false; },
                        [](const StreamUp&) { return false; },
                        [](const StreamDown&) { return false; },
                        [](const MessageReceived&) { return false; },
                        [](const ResultReceived&) { return false; },
                        [](const BlobReceived&) { return false; },
                        [](const auto&) { return true; },
                    },
                    event);
}

}  // namespace

Client::Client(Config config)
    : config_(std::move(config)),
      session_(config_),
      run_(config_.run),
      ranks_(config_.ranks),
      local_rank_(config_.local_rank),
      grouped_(ranks_ > 1) {}

const Lane* Client::FindLane(const std::string& name) const {
  for (const Lane& lane : lanes_) {
    if (lane.name == name) return &lane;
  }
  return nullptr;
}

std::optional<uint32_t> Client::rank() const {
  if (role_ != Role::kMember) return std::nullopt;
  const auto& members = membership_.members;
  const auto it = std::find(members.begin(), members.end(), config_.worker);
  if (it == members.end()) return std::nullopt;
  const auto position = static_cast<size_t>(it - members.begin());
  // A trainer that has joined its node shares the last rank until the next generation.
  return members.FirstRank(position) + std::min(local_rank_, members.RanksOf(position) - 1);
}

std::optional<ExpectedRank> Client::expected() const {
  if (role_ == Role::kMember || !was_welcomed() || !job_runs_) return std::nullopt;
  // A member with this worker's id is an earlier process. Joiners are appended, and a worker for
  // which there is no room takes the place of one that leaves.
  uint32_t trainers = 0;
  size_t others = 0;
  for (size_t i = 0; i < membership_.members.size() && others + 1 < max_workers_; ++i) {
    if (membership_.members[i] == config_.worker) continue;
    trainers += membership_.members.RanksOf(i);
    ++others;
  }
  return ExpectedRank{trainers + local_rank_, trainers + ranks_};
}

void Client::Step(const Event& event, absl::Time now, std::vector<Action>& actions) {
  if (session_.phase() == SessionPhase::kNew) {
    session_.Apply(config_, SessionInput::kStart, Error{}, actions);
    answer_by_ = now + config_.answer_warning;
  }
  const Scope scope = MakeScope(now, actions);
  if (session_.phase() == SessionPhase::kOver) {
    if (IsCall(event)) {
      Refuse(scope, fatal_.value_or(Error{ErrorCode::kFailedPrecondition,
                                          absl::StrCat("Worker ", config_.worker, " has left job ",
                                                       config_.job, ".")}));
    }
    return;
  }
  std::visit(Overloaded{
                 [&](const client::Tick&) { Tick(scope); },
                 [&](const SessionUp&) { OnSessionUp(scope); },
                 [&](const SessionDown& down) { OnSessionDown(scope, down.reason); },
                 [&](const StreamUp& up) { OnStreamUp(scope, up.stream); },
                 [&](const StreamDown& down) { OnStreamDown(scope, down); },
                 [&](const MessageReceived& received) { OnMessage(scope, received.message); },
                 [&](const ResultReceived& frame) {
                   if (Lane* lane = Find(frame.lane))
                     OnFinding(scope, OnResult(*lane, scope, frame));
                 },
                 [&](const BlobReceived& received) {
                   if (scope.welcomed) blobs_.OnChunks(scope, received);
                 },
                 [&](const auto& call) {
                   session_.Progress();
                   OnCall(scope, call);
                 },
             },
             event);
  // What one lane has in flight holds the frames of the others back.
  if (scope.welcomed && session_.streams().TakeHeldBack(scope.frame.chunks)) {
    for (Lane& lane : lanes_) Advance(lane, scope);
  }
}

absl::Time Client::NextDeadline() const {
  if (session_.phase() == SessionPhase::kNew) return absl::InfinitePast();
  if (session_.phase() == SessionPhase::kOver) return absl::InfiniteFuture();
  absl::Time next = std::min(session_.NextDeadline(), blobs_.NextDeadline());
  next = std::min({next, leave_by_.value_or(absl::InfiniteFuture()), answer_by_});
  for (const Lane& lane : lanes_) next = std::min(next, lane.NextDeadline());
  return next;
}

void Client::Tick(const Scope& scope) {
  if (leave_by_.has_value() && scope.now >= *leave_by_) {
    FinishLeave(scope);
    return;
  }
  if (session_.BeatIsDue(scope.now)) session_.Beat(scope.now, Waits(scope.now), scope.actions);
  for (Lane& lane : lanes_) OnTick(lane, scope);
  blobs_.Tick(scope);
  if (scope.now >= answer_by_) {
    answer_by_ = absl::InfiniteFuture();
    if (!session_.welcomed() && pause_.empty()) {
      session_.NoteSilence(
          {ErrorCode::kUnavailable,
           absl::StrCat(
               "The aggregator at ", config_.aggregator, " has not answered for ",
               absl::FormatDuration(config_.answer_warning),
               ". Check that it runs and that the address is right; this worker keeps trying.")});
    }
  }
}

// The rounds for which the trainer waits, of those that the aggregator of this session knows.
std::vector<RoundWait> Client::Waits(absl::Time now) const {
  std::vector<RoundWait> waits;
  for (const Lane& lane : lanes_) {
    if (const auto wait = lane.TrainerWaits(now)) waits.push_back(*wait);
  }
  return waits;
}

// ---- the trainer's side

void Client::Refuse(const Scope& scope, Error error) const {
  if (error.code == ErrorCode::kOk) return;
  error.text = absl::StrCat("Job ", config_.job, ", worker ", config_.worker, ": ", error.text);
  scope.actions.push_back(Refused{std::move(error)});
}

template <typename F>
void Client::WithLane(const Scope& scope, LaneHandle handle, F&& call) {
  if (handle >= lanes_.size()) {
    Refuse(scope, {ErrorCode::kNotFound,
                   absl::StrCat("lane handle ", handle, " is not registered; there are ",
                                lanes_.size(), " lanes.")});
    return;
  }
  Refuse(scope, call(lanes_[handle]));
}

void Client::OnCall(const Scope& scope, const DeclareReady& ready) {
  if (role_ == Role::kMember) {
    Refuse(scope, {ErrorCode::kFailedPrecondition,
                   "declared ready, but it is a member already and has no state to load."});
    return;
  }
  ready_ = Ready{ready.step_label, ready.state_hash};
  evicted_ = false;
  if (scope.welcomed) scope.Send(*ready_);
}

void Client::OnCall(const Scope& scope, const RegisterTensors& request) {
  const auto known = std::find_if(lanes_.begin(), lanes_.end(),
                                  [&](const Lane& lane) { return lane.name == request.lane; });
  const bool names = IsUsableName(request.lane) &&
                     std::all_of(request.tensors.begin(), request.tensors.end(),
                                 [](const TensorSpec& spec) { return IsUsableName(spec.name); });
  if (!names) {
    Refuse(scope,
           {ErrorCode::kInvalidArgument,
            absl::StrCat("lane ", request.lane, ": names of lanes and tensors must have 1 to ",
                         kMaxNameBytes, " bytes.")});
    return;
  }
  if (known == lanes_.end() && lanes_.size() >= config_.max_lanes) {
    Refuse(scope,
           {ErrorCode::kResourceExhausted,
            absl::StrCat("lane ", request.lane, " would be number ", lanes_.size() + 1,
                         ", but the limit is ", config_.max_lanes, "; reuse the names of calls.")});
    return;
  }
  const auto handle = static_cast<LaneHandle>(known - lanes_.begin());
  Lane fresh(handle, request.lane, request.kind);
  const Lane& lane = known == lanes_.end() ? fresh : *known;
  if (Error error = WhyNotRegister(lane, config_, request.kind, request.tensors);
      error.code != ErrorCode::kOk) {
    Refuse(scope, std::move(error));
    return;
  }
  if (known == lanes_.end()) {
    if (finished_) fresh.Finish();
    if (const auto start = starts_.find(request.lane); start != starts_.end()) {
      fresh.Start(start->second.round, start->second.chain);
      starts_.erase(start);
    }
    lanes_.push_back(std::move(fresh));
  }
  Register(lanes_[handle], scope, request.tensors);
}

void Client::OnCall(const Scope& scope, const BeginRound& begin) {
  if (finished_ || leave_by_.has_value()) {
    Refuse(scope,
           {ErrorCode::kFailedPrecondition,
            "began a round after it had finished or left. Finish or leave only after the last "
            "round, or begin a new run."});
    return;
  }
  if (evicted_) {
    Refuse(scope, {ErrorCode::kEvicted,
                   "began a round, but is no longer a member; the others continue. Declare ready "
                   "and rejoin with state; no restart needed."});
    return;
  }
  if (role_ != Role::kMember) {
    Refuse(scope, {ErrorCode::kFailedPrecondition,
                   "began a round, but is not a member of the job; declare ready, and wait until "
                   "it is one."});
    return;
  }
  if (begin.represents > 0 && scope.welcomed && !session_.knows_ranks()) {
    Refuse(scope, WhyNoRanks());
    return;
  }
  WithLane(scope, begin.lane, [&](Lane& lane) {
    BeginRound with_ranks = begin;
    with_ranks.ranks = ranks_;
    Error error = Take(lane, scope, with_ranks);
    if (error.code != ErrorCode::kOk) return error;
    scope.streams.FollowLink(config_.follows_link && !begin.in_place);
    lacks_state_ = false;  // It computes a gradient with it.
    grouped_ |= begin.represents > 0;
    return error;
  });
}

// A call about the round in flight of a lane.
template <typename Call>
void Client::OnCall(const Scope& scope, const Call& call) {
  WithLane(scope, call.lane, [&](Lane& lane) { return Take(lane, scope, call); });
}

void Client::OnCall(const Scope& scope, const WaitRound& wait) {
  WithLane(scope, wait.lane, [&](Lane& lane) { return Take(lane, scope, wait); });
  ReleaseFromPause(scope);
}

void Client::OnCall(const Scope& scope, const AbandonRounds&) {
  GiveUp(scope, {ErrorCode::kEvicted,
                 absl::StrCat("Worker ", config_.worker, " of job ", config_.job,
                              " abandoned its rounds. Declare ready and rejoin with state.")});
}

void Client::OnCall(const Scope& scope, const SetBusy& busy) {
  const Busy message{busy.reason, busy.expected};
  busy_.reset();
  if (busy.expected > absl::ZeroDuration()) busy_ = message;
  if (scope.welcomed) scope.Send(message);
}

void Client::OnCall(const Scope& scope, const SetRanks& set) {
  std::string why = WhyNotRanks(set.ranks);
  if (why.empty() && set.local_rank >= set.ranks) {
    why = absl::StrCat("has local rank ", set.local_rank, ", but stands for ", set.ranks,
                       " trainers; their local ranks are 0 to ", set.ranks - 1);
  }
  if (!why.empty()) {
    Refuse(scope, {ErrorCode::kInvalidArgument, absl::StrCat("the worker ", why, ".")});
    return;
  }
  if (set.ranks > 1 && scope.welcomed && !session_.knows_ranks()) {
    Refuse(scope, WhyNoRanks());
    return;
  }
  ranks_ = set.ranks;
  local_rank_ = set.local_rank;
  grouped_ |= ranks_ > 1;
  if (role_ != Role::kMember) return;
  scope.actions.push_back(MembershipNow{membership_, role_, rank(), false, std::nullopt});
}

Error Client::WhyNoRanks() const {
  return {ErrorCode::kVersionMismatch,
          absl::StrCat("the aggregator at ", config_.aggregator,
                       " is too old for contributions of several trainers, and would divide "
                       "wrongly. Update it, or let each trainer contribute for itself.")};
}

void Client::OnCall(const Scope&, const Progress&) {}

void Client::OnCall(const Scope& scope, const Finish&) {
  if (finished_) return;
  finished_ = true;
  for (Lane& lane : lanes_) lane.Finish();
  if (scope.welcomed) scope.Send(Finished{});
}

void Client::OnCall(const Scope& scope, const WillLeave&) {
  will_leave_ = true;
  ReleaseFromPause(scope);
}

// Ends the waits of a trainer that leaves, if the job is paused. Its contribution is not needed:
// the round continues without it. A worker that waits for a recovery is not released, because the
// recovery needs what it knows; it is not welcomed yet.
void Client::ReleaseFromPause(const Scope& scope) {
  if (!will_leave_ || pause_.empty() || !session_.welcomed()) return;
  const Error error{ErrorCode::kPaused,
                    absl::StrCat(pause_, " Worker ", config_.worker,
                                 " is about to leave, so it does not wait for that. Leave now.")};
  for (Lane& lane : lanes_) EndWaits(lane, scope, error);
  blobs_.FailAll(scope, error);
}

void Client::OnCall(const Scope& scope, const LeaveJob& leave) {
  if (leave_by_.has_value()) return;
  leave_by_ = scope.now + config_.leave_timeout;
  leave_forgets_ = leave.forget;
  if (scope.welcomed) scope.Send(Leave{leave_forgets_});
  const Error error{ErrorCode::kEvicted, absl::StrCat("Worker ", config_.worker, " left job ",
                                                      config_.job, " before the verdict.")};
  for (Lane& lane : lanes_) FailRoundInFlight(lane, scope, error);
}

void Client::OnCall(const Scope& scope, const AnnounceBlob& announce) {
  Refuse(scope, blobs_.Announce(scope, announce));
}

void Client::OnCall(const Scope&, const StopServing& stop) {
  blobs_.StopServing(stop.lane, stop.tensor);
}

void Client::OnCall(const Scope& scope, const GetBlob& get) {
  Refuse(scope, blobs_.Get(scope, get));
  ReleaseFromPause(scope);
}

}  // namespace basin::client
