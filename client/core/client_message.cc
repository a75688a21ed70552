// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages of the aggregator within a session.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/core/client.h"
#include "client/core/lane_registration.h"
#include "client/core/lane_round.h"
#include "client/core/lane_verdict.h"
#include "protocol/overloaded.h"

namespace basin::client {

// The lane that the aggregator means; nullptr when this process has not registered it.
Lane* Client::Find(LaneIndex index) {
  const auto it = by_index_.find(index);
  return it == by_index_.end() ? nullptr : &lanes_[it->second];
}

void Client::OnMessage(const Scope& scope, const ToWorker& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message)) return OnWelcome(scope, *welcome);
  if (const auto* ended = std::get_if<Ended>(&message)) return OnEnded(scope, ended->error);
  // A job that recovers welcomes no worker until then, and reports why.
  if (const auto* held_up = std::get_if<HeldUp>(&message);
      held_up != nullptr && held_up->round == 0) {
    return OnPause(scope, held_up->text);
  }
  if (!scope.welcomed) return;
  std::visit(Overloaded{
                 [](const Welcome&) {},
                 [](const Ended&) {},
                 [&](const MembershipChanged& changed) { OnMembership(scope, changed); },
                 [&](const LaneLayout& layout) {
                   if (!OnLayout(scope, layout)) return;
                   if (Lane* lane = Find(layout.lane)) Advance(*lane, scope);
                 },
                 [&](const Credit& credit) {
                   if (Lane* lane = Find(credit.lane)) OnCredit(*lane, scope, credit);
                 },
                 [&](const Pull& pull) {
                   if (Lane* lane = Find(pull.lane)) OnPull(*lane, scope, pull);
                 },
                 [&](const AttemptRestarted& restart) {
                   if (Lane* lane = Find(restart.lane)) OnRestart(*lane, scope, restart);
                 },
                 [&](const Prepared& prepared) {
                   if (Lane* lane = Find(prepared.lane))
                     OnFinding(scope, OnPrepared(*lane, scope, prepared));
                 },
                 [&](const Supply& supply) {
                   if (Lane* lane = Find(supply.lane)) OnSupply(*lane, scope, supply);
                 },
                 [&](const Verdict& verdict) {
                   OnVerdict(scope, verdict.lane, verdict.record, verdict.donor, false);
                 },
                 [&](const Rejected& rejected) { OnRejected(scope, rejected); },
                 [&](const Drain& drain) { draining_ |= !drain.service; },
                 [&](const Ask& ask) { blobs_.OnAsk(scope, ask); },
                 [&](const BlobKnown& known) { blobs_.OnKnown(scope, known); },
                 [&](const GetFailed& failed) { blobs_.OnFailed(scope, failed); },
                 [&](const HeldUp& held_up) {
                   if (Lane* lane = Find(held_up.lane)) OnHeldUp(*lane, scope, held_up);
                 },
             },
             message);
}

// Returns whether the session continues. The caller sends the frames that the layout allows,
// because a welcome has more to handle first.
bool Client::OnLayout(const Scope& scope, const LaneLayout& layout) {
  const auto it = std::find_if(lanes_.begin(), lanes_.end(),
                               [&](const Lane& lane) { return lane.name == layout.name; });
  if (it == lanes_.end()) return true;  // A lane of others; sent again if it is registered here.
  const std::optional<LaneIndex> before = it->index;
  if (!OnFinding(scope, client::OnLayout(*it, scope, layout))) return false;
  const auto handle = static_cast<LaneHandle>(it - lanes_.begin());
  if (before.has_value() && before != it->index) {
    // Another lane may have got the number meanwhile.
    const auto old = by_index_.find(*before);
    if (old != by_index_.end() && old->second == handle) by_index_.erase(old);
  }
  by_index_[layout.lane] = handle;
  if (has_history_) it->StartAtLayout();
  return true;
}

// Returns whether the session continues.
bool Client::OnVerdict(const Scope& scope, LaneIndex index, const VerdictRecord& record,
                       const std::optional<WorkerId>& donor, bool late) {
  Lane* lane = Find(index);
  if (lane == nullptr) return true;
  if (!OnFinding(scope, client::OnVerdict(*lane, scope, record, late))) return false;
  // A verdict that was missed comes in a welcome, which has newer members.
  const bool news = !late && has_history_ && lane->last_verdict >= record.round &&
                    membership_.generation < record.next.generation;
  if (!news) return true;
  const auto& members = record.next.members;
  const bool listed = std::find(members.begin(), members.end(), config_.worker) != members.end();
  // A listed joiner gets a message with the rounds to start at.
  const Role role = listed ? role_ : Role::kJoiner;
  if (role_ == Role::kMember && !listed) ready_.reset();
  SetMembership(scope, record.next, role, false, donor);
  return true;
}

void Client::OnMembership(const Scope& scope, const MembershipChanged& changed) {
  if (changed.membership.generation < membership_.generation) return;
  const bool joined = changed.role == Role::kMember && role_ != Role::kMember;
  if (joined) {
    has_history_ = true;
    lacks_state_ = changed.donor.has_value() && *changed.donor != config_.worker;
    starts_.clear();
    for (const StartRound& start : changed.start) {
      const auto it = std::find_if(lanes_.begin(), lanes_.end(),
                                   [&](const Lane& lane) { return lane.name == start.lane; });
      if (it == lanes_.end()) {
        starts_[start.lane] = start;
        continue;
      }
      // A round left over from an earlier membership cannot go on from other state.
      FailRoundInFlight(
          *it, scope,
          {ErrorCode::kEvicted,
           absl::StrCat(
               "Worker ", config_.worker, " of job ", config_.job,
               " rejoined and must load the state again, before this round had a verdict.")});
      it->Start(start.round, start.chain);
    }
    for (Lane& lane : lanes_) lane.StartAtLayout();
  }
  const bool dropped = role_ == Role::kMember && changed.role != Role::kMember;
  SetMembership(scope, changed.membership, changed.role, joined, changed.donor);
  for (Lane& lane : lanes_) {
    if (dropped) EndMembership(lane, scope);
    Advance(lane, scope);
  }
}

void Client::OnPause(const Scope& scope, const std::string& text) {
  if (text == pause_) return;
  pause_ = text;
  scope.actions.push_back(JobPaused{text});
  ReleaseFromPause(scope);
}

void Client::SetMembership(const Scope& scope, const Membership& membership, Role role, bool joined,
                           const std::optional<WorkerId>& donor) {
  const bool another_donor = donor.has_value() && donor != donor_;
  if (!joined && !another_donor && membership == membership_ && role == role_) return;
  donor_ = donor;
  membership_ = membership;
  saw_members_ |= !membership.members.empty();
  role_ = role;
  scope.actions.push_back(MembershipNow{membership_, role_, rank(), joined, donor});
}

void Client::OnRejected(const Scope& scope, const Rejected& rejected) {
  const Error& error = rejected.error;
  if (!rejected.lane_name.empty()) {
    const auto named = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
      return lane.name == rejected.lane_name;
    });
    // The layout shows that a tensor differs in the job, whichever worker was first.
    const bool in_layout = error.code == ErrorCode::kMismatch && !rejected.tensor.empty();
    if (named != lanes_.end() && !in_layout) {
      OnRegistrationRefused(*named, scope, rejected.tensor, error);
    }
    scope.actions.push_back(Refused{error});
    return;
  }
  if (!rejected.lane.has_value()) {
    if (error.code == ErrorCode::kPaused) {
      for (Lane& lane : lanes_) EndWaits(lane, scope, error);
    } else if (error.code == ErrorCode::kNotFound) {
      // A lane that was idle for a long time is registered again, with the round that did not find
      // it.
      for (Lane& lane : lanes_) RegisterAgain(lane, scope);
    } else {
      scope.actions.push_back(Refused{error});
    }
    return;
  }
  Lane* lane = Find(*rejected.lane);
  if (lane == nullptr || lane->InFlight(rejected.round) == nullptr) return;
  switch (error.code) {
    case ErrorCode::kStale:
      // This worker is behind by more verdicts than the aggregator remembers.
      GiveUp(scope, {ErrorCode::kEvicted, error.text});
      return;
    case ErrorCode::kFailedPrecondition:
      // Not a member of this round: no further messages about it will come.
      FailRoundInFlight(*lane, scope, error);
      return;
    default:
      if (!lane->round->OnRefusal(error.text)) return;
      scope.actions.push_back(
          RoundRejected{static_cast<LaneHandle>(lane - lanes_.data()), rejected.round, error});
      return;
  }
}

}  // namespace basin::client
