// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The members of a round: which of them take part, are refused, left out or lost, and which join.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/round.h"

namespace basin::aggregator {

// The member takes part in this call. One that was away counts again unless the value is fixed. A
// frame shows this as well as a begin does, because it may arrive before the begin.
void Round::OnPart(const RoundScope& scope, RoundMember& member) {
  const bool prepared = phase() == RoundPhase::kPrepared;
  if (member.there()) return;
  if (member.presence.state() == Presence::kUndecided) {
    roster_.Apply(member, PresenceInput::kTakePart);
    // It joined after the value was fixed, and contributes if the round is run again.
    if (!member.contribution.counts()) roster_.Apply(member, ContributionInput::kTakePart);
    if (prepared) TellPrepared(scope, member);
    return;
  }
  if (prepared) return;  // After the verdict, its client makes this call as the next round.
  roster_.Apply(member, PresenceInput::kTakePart);
  roster_.Apply(member, ContributionInput::kTakePart);
  RemoveEarlierLives(scope, member);
  UpdateBlocked(scope, member);
  agreement_.Reopen();
  Restart(scope, absl::StrCat("worker ", member.id, " joined and has begun the call"));
}

Contributor Round::CountedNode() const {
  for (const Contributor& contributor : value_.contributors) {
    if (contributor.is_partial()) return contributor;
  }
  if (phase() == RoundPhase::kPrepared) return {};
  for (const RoundMember& member : roster_) {
    if (!member.contribution.begun()) continue;
    const uint32_t trainers = member.contribution.begin().trainers();
    if (trainers > 1) return {member.id, member.incarnation, 1, std::nullopt, trainers};
  }
  return {};
}

void Round::LeaveOut(const RoundScope& scope, Slot slot) {
  RoundMember& member = roster_.At(slot);
  if (member.presence.state() != Presence::kUndecided) return;
  AddNote(scope, NoteKind::kContributionWithdrawn, member.id,
          "It joined while the call was open, but waits for another call or value.")
      .cause = NoteCause::kLeftOut;
  KeepAReceiver(scope, member);
  // Only a receiver can acknowledge, so this comes before kLeaveOut: it frees the held results.
  AcknowledgeAll(scope, member);
  member.reception.OweNothing();
  roster_.Apply(member, PresenceInput::kLeaveOut);
  const bool prepared = phase() == RoundPhase::kPrepared;
  const bool restart = !prepared && RemoveContribution(scope, member, ContributionInput::kWithdraw);
  UpdateBlocked(scope, member);
  if (!prepared) {
    AfterRemoval(scope, restart, absl::StrCat("worker ", member.id, " does not make this call"));
  }
}

// Removes a contribution because of what its worker did. The worker receives the reason now and on
// each new session. Returns as RemoveContribution does.
bool Round::Refuse(const RoundScope& scope, RoundMember& member, ErrorCode code,
                   const std::string& text) {
  Reject(scope, member, code, text);
  member.refusal = Error{code, text};
  return RemoveContribution(scope, member, ContributionInput::kWithdraw);
}

// Removes a contribution. Returns whether chunks with its part were or are being reduced.
bool Round::RemoveContribution(const RoundScope& scope, RoundMember& member,
                               ContributionInput input) {
  if (!member.contribution.counts()) return false;
  PlanAgain();
  bool reduced = false;
  RangeBuilder parked(scope.layout);
  for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) {
    if (!member.contribution.Has(flat)) continue;
    if (attempt_.IsOpen(flat)) {
      attempt_.Left(flat);
      parked.Add(flat);
    } else {
      reduced = true;
    }
  }
  // The divisor of a tensor that it skipped may have counted it.
  for (TensorIndex tensor = 0; tensor < scope.layout.version(); ++tensor) {
    if (!member.contribution.Skips(tensor)) continue;
    attempt_.NoLongerSkipped(tensor);
    for (uint32_t flat = scope.layout.FirstChunk(tensor);
         flat < scope.layout.FirstChunk(tensor + 1); ++flat) {
      reduced |= !attempt_.IsOpen(flat);
    }
  }
  if (std::vector<ChunkRange> ranges = parked.Take(); !ranges.empty()) {
    scope.actions.push_back(
        DiscardChunks{scope.job, scope.lane, number_, member.incarnation, std::move(ranges)});
  }
  roster_.Apply(member, input);
  UpdateBlocked(scope, member);
  return reduced;
}

void Round::AfterRemoval(const RoundScope& scope, bool restart, const std::string& reason) {
  if (restart) {
    Restart(scope, reason);
    return;
  }
  if (agreement_.made()) StartAttemptNow(scope);
  Rescan(scope);
  Advance(scope);
}

void Round::Lose(const RoundScope& scope, Slot slot, const std::string& reason) {
  RoundMember& member = roster_.At(slot);
  KeepAReceiver(scope, member);
  // Only a receiver can acknowledge, so this comes before kLose: it frees the held results.
  AcknowledgeAll(scope, member);
  roster_.Apply(member, PresenceInput::kLose);
  UpdateBlocked(scope, member);
  // The round no longer waits for it, so its progress does not matter.
  member.reception.ForgetFetched();
  member.StartClock(absl::Time());
  supplies_.Forget(slot);
  if (phase() == RoundPhase::kPrepared) {
    AskSupply(scope);
    return;
  }
  if (scope.loss_policy == LossPolicy::kAbort && phase() == RoundPhase::kCollect) {
    if (AnyoneAlive()) {
      PrepareAborted(scope, AbortCause::kLoss,
                     absl::StrCat("worker ", member.id, " was lost (", reason,
                                  ") and the job's loss policy is abort"));
    }
    return;
  }
  if (!member.contribution.incomplete()) {
    Advance(scope);
    return;
  }
  AddNote(scope, NoteKind::kContributionDropped, member.id,
          "It was lost before its contribution was effective.");
  const bool restart = RemoveContribution(scope, member, ContributionInput::kDrop);
  AfterRemoval(scope, restart, absl::StrCat("worker ", member.id, " was lost: ", reason));
}

// Drops the contributions of the worker's earlier lives, so that it counts only once.
void Round::RemoveEarlierLives(const RoundScope& scope, const RoundMember& member) {
  for (RoundMember& before : roster_) {
    if (before.id != member.id || before.incarnation == member.incarnation) continue;
    if (!before.contribution.counts()) continue;
    AddNote(scope, NoteKind::kContributionDropped, before.id,
            "Its worker has returned in a new life, which contributes instead.");
    RemoveContribution(scope, before, ContributionInput::kDrop);
  }
}

void Round::Admit(const RoundScope& scope, std::vector<RoundMember> joiners) {
  for (RoundMember& joiner : joiners) {
    joiner.StartClock(scope.now);
    joiner.Grow(scope.layout);
    if (phase() == RoundPhase::kPrepared) {
      joiner.reception.HoldNothing();
    } else {
      if (joiner.contribution.counts()) RemoveEarlierLives(scope, joiner);
    }
  }
  roster_.Add(std::move(joiners));
  if (phase() == RoundPhase::kPrepared) {
    // The value is fixed; the joiners get its bytes from members that have them.
    ++ballot_.attempt;
    SendPrepared(scope, RoundInput::kPrepareAgain);
    return;
  }
  agreement_.Reopen();
  if (phase() == RoundPhase::kCollect) Restart(scope, "workers joined while the job was paused");
}

void Round::Reform(const RoundScope& scope, std::vector<RoundMember> members) {
  for (RoundMember& member : roster_) {
    const bool stays = std::any_of(members.begin(), members.end(), [&](const RoundMember& other) {
      return other.incarnation == member.incarnation;
    });
    if (stays || !member.alive()) continue;
    RemoveContribution(scope, member, ContributionInput::kDrop);
    roster_.Apply(member, PresenceInput::kLose);
    UpdateBlocked(scope, member);
  }
  std::vector<RoundMember> joiners;
  for (RoundMember& member : members) {
    if (!Has(member.slot)) joiners.push_back(std::move(member));
  }
  if (!joiners.empty()) Admit(scope, std::move(joiners));
}

}  // namespace basin::aggregator
