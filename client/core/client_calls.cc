// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/client_calls.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "client/core/client_session.h"
#include "client/core/client_view.h"
#include "client/core/lane_let_go.h"
#include "client/core/lane_registration.h"
#include "client/core/lane_round.h"

namespace basin::client {
namespace {

constexpr size_t kMaxNameBytes = 256;

bool IsUsableName(const std::string& name) { return !name.empty() && name.size() <= kMaxNameBytes; }

template <typename T, typename... Others>
constexpr bool kIsOneOf = (std::is_same_v<T, Others> || ...);
// Events of the network and the clock.
template <typename T>
constexpr bool kIsCall = !kIsOneOf<T, Tick, SessionUp, SessionDown, StreamUp, StreamDown,
                                   MessageReceived, ResultReceived, BlobReceived>;

template <typename F>
void WithLane(ClientState& state, const Scope& scope, LaneHandle handle, F&& call) {
  if (!state.lanes.Has(handle)) {
    const bool gone = handle < state.lanes.next();
    Refuse(state, scope,
           {ErrorCode::kNotFound,
            gone ? absl::StrCat("the call of lane handle ", handle,
                                " was idle for long in a job with many names, and was let go. "
                                "Register its name again.")
                 : absl::StrCat("lane handle ", handle, " is not registered; there are ",
                                state.lanes.size(), " lanes.")});
    return;
  }
  Refuse(state, scope, call(state.lanes[handle]));
}

void OnCall(ClientState& state, const Scope& scope, const DeclareReady& ready) {
  if (state.in_job.role == Role::kMember) {
    Refuse(state, scope,
           {ErrorCode::kFailedPrecondition,
            "declared ready, but it is a member already and has no state to load."});
    return;
  }
  state.in_job.ready = Ready{ready.step_label, ready.state_hash};
  state.in_job.evicted = false;
  if (scope.welcomed) scope.Send(*state.in_job.ready);
}

void OnCall(ClientState& state, const Scope& scope, const RegisterTensors& request) {
  Lane* known = state.lanes.Named(request.lane);
  const bool names = IsUsableName(request.lane) &&
                     std::all_of(request.tensors.begin(), request.tensors.end(),
                                 [](const TensorSpec& spec) { return IsUsableName(spec.name); });
  if (!names) {
    Refuse(state, scope,
           {ErrorCode::kInvalidArgument,
            absl::StrCat("lane ", request.lane, ": names of lanes and tensors must have 1 to ",
                         kMaxNameBytes, " bytes.")});
    return;
  }
  if (known == nullptr && state.lanes.size() >= state.config.max_lanes) {
    Refuse(state, scope,
           {ErrorCode::kResourceExhausted,
            absl::StrCat("lane ", request.lane, " would be number ", state.lanes.size() + 1,
                         ", but the limit is ", state.config.max_lanes,
                         "; reuse the names of calls, or make calls without a name.")});
    return;
  }
  Lane fresh(state.lanes.next(), request.lane, request.kind);
  const Lane& lane = known == nullptr ? fresh : *known;
  const LaneHandle handle = lane.handle;
  if (Error error = WhyNotRegister(lane, state.config, request.kind, request.tensors);
      error.code != ErrorCode::kOk) {
    Refuse(state, scope, std::move(error));
    return;
  }
  if (known == nullptr) {
    if (state.departure.finished) fresh.Finish();
    state.lanes.Add(std::move(fresh));
  }
  state.lanes[handle].claimed = !state.departure.finished;
  Register(state.lanes[handle], scope, request.tensors);
}

// Why the worker takes no part in rounds now; `did` is what it did all the same.
Error WhyNotMember(const ClientState& state, const char* did) {
  if (state.departure.finished || state.departure.leave_by.has_value()) {
    return {ErrorCode::kFailedPrecondition,
            absl::StrCat(did,
                         " after it had finished or left. Finish or leave only after the last "
                         "round, or begin a new run.")};
  }
  if (state.in_job.evicted) {
    return {ErrorCode::kEvicted,
            absl::StrCat(did,
                         ", but is no longer a member; the others continue. Declare ready and "
                         "rejoin with state; no restart needed.")};
  }
  if (state.in_job.role != Role::kMember) {
    return {ErrorCode::kFailedPrecondition,
            absl::StrCat(did,
                         ", but is not a member of the job; declare ready, and wait until it is "
                         "one.")};
  }
  return {};
}

void OnCall(ClientState& state, const Scope& scope, const BeginRound& begin) {
  if (Error error = WhyNotMember(state, "began a round"); error.code != ErrorCode::kOk) {
    Refuse(state, scope, std::move(error));
    return;
  }
  if (begin.represents > 0 && scope.welcomed && !state.session.knows_ranks()) {
    Refuse(state, scope, WhyNoRanks(state));
    return;
  }
  WithLane(state, scope, begin.lane, [&](Lane& lane) {
    BeginRound with_ranks = begin;
    with_ranks.ranks = state.ranks.count;
    Error error = Take(lane, scope, with_ranks);
    if (error.code != ErrorCode::kOk) return error;
    scope.streams.FollowLink(state.config.follows_link && !begin.in_place);
    state.in_job.lacks_state = false;  // It computes a gradient with it.
    state.ranks.grouped |= begin.represents > 0;
    return error;
  });
}

// A call about the round in flight of a lane.
template <typename Call>
void OnCall(ClientState& state, const Scope& scope, const Call& call) {
  WithLane(state, scope, call.lane, [&](Lane& lane) { return Take(lane, scope, call); });
}

void OnCall(ClientState& state, const Scope& scope, const WaitRound& wait) {
  WithLane(state, scope, wait.lane, [&](Lane& lane) { return Take(lane, scope, wait); });
  ReleaseFromPause(state, scope);
}

void OnCall(ClientState& state, const Scope& scope, const TakeSamples& take) {
  if (Error error = WhyNotMember(state, "leased samples"); error.code != ErrorCode::kOk) {
    Refuse(state, scope, std::move(error));
    return;
  }
  WithLane(state, scope, take.lane, [&](Lane& lane) { return Take(lane, scope, take); });
  ReleaseFromPause(state, scope);
}

void OnCall(ClientState& state, const Scope& scope, const AccumulateBatch& batch) {
  if (Error error = WhyNotMember(state, "reported a batch"); error.code != ErrorCode::kOk) {
    Refuse(state, scope, std::move(error));
    return;
  }
  WithLane(state, scope, batch.lane, [&](Lane& lane) { return Take(lane, scope, batch); });
  ReleaseFromPause(state, scope);
}

void OnCall(ClientState& state, const Scope& scope, const AbandonRounds&) {
  GiveUp(state, scope,
         {ErrorCode::kEvicted,
          absl::StrCat("Worker ", state.config.worker, " of job ", state.config.job,
                       " abandoned its rounds. Declare ready and rejoin with state.")});
}

void OnCall(ClientState& state, const Scope& scope, const SetBusy& busy) {
  const Busy message{busy.reason, busy.expected};
  state.busy.reset();
  if (busy.expected > absl::ZeroDuration()) state.busy = message;
  if (scope.welcomed) scope.Send(message);
}

void OnCall(ClientState& state, const Scope& scope, const SetRanks& set) {
  std::string why = WhyNotRanks(set.ranks);
  if (why.empty() && set.local_rank >= set.ranks) {
    why = absl::StrCat("has local rank ", set.local_rank, ", but stands for ", set.ranks,
                       " trainers; their local ranks are 0 to ", set.ranks - 1);
  }
  if (!why.empty()) {
    Refuse(state, scope, {ErrorCode::kInvalidArgument, absl::StrCat("the worker ", why, ".")});
    return;
  }
  if (set.ranks > 1 && scope.welcomed && !state.session.knows_ranks()) {
    Refuse(state, scope, WhyNoRanks(state));
    return;
  }
  state.ranks.count = set.ranks;
  state.ranks.local = set.local_rank;
  state.ranks.grouped |= state.ranks.count > 1;
  if (state.in_job.role != Role::kMember) return;
  scope.actions.push_back(
      MembershipNow{state.in_job.membership, state.in_job.role, Rank(state), false, std::nullopt});
}

void OnCall(ClientState&, const Scope&, const Progress&) {}

void OnCall(ClientState& state, const Scope& scope, const Finish&) {
  if (state.departure.finished) return;
  state.departure.finished = true;
  state.in_job.serves_later.reset();  // It will not take the result.
  for (Lane& lane : state.lanes) {
    lane.Finish();
    StopLeasing(lane, scope,
                {ErrorCode::kFailedPrecondition,
                 absl::StrCat("Worker ", state.config.worker, " of job ", state.config.job,
                              " has finished, and leases no more samples.")});
    AnswerLetGo(lane, scope);
  }
  if (scope.welcomed) scope.Send(Finished{});
}

void OnCall(ClientState& state, const Scope& scope, const WillLeave&) {
  state.departure.will_leave = true;
  ReleaseFromPause(state, scope);
}

void OnCall(ClientState& state, const Scope& scope, const LeaveJob& leave) {
  if (state.departure.leave_by.has_value()) return;
  state.departure.leave_by = scope.now + state.config.leave_timeout;
  state.departure.forgets = leave.forget;
  if (scope.welcomed) scope.Send(Leave{state.departure.forgets});
  const Error error{ErrorCode::kEvicted, absl::StrCat("Worker ", state.config.worker, " left job ",
                                                      state.config.job, " before the verdict.")};
  for (Lane& lane : state.lanes) {
    FailRoundInFlight(lane, scope, error);
    FailRequest(lane, scope, error);
  }
}

void OnCall(ClientState& state, const Scope& scope, const AnnounceBlob& announce) {
  Refuse(state, scope, state.blobs.Announce(scope, announce));
}

void OnCall(ClientState& state, const Scope&, const StopServing& stop) {
  state.blobs.StopServing(stop.lane, stop.tensor);
}

void OnCall(ClientState& state, const Scope& scope, const GetBlob& get) {
  Refuse(state, scope, state.blobs.Get(scope, get));
  ReleaseFromPause(state, scope);
}

}  // namespace

bool IsCall(const Event& event) {
  return std::visit([](const auto& what) { return kIsCall<std::decay_t<decltype(what)>>; }, event);
}

void OnCall(ClientState& state, const Scope& scope, const Event& call) {
  std::visit(
      [&](const auto& what) {
        if constexpr (kIsCall<std::decay_t<decltype(what)>>) OnCall(state, scope, what);
      },
      call);
}

void Refuse(const ClientState& state, const Scope& scope, Error error) {
  if (error.code == ErrorCode::kOk) return;
  error.text =
      absl::StrCat("Job ", state.config.job, ", worker ", state.config.worker, ": ", error.text);
  scope.actions.push_back(Refused{std::move(error)});
}

Error WhyNoRanks(const ClientState& state) {
  return {ErrorCode::kVersionMismatch,
          absl::StrCat("the aggregator at ", state.config.aggregator,
                       " is too old for contributions of several trainers, and would divide "
                       "wrongly. Update it, or let each trainer contribute for itself.")};
}

}  // namespace basin::client
