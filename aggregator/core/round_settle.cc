// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_settle.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/round_results.h"
#include "aggregator/core/spec.h"
#include "protocol/version.h"

namespace basin::aggregator {
namespace {

void Add(std::optional<uint64_t>& total, const std::optional<uint64_t>& count) {
  if (!count.has_value() || !total.has_value()) {
    total.reset();
  } else {
    *total += *count;
  }
}

RoundFacts Facts(const Round& round, const RoundScope& scope) {
  RoundFacts facts = round.attempt.Facts(scope.lane.layout);
  facts.totals = Counts{0, 0, 0};
  for (const RoundMember& member : round.roster) {
    if (!member.contribution.counts()) continue;
    Add(facts.totals.samples, member.contribution.begin().counts.samples);
    Add(facts.totals.tokens, member.contribution.begin().counts.tokens);
    Add(facts.totals.micro_batches, member.contribution.begin().counts.micro_batches);
  }
  return facts;
}

// The samples that the contributions were computed from.
struct Named {
  IntervalSet positions;
  uint64_t count = 0;  // More than the positions if some are named twice.
};
Named SamplesOf(const Round& round) {
  Named named;
  for (const RoundMember& member : round.roster) {
    if (!member.contribution.counts()) continue;
    const Begin& begin = member.contribution.begin();
    if (!begin.sample_epoch.has_value()) continue;
    named.positions.Add(begin.samples);
    for (const SampleRange& range : begin.samples) named.count += range.size();
  }
  return named;
}

// Each worker is in one contribution, so that the plan is no longer than the list of members; what
// claims otherwise is left out.
void ReportPlan(Round& round, const RoundScope& scope) {
  size_t named = round.value.contributors.size();
  for (const RoundMember& member : round.roster) {
    if (member.contribution.counts()) named += member.contribution.begin().reduced_with.size();
  }
  if (named > scope.config.max_workers) return;
  auto contributor = round.value.contributors.begin();
  for (const RoundMember& member : round.roster) {
    if (!member.contribution.counts()) continue;
    contributor->local_reduction = member.contribution.begin().local_reduction;
    contributor->reduced_with = member.contribution.begin().reduced_with;
    ++contributor;
  }
}

// Returns whether the member may be asked to stage. A joiner that lacks the state must load the
// state before this round. If it staged first, the others could get the verdict, and the joiner
// would load a state that includes this round.
bool MayStage(const Round& round, const RoundScope& scope, const RoundMember& member) {
  if (!member.there() || !scope.job.stands) return false;
  const Worker& worker = scope.job.workers[member.slot];
  // Its client ignores messages about a lane that it has not registered.
  if (!worker.HasRegistered(scope.index)) return false;
  const bool loads = !worker.holds_state && !worker.finishing;
  return !loads || round.value.outcome != Outcome::kCommitted ||
         scope.config.rules.stages_without_state;
}

void PrepareCommitted(Round& round, const RoundScope& scope) {
  RoundValue& value = round.value = RoundValue{};
  value.outcome = Outcome::kCommitted;
  value.spec = Resolve(round.agreement.spec(), round.roster.trainers());
  value.dropped = round.dropped;
  for (const RoundMember& member : round.roster) {
    if (member.late && member.alive()) value.late.push_back(member.id);
  }
  value.late_carries = !value.late.empty() && scope.job.late_policy == LatePolicy::kCarry;
  value.layout_version = scope.lane.layout.version();
  value.generation = scope.job.membership.generation;
  value.world_size = scope.job.membership.members.trainers();
  value.contract_version = kContractVersion;
  for (const RoundMember& member : round.roster) {
    if (!member.contribution.counts()) continue;
    value.contributors.push_back({member.id, member.incarnation, round.agreement.WeightOf(member),
                                  member.contribution.commit().squared_norm,
                                  member.contribution.begin().trainers()});
    if (scope.config.rules.forgets_deferred) continue;
    value.contributors.back().deferred = member.contribution.begin().deferred;
  }
  ReportPlan(round, scope);
  value.divisor = round.agreement.Divisor(round.roster);
  for (TensorIndex tensor = 0; tensor < scope.lane.layout.version(); ++tensor) {
    const uint64_t divisor =
        round.agreement.DivisorOf(round.roster, tensor, round.attempt.Skips(tensor), value.divisor);
    if (divisor != value.divisor) value.tensor_divisors.push_back({tensor, divisor});
    if (divisor == 0) continue;
    for (const uint32_t flat : scope.lane.layout.Chunks(tensor)) {
      value.digest += round.attempt.DigestOf(flat);
    }
  }
  value.facts = Facts(round, scope);
  const Named named = SamplesOf(round);
  if (named.count > 0) value.samples = scope.lane.ledger.Of(named.positions);
  value.decision = DecisionOf(value);
  Note prepared{
      NoteKind::kRoundPrepared,
      scope.job.name,
      "",
      scope.lane.name,
      round.number,
      absl::StrCat("Round ", round.number, " was reduced over ", DescribeContributors(value),
                   ", ballot ", ToString(round.ballot), ".")};
  if (round.straggler.waited()) {
    prepared.waited_for = round.straggler.worker;
    prepared.waited = round.straggler.until - round.straggler.since;
  }
  scope.actions.push_back(std::move(prepared));
  SendPrepared(round, scope, RoundInput::kReduced);
}

// Asks the member to stage if nothing prevents it any more.
void MayStageNow(Round& round, const RoundScope& scope, RoundMember& member) {
  if (round.phase() != RoundPhase::kPrepared || member.sent_prepared()) return;
  member.reception.StartClock(scope.now);
  member.named_late = false;
  SendPrepared(round, scope, member);
}

}  // namespace

void SendPrepared(Round& round, const RoundScope& scope, RoundInput input) {
  if (!round.Apply(scope, input)) return;
  round.held.NoteRoom();
  SendAll all;
  const bool aborted = round.value.outcome == Outcome::kAborted;
  for (RoundMember& member : round.roster) {
    // An aborted round has nothing left to take part in.
    if (aborted && member.presence.state() == Presence::kUndecided) {
      round.roster.Apply(member, PresenceInput::kLeaveOut);
    }
    round.roster.Apply(member, StagingInput::kPrepare);
    member.StartClock(scope.now);
    member.reception.ForgetFetched();
    member.named_late = false;
    if (!MayStage(round, scope, member)) continue;
    round.roster.Apply(member, StagingInput::kAsk);
    const Worker& worker = scope.job.workers[member.slot];
    if (!member.alive() || !worker.connected()) continue;
    all.sessions.push_back(*worker.session);
  }
  if (all.sessions.empty()) return;
  all.message = Prepared{scope.index, round.number, round.ballot, round.value_ballot, round.value};
  scope.actions.push_back(std::move(all));
}

void TryPrepare(Round& round, const RoundScope& scope) {
  if (round.phase() != RoundPhase::kCollect || !round.AnyoneAlive()) return;
  // In a pause, the next worker that joins would otherwise make this call alone.
  if (round.roster.there() == 0) {
    PrepareAborted(round, scope, AbortCause::kNoContributor,
                   "no worker that takes part in the call is left");
    return;
  }
  if (scope.paused) return;
  if (round.roster.contributors() == 0) {
    PrepareAborted(round, scope, AbortCause::kNoContributor, "no contributor is left");
    return;
  }
  if (!round.agreement.made() || round.roster.effective() < round.roster.contributors() ||
      !round.attempt.idle())
    return;
  const Named named = SamplesOf(round);
  const std::string why_not = scope.lane.ledger.WhyNotCommit(named.positions, named.count);
  if (!why_not.empty() && !scope.config.rules.commits_parts_of_steps) {
    PrepareAborted(round, scope, AbortCause::kStepAgain, why_not);
    return;
  }
  PrepareCommitted(round, scope);
}

void PrepareAborted(Round& round, const RoundScope& scope, AbortCause cause,
                    const std::string& reason) {
  RoundValue& value = round.value = RoundValue{};
  value.outcome = Outcome::kAborted;
  value.reason = reason;
  value.abort_cause = cause;
  value.layout_version = scope.lane.layout.version();
  value.decision = DecisionOf(value);
  round.attempt.Stop();
  round.held.Clear();
  for (RoundMember& member : round.roster) member.contribution.ForgetParked();
  AddNote(round, scope, NoteKind::kRoundPrepared, "",
          absl::StrCat("Round ", round.number, " will be aborted: ", reason, "."));
  SendPrepared(round, scope, RoundInput::kAbort);
}

void EndDeadlock(Round& round, const RoundScope& scope, const std::string& reason) {
  for (RoundMember& member : round.roster) {
    // Its trainer waits elsewhere and may never register this lane.
    const bool knows =
        member.contribution.begun() || scope.job.workers[member.slot].HasRegistered(scope.index);
    if (knows || !member.receives()) continue;
    round.roster.Apply(member, PresenceInput::kLeaveOut);
  }
  PrepareAborted(round, scope, AbortCause::kDeadlock, reason);
}

void SendPrepared(Round& round, const RoundScope& scope, RoundMember& member) {
  if (!MayStage(round, scope, member)) return;
  round.roster.Apply(member, StagingInput::kAsk);
  SendTo(scope, member,
         Prepared{scope.index, round.number, round.ballot, round.value_ballot, round.value});
}

void OnRegistered(Round& round, const RoundScope& scope, Slot slot) {
  if (round.phase() != RoundPhase::kPrepared) return;
  RoundMember& member = round.roster.At(slot);
  member.reception.StartClock(scope.now);
  member.named_late = false;
  SendPrepared(round, scope, member);
}

void OnState(Round& round, const RoundScope& scope, Slot slot) {
  MayStageNow(round, scope, round.roster.At(slot));
}

void OnStanding(Round& round, const RoundScope& scope) {
  for (RoundMember& member : round.roster) {
    if (member.alive()) MayStageNow(round, scope, member);
  }
}

void OnStaged(Round& round, const RoundScope& scope, Slot slot, const Staged& staged) {
  if (round.phase() != RoundPhase::kPrepared || !(staged.ballot == round.ballot)) return;
  RoundMember& member = round.roster.At(slot);
  round.roster.Apply(member, StagingInput::kStage);
  member.holds = true;
  member.reception.ForgetFetched();
  member.StartClock(scope.now);
  if (!member.reception.HasAll()) AcknowledgeAll(round, scope, member);
  if (round.supplies.after_loss()) round.supplies.Forget(slot);
  AskSupply(round, scope);
}

void Adopt(Round& round, const RoundScope& scope, const StagedValue& staged,
           const std::set<Slot>& holders) {
  if (!round.Apply(scope, RoundInput::kAdopt)) return;
  round.adopted = staged.ballot;
  round.value_ballot = staged.value_ballot;
  round.value = staged.value;
  for (RoundMember& member : round.roster) {
    member.holds = holders.count(member.slot) > 0;
    // Resume sends Prepared on its next session.
    if (MayStage(round, scope, member)) round.roster.Apply(member, StagingInput::kAsk);
  }
  AddNote(round, scope, NoteKind::kRoundPrepared, "",
          absl::StrCat("Round ", round.number, " was staged at ballot ", ToString(staged.ballot),
                       " and is prepared again at ", ToString(round.ballot), "."));
}

}  // namespace basin::aggregator
