// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_members.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/round_attempt.h"
#include "aggregator/core/round_intake.h"
#include "aggregator/core/round_results.h"
#include "aggregator/core/round_settle.h"
#include "aggregator/core/round_shards.h"

namespace basin::aggregator {
namespace {

// If nobody else is sent results, the members that go without are sent them.
void KeepAReceiver(Round& round, const RoundScope& scope, const RoundMember& leaving) {
  if (round.roster.receivers() != 1 || !leaving.is_sent_results()) return;
  for (RoundMember& member : round.roster) {
    if (member.receives()) SendResults(round, scope, member);
  }
}

// Returns whether the member has finished and does not even know the call: its client, which has
// not registered the lane, would ignore that it is asked to stage.
bool WillNeverMake(const RoundScope& scope, const RoundMember& member) {
  const Worker& worker = scope.job.workers[member.slot];
  return member.there() && scope.lane.kind == LaneKind::kCall && worker.finishing &&
         !worker.HasRegistered(scope.index);
}

}  // namespace

void OnPart(Round& round, const RoundScope& scope, RoundMember& member) {
  const bool prepared = round.phase() == RoundPhase::kPrepared;
  if (member.there()) return;
  if (member.presence.state() == Presence::kUndecided) {
    round.roster.Apply(member, PresenceInput::kTakePart);
    // It joined after the value was fixed, and contributes if the round is run again.
    if (!member.contribution.counts()) round.roster.Apply(member, ContributionInput::kTakePart);
    if (prepared) SendPrepared(round, scope, member);
    return;
  }
  if (prepared) return;  // After the verdict, its client makes this call as the next round.
  round.roster.Apply(member, PresenceInput::kTakePart);
  round.roster.Apply(member, ContributionInput::kTakePart);
  RemoveEarlierLives(round, scope, member);
  UpdateBlocked(round, scope, member);
  round.agreement.Reopen();
  Restart(round, scope, absl::StrCat("worker ", member.id, " joined and has begun the call"));
}

bool Refuse(Round& round, const RoundScope& scope, RoundMember& member, ErrorCode code,
            const std::string& text) {
  Reject(round, scope, member, code, text);
  member.refusal = Error{code, text};
  return RemoveContribution(round, scope, member, ContributionInput::kWithdraw);
}

bool RemoveContribution(Round& round, const RoundScope& scope, RoundMember& member,
                        ContributionInput input) {
  if (!member.contribution.counts()) return false;
  round.PlanAgain();
  // Some members have results of this attempt that were lost since, with its part in them.
  bool reduced = round.attempt.AnyRedone();
  RangeBuilder parked(scope.lane.layout);
  for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) {
    if (!member.contribution.Has(flat)) continue;
    if (round.attempt.IsOpen(flat)) {
      round.attempt.Left(flat);
      parked.Add(flat);
    } else {
      reduced = true;
    }
  }
  // The divisor of a tensor that it skipped may have counted it.
  for (TensorIndex tensor = 0; tensor < scope.lane.layout.version(); ++tensor) {
    if (!member.contribution.Skips(tensor)) continue;
    round.attempt.NoLongerSkipped(tensor);
    for (const uint32_t flat : scope.lane.layout.Chunks(tensor)) {
      reduced |= !round.attempt.IsOpen(flat);
    }
  }
  DiscardParked(round, scope, member.incarnation, parked.Take());
  round.roster.Apply(member, input);
  member.contribution.NoteArrival(scope.now);
  UpdateBlocked(round, scope, member);
  return reduced;
}

void AfterRemoval(Round& round, const RoundScope& scope, bool restart, const std::string& reason) {
  if (restart) {
    Restart(round, scope, reason);
    return;
  }
  if (round.agreement.made()) StartAttemptNow(round, scope);
  Rescan(round, scope);
  Advance(round, scope);
}

void RemoveEarlierLives(Round& round, const RoundScope& scope, const RoundMember& member) {
  for (RoundMember& before : round.roster) {
    if (before.id != member.id || before.incarnation == member.incarnation) continue;
    if (!before.contribution.counts()) continue;
    AddNote(round, scope, NoteKind::kContributionDropped, before.id,
            "Its worker has returned in a new life, which contributes instead.");
    RemoveContribution(round, scope, before, ContributionInput::kDrop);
  }
}

void LeaveOut(Round& round, const RoundScope& scope, Slot slot) {
  RoundMember& member = round.roster.At(slot);
  const bool never = WillNeverMake(scope, member);
  if (member.presence.state() != Presence::kUndecided && !never) return;
  if (never) {
    if (round.phase() == RoundPhase::kIdle) round.Apply(scope, RoundInput::kOpen);
  } else {
    AddNote(round, scope, NoteKind::kContributionWithdrawn, member.id,
            "It joined while the call was open, but waits for another call or value.")
        .cause = NoteCause::kLeftOut;
  }
  KeepAReceiver(round, scope, member);
  // Only a receiver can acknowledge, so this comes before kLeaveOut: it frees the held results.
  AcknowledgeAll(round, scope, member);
  member.reception.OweNothing();
  round.roster.Apply(member, PresenceInput::kLeaveOut);
  const bool prepared = round.phase() == RoundPhase::kPrepared;
  const bool restart =
      !prepared && RemoveContribution(round, scope, member, ContributionInput::kWithdraw);
  UpdateBlocked(round, scope, member);
  if (!prepared) {
    AfterRemoval(round, scope, restart,
                 absl::StrCat("worker ", member.id, " does not make this call"));
  }
}

void Lose(Round& round, const RoundScope& scope, Slot slot, const std::string& reason) {
  RoundMember& member = round.roster.At(slot);
  KeepAReceiver(round, scope, member);
  // Only a receiver can acknowledge, so this comes before kLose: it frees the held results.
  AcknowledgeAll(round, scope, member);
  round.roster.Apply(member, PresenceInput::kLose);
  UpdateBlocked(round, scope, member);
  // The round no longer waits for it, so its progress does not matter.
  member.reception.ForgetFetched();
  member.StartClock(absl::Time());
  round.supplies.Forget(slot);
  if (round.phase() == RoundPhase::kPrepared) {
    AskSupply(round, scope);
    return;
  }
  if (scope.job.loss_policy == LossPolicy::kAbort && round.phase() == RoundPhase::kCollect) {
    if (round.AnyoneAlive()) {
      PrepareAborted(round, scope, AbortCause::kLoss,
                     absl::StrCat("worker ", member.id, " was lost (", reason,
                                  ") and the job's loss policy is abort"));
    }
    return;
  }
  if (!member.contribution.incomplete()) {
    Advance(round, scope);
    return;
  }
  AddNote(round, scope, NoteKind::kContributionDropped, member.id,
          "It was lost before its contribution was effective.");
  const bool restart = RemoveContribution(round, scope, member, ContributionInput::kDrop);
  AfterRemoval(round, scope, restart, absl::StrCat("worker ", member.id, " was lost: ", reason));
}

void Admit(Round& round, const RoundScope& scope, std::vector<RoundMember> joiners) {
  for (RoundMember& joiner : joiners) {
    joiner.StartClock(scope.now);
    joiner.Grow(scope.lane.layout, BytesFrom(scope.lane.layout, scope.lane.shares, 0));
    if (round.phase() == RoundPhase::kPrepared) {
      joiner.reception.HoldNothing();
    } else {
      if (joiner.contribution.counts()) RemoveEarlierLives(round, scope, joiner);
    }
  }
  round.roster.Add(std::move(joiners));
  if (round.phase() == RoundPhase::kPrepared) {
    // The value is fixed; the joiners get its bytes from members that have them.
    ++round.ballot.attempt;
    SendPrepared(round, scope, RoundInput::kPrepareAgain);
    return;
  }
  round.agreement.Reopen();
  if (round.phase() == RoundPhase::kCollect)
    Restart(round, scope, "workers joined while the job was paused");
}

void Reform(Round& round, const RoundScope& scope, std::vector<RoundMember> members) {
  for (RoundMember& member : round.roster) {
    const bool stays = std::any_of(members.begin(), members.end(), [&](const RoundMember& other) {
      return other.incarnation == member.incarnation;
    });
    if (stays || !member.alive()) continue;
    RemoveContribution(round, scope, member, ContributionInput::kDrop);
    round.roster.Apply(member, PresenceInput::kLose);
    UpdateBlocked(round, scope, member);
  }
  std::vector<RoundMember> joiners;
  for (RoundMember& member : members) {
    if (!round.Has(member.slot)) joiners.push_back(std::move(member));
  }
  if (!joiners.empty()) Admit(round, scope, std::move(joiners));
}

OpenRound Describe(const Round& round, const RoundScope& scope, Slot slot) {
  const RoundMember& member = round.roster.At(slot);
  OpenRound open;
  open.lane = scope.index;
  open.round = round.number;
  open.phase = round.phase();
  open.ballot = round.ballot;
  open.window = FlowControl::Least(scope.lane.memory, member, scope.lane.shares);
  if (round.phase() != RoundPhase::kPrepared && member.contribution.have().count() > 0) {
    RangeBuilder have(scope.lane.layout);
    for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) {
      if (member.contribution.Has(flat)) have.Add(flat);
    }
    open.have = have.Take();
  }
  return open;
}

void Resume(Round& round, const RoundScope& scope, Slot slot, const LaneHistory* history) {
  RoundMember& member = round.roster.At(slot);
  SendWindows(round, scope, member);
  member.reception.NoteProgress(scope.now);
  if (history != nullptr && history->last_verdict + 1 == round.number &&
      history->held_ballot == round.value_ballot) {
    uint64_t left = scope.lane.layout.chunks();  // A worker holds no chunk twice.
    for (const ChunkRange& range : history->held) {
      if (!scope.lane.layout.Contains(range)) continue;
      if (range.count > left) break;
      left -= range.count;
      for (const uint32_t flat : scope.lane.layout.Chunks(range)) {
        Acknowledge(round, scope, member, flat);
        if (round.supplies.after_loss()) round.supplies.Got(flat, slot);
      }
    }
  }
  if (member.refusal.has_value()) {
    SendTo(scope, member, Rejected{*member.refusal, scope.index, round.number});
  }
  PublishMissing(round, scope, member);
  round.supplies.ForgetSupplier(slot);
  if (round.phase() == RoundPhase::kPrepared) {
    if (member.staged()) member.reception.StartClock(scope.now);
    round.roster.Apply(member, StagingInput::kPrepare);
    SendPrepared(round, scope, member);
  }
  if (round.pull_mode()) {
    member.asked.ClearAll();  // The requests on the old session may be lost.
    PlanPull(round, scope);
  }
  PumpReduce(round, scope);
}

}  // namespace basin::aggregator
