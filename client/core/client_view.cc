// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/client_view.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/core/lane_round.h"

namespace basin::client {

std::optional<uint32_t> Rank(const ClientState& state) {
  if (state.in_job.role != Role::kMember) return std::nullopt;
  const auto& members = state.in_job.membership.members;
  const auto it = std::find(members.begin(), members.end(), state.config.worker);
  if (it == members.end()) return std::nullopt;
  const auto position = static_cast<size_t>(it - members.begin());
  // A trainer that has joined its node shares the last rank until the next generation.
  return members.FirstRank(position) + std::min(state.ranks.local, members.RanksOf(position) - 1);
}

std::optional<ExpectedRank> Expected(const ClientState& state) {
  if (state.in_job.role == Role::kMember || !WasWelcomed(state) || !state.in_job.job_runs) {
    return std::nullopt;
  }
  // A member with this worker's id is an earlier process. Joiners are appended, and a worker for
  // which there is no room takes the place of one that leaves.
  uint32_t trainers = 0;
  size_t others = 0;
  for (size_t i = 0;
       i < state.in_job.membership.members.size() && others + 1 < state.in_job.max_workers; ++i) {
    if (state.in_job.membership.members[i] == state.config.worker) continue;
    trainers += state.in_job.membership.members.RanksOf(i);
    ++others;
  }
  return ExpectedRank{trainers + state.ranks.local, trainers + state.ranks.count};
}

namespace {

// Whether a gradient lane has a result that the trainer has not taken. The trainer then has the
// state before that round, while the job, and whoever joins it, is after it.
bool IsBehind(const ClientState& state) {
  const LaneMap& lanes = state.lanes.all();
  return std::any_of(lanes.begin(), lanes.end(), [](const Lane& lane) {
    return lane.kind == LaneKind::kGradient && lane.undelivered.has_value();
  });
}

// `donor`: also who serves the state, if that is new.
void Tell(ClientState& state, const Scope& scope, bool joined, bool donor) {
  MembershipNow now{
      state.in_job.membership, state.in_job.role, Rank(state), joined, std::nullopt, {}};
  if (donor && state.in_job.serves_later.has_value()) {
    now.donor = state.in_job.serves_later->donor;
    now.donor_since = state.in_job.serves_later->since;
    state.in_job.serves_later.reset();
  }
  scope.actions.push_back(std::move(now));
}

}  // namespace

void SetMembership(ClientState& state, const Scope& scope, const Membership& membership, Role role,
                   bool joined, const std::optional<WorkerId>& donor) {
  const bool another_donor = donor.has_value() && donor != state.in_job.donor;
  if (!joined && !another_donor && membership == state.in_job.membership &&
      role == state.in_job.role) {
    return;
  }
  if (state.in_job.role == Role::kMember && role != Role::kMember) {
    for (Lane& lane : state.lanes) {
      StopLeasing(
          lane, scope,
          lane.RefuseCall(ErrorCode::kFailedPrecondition,
                          absl::StrCat("worker ", state.config.worker, " of job ", state.config.job,
                                       " is no longer a member, and leases no samples.")));
    }
  }
  state.in_job.donor = donor;
  state.in_job.membership = membership;
  state.in_job.saw_members |= !membership.members.empty();
  state.in_job.role = role;
  if (joined || role != Role::kMember) state.in_job.serves_later.reset();
  if (donor.has_value()) state.in_job.serves_later = Serving{*donor, membership.generation};
  const bool may_tell = joined || role != Role::kMember || !IsBehind(state);
  Tell(state, scope, joined, may_tell);
}

void TellDonor(ClientState& state, const Scope& scope) {
  if (state.in_job.serves_later.has_value() && !IsBehind(state)) Tell(state, scope, false, true);
}

void OnPause(ClientState& state, const Scope& scope, const std::string& text) {
  if (text == state.pause) return;
  state.pause = text;
  scope.actions.push_back(JobPaused{text});
  ReleaseFromPause(state, scope);
}

// Ends the waits of a trainer that leaves, if the job is paused. Its contribution is not needed:
// the round continues without it. A worker that waits for a recovery is not released, because the
// recovery needs what it knows; it is not welcomed yet.
void ReleaseFromPause(ClientState& state, const Scope& scope) {
  if (!state.departure.will_leave || state.pause.empty() || !state.session.welcomed()) return;
  const Error error{ErrorCode::kPaused,
                    absl::StrCat(state.pause, " Worker ", state.config.worker,
                                 " is about to leave, so it does not wait for that. Leave now.")};
  for (Lane& lane : state.lanes) {
    EndWaits(lane, scope, error);
    FailRequest(lane, scope, error);
  }
  state.blobs.FailAll(scope, error);
}

}  // namespace basin::client
