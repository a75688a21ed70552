// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_late.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/core/names.h"
#include "aggregator/core/round_members.h"
#include "protocol/counted.h"

namespace basin::aggregator {
namespace {

// Calls wait for everyone, because scripts need what they call. A step of a global batch has a part
// of every member, and is not made without one.
bool MayLeaveOut(const Round& round, const RoundScope& scope) {
  return LeavesOut(scope.job.late_policy) && scope.lane.kind == LaneKind::kGradient &&
         !scope.lane.ledger.epoch().has_steps() && round.phase() == RoundPhase::kCollect &&
         !scope.paused;
}

// Returns whether the others wait for the member: there is room for what it can still add.
bool IsMissing(const RoundMember& member) { return !member.room.blocked; }

// Returns whether so many have contributed, or added what there is room for, that the round need
// not wait for the others. Those whom it has left out are part of the whole, or else it could leave
// out one after the other.
bool HasQuorum(const Round& round, const RoundScope& scope) {
  uint64_t all = 0;
  uint64_t here = 0;
  uint64_t workers = 0;  // Those of a node have one contribution, and min_workers counts each.
  for (const RoundMember& member : round.roster) {
    const bool counts = member.contribution.counts();
    if (counts || (member.late && member.alive())) ++all;
    if (!counts || IsMissing(member)) continue;
    ++here;
    workers += 1 + member.contribution.begin().reduced_with.size();
  }
  return here * 100 >= all * scope.config.quorum_percent && workers >= scope.job.min_workers;
}

// A contribution that was complete is on time, even if a new attempt needs its bytes again.
bool MayBeLeftOut(const RoundScope& scope, const RoundMember& member) {
  if (!member.there() || member.contribution.was_complete()) return false;
  if (member.contribution.begun()) return true;
  const auto& verdicts = scope.lane.verdicts;
  return !verdicts.empty() && IsCounted(verdicts.back().value, member.id, member.incarnation);
}

bool LosesDeferred(const RoundMember& member) {
  return member.contribution.begun() && member.contribution.begin().deferred > 0;
}

// Whether contributions are missing, all of members that may be left out.
bool WaitsForLate(const Round& round, const RoundScope& scope) {
  return round.roster.free() > 0 &&
         std::all_of(round.roster.begin(), round.roster.end(), [&](const RoundMember& member) {
           return !IsMissing(member) || MayBeLeftOut(scope, member);
         });
}

// Whether something of a missing member has arrived that was not read yet.
bool HasUnread(const Round& round, const RoundScope& scope) {
  return std::any_of(round.roster.begin(), round.roster.end(), [&](const RoundMember& member) {
    return IsMissing(member) && scope.job.workers[member.slot].unread_at == scope.now;
  });
}

}  // namespace

void ReviewGrace(Round& round, const RoundScope& scope) {
  if (!MayLeaveOut(round, scope) || !HasQuorum(round, scope)) {
    round.quorum_at = round.leave_out_at = absl::InfiniteFuture();
    return;
  }
  round.quorum_at = std::min(round.quorum_at, scope.now);
  if (!WaitsForLate(round, scope)) {
    round.leave_out_at = absl::InfiniteFuture();
  } else if (round.leave_out_at == absl::InfiniteFuture()) {
    round.leave_out_at = scope.now + scope.lane.grace.Window(scope.config.grace);
  }
}

bool LeaveOutLate(Round& round, const RoundScope& scope) {
  ReviewGrace(round, scope);
  if (scope.now < round.leave_out_at || HasUnread(round, scope)) return false;
  // How late it will be is not known. With more than what is known, a grace that is too short for
  // most grows.
  const absl::Duration waited = scope.now - round.quorum_at;
  const uint32_t contributors = round.roster.contributors();
  const uint32_t waiting = contributors - round.roster.free();
  std::vector<std::string> names;
  bool restart = false;
  for (RoundMember& member : round.roster) {
    if (!IsMissing(member)) continue;
    member.late = true;
    round.lateness.push_back(2 * waited);
    names.push_back(member.id);
    AddNote(round, scope, NoteKind::kContributionLate, member.id,
            absl::StrCat("It was left out of round ", round.number, ": ", waiting, " of ",
                         contributors, " members have waited for it for ",
                         absl::FormatDuration(absl::Trunc(waited, absl::Milliseconds(1))),
                         ". It gets the result.",
                         LosesDeferred(member) ? " What it had computed for the round before, and "
                                                 "was in this contribution, is lost."
                                               : ""));
    if (scope.config.rules.counts_late) continue;
    restart |= RemoveContribution(round, scope, member, ContributionInput::kWithdraw);
    if (scope.config.rules.leaves_out_of_staging) {
      round.roster.Apply(member, PresenceInput::kLeaveOut);
    }
  }
  round.leave_out_at = absl::InfiniteFuture();
  AfterRemoval(round, scope, restart,
               absl::StrCat("the contribution of worker ", NamesOf(names, kNamedLate), " is late"));
  return true;
}

void NoteLateness(Round& round, absl::Time now) {
  if (round.quorum_at == absl::InfiniteFuture()) return;
  round.lateness.push_back(now - round.quorum_at);
}

}  // namespace basin::aggregator
