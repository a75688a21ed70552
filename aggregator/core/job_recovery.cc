// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_recovery.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/footprint.h"
#include "aggregator/core/job_hello.h"
#include "aggregator/core/job_lanes.h"
#include "aggregator/core/job_members.h"
#include "aggregator/core/job_pause.h"
#include "aggregator/core/job_placement.h"
#include "aggregator/core/job_rounds.h"
#include "aggregator/core/job_samples.h"
#include "aggregator/core/round_settle.h"
#include "aggregator/core/spec.h"
#include "aggregator/core/term.h"
#include "protocol/counted.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

// Marks the members that may have joined others which go on: those that were counted in no verdict
// that they remember, if somebody remembers one, and those that lack the state.
void NoteWhoIsOutOfStep(const std::map<WorkerId, Hello>& hellos, const Lanes& lanes,
                        Workers& workers) {
  const bool known = std::any_of(lanes.begin(), lanes.end(),
                                 [](const Lane& lane) { return !lane.verdicts.empty(); });
  for (const auto& [id, hello] : hellos) {
    const std::optional<Slot> slot = workers.Find(id);
    if (!slot.has_value() || !IsMember(workers[*slot])) continue;
    Worker& worker = workers[*slot];
    worker.out_of_step = known || !worker.holds_state;
    for (const LaneHistory& history : hello.lanes) {
      for (const VerdictRecord& record : history.verdicts) {
        if (IsCounted(record.value, id, worker.incarnation)) worker.out_of_step = false;
      }
    }
  }
}

// What the worker reports of samples that contradicts the lanes with which the job continues, as a
// part of a sentence; empty if nothing does.
std::string WhatDiffersInSamples(const Hello& hello, const std::vector<RecoveredLane>& lanes) {
  for (const RecoveredLane& lane : lanes) {
    for (const LaneHistory& history : hello.lanes) {
      if (history.name != lane.name || history.last_verdict != lane.last_verdict ||
          history.chain != lane.chain || history.committed == lane.committed) {
        continue;
      }
      return absl::StrCat(
          "has ", IntervalSet(history.committed.ranges).count(), " samples of epoch ",
          history.committed.epoch.number, " of lane ", lane.name, " as committed after round ",
          lane.last_verdict, ", which the others have with ",
          IntervalSet(lane.committed.ranges).count(), " of epoch ", lane.committed.epoch.number);
    }
  }
  return "";
}

// Takes a term above every term that a worker remembers, and above that of an earlier recovery by
// this process. Lanes and rounds begin anew, so a staged value or a reduction that is still on its
// way must not carry one of their ballots.
void TakeUnusedTerm(Job& job, const JobScope& scope) {
  const Term used = job.evidence.HighestTermAbove(job.generations.Newest().term);
  if (used >= job.term) job.term = TermAbove(used, scope.config.term_random);
}

void StartFresh(Job& job, const JobScope& scope, const std::string& reason) {
  if (!job.Apply(JobInput::kKnowNothing)) return;
  TakeUnusedTerm(job, scope);
  job.forming.Begin(scope.now);
  job.goodput.Resume(scope.now);
  job.evidence.CloseAsNew();
  job.reason = reason;
  AddNote(job, scope, NoteKind::kRecovered, "", absl::StrCat("The run is new: ", reason, "."))
      .cause = NoteCause::kNewRun;
  const std::map<WorkerId, Hello> hellos = job.evidence.held().TakeHellos(scope.memory);
  for (const auto& [id, session] : job.evidence.held().TakeSessions()) {
    Admit(job, scope, session, hellos.at(id));
  }
}

void ApplyRecovery(Job& job, const JobScope& scope, const RecoveryDecision& decision) {
  TakeUnusedTerm(job, scope);
  job.reason = decision.reason;

  const std::set<WorkerId> conflicts(decision.conflicts.begin(), decision.conflicts.end());
  const std::set<WorkerId> members(decision.members.begin(), decision.members.end());
  std::set<Incarnation> incarnations;
  // A client without the feature is here because each of them stood for one trainer, so another
  // number is new and does not hold. Otherwise the two would refuse each other.
  const auto knows_ranks = [&](const WorkerId& id) {
    return (job.evidence.held().Find(id)->features & kFeatureRanks) != 0;
  };
  const bool all_know = std::all_of(members.begin(), members.end(), knows_ranks);
  for (const auto& [id, hello] : job.evidence.held().hellos()) {
    if (conflicts.count(id) > 0) {
      const std::string differs = WhatDiffersInSamples(hello, decision.lanes);
      const std::string text = absl::StrCat(
          "Job ", job.name, ": worker ", id, " ",
          differs.empty()
              ? "has verdicts that are not in the history with which the job continues. Its model "
                "differs"
              : differs,
          ". Restart it; it then loads the state of the other workers.");
      HeldHellos& held = job.evidence.held();
      if (const std::optional<SessionId> session = held.SessionOf(id); session.has_value()) {
        Refuse(job, scope, *session, id, ErrorCode::kLineageConflict, text);
        held.LoseSessionOf(id);
      }
      continue;
    }
    const Slot slot = job.workers.Add(id);
    Worker& worker = job.workers[slot];
    worker.nonce = hello.nonce;
    worker.lost_at = absl::InfiniteFuture();  // Set when the recovery finishes.
    if (members.count(id) == 0) continue;     // It is admitted then, in a new life.
    job.workers.Apply(slot, WorkerInput::kRecover);
    worker.holds_state = !hello.lacks_state;
    worker.ranks = all_know ? hello.ranks : 1;
    worker.knows_ranks = knows_ranks(id);
    worker.knows_samples = (hello.features & kFeatureSamples) != 0;
    worker.knows_steps = (hello.features & kFeatureGlobalBatch) != 0;
    worker.lets_go = (hello.features & kFeatureLetGo) != 0;
    worker.knows_placement = (hello.features & kFeaturePlacement) != 0;
    worker.group = hello.group;
    // An incarnation is part of the key of a contribution, so no two workers may share one.
    const bool keeps =
        !(hello.incarnation == Incarnation{}) && incarnations.insert(hello.incarnation).second;
    worker.incarnation = keeps ? hello.incarnation : job.workers.NextIncarnation(job.term);
  }
  job.generations.Recover(job.term, ListOf(decision.members, job.workers));
  ReviewPlacement(job, scope);

  for (const RecoveredLane& recovered : decision.lanes) {
    Lane& lane = job.lanes.Add(recovered.name, recovered.kind, recovered.lane);
    lane.next = recovered.last_verdict + 1;
    lane.chain = recovered.chain;
    lane.ledger.Recover(recovered.committed);
    lane.last_used = scope.now;
    for (const TensorSpec& spec : recovered.layout) lane.Append(spec);
    PlaceLane(job, lane);
    NameTensorsFrom(job, scope, recovered.lane, 0);
    lane.tracking = TrackingBytes(job.agreed.most_workers(), lane.layout.chunks());
    scope.memory.reserved += lane.tracking + lane.layout_bytes.held;
    for (const VerdictRecord& record : recovered.verdicts) {
      lane.verdicts.push_back(record);
      lane.chains.emplace_back(record.round, record.chain);
      if (record.value.outcome == Outcome::kCommitted) lane.last_spec = AsBegun(record.value.spec);
    }
    const LaneIndex index = recovered.lane;
    for (const auto& [id, hello] : job.evidence.held().hellos()) {
      const std::optional<Slot> slot = job.workers.Find(id);
      if (!slot.has_value() || !IsMember(job.workers[*slot])) continue;
      for (const LaneHistory& history : hello.lanes) {
        if (history.name != lane.name) continue;
        // It is that of an earlier lane of this name.
        if (history.let_go && history.lane < index) continue;
        job.workers[*slot].SeeLayout(index, static_cast<uint32_t>(history.layout.size()));
        job.workers[*slot].NoteRegistered(index);
        if (job.workers[*slot].incarnation != hello.incarnation) continue;
        lane.ledger.Restore(hello.incarnation, id, history);
      }
    }
    // ChargeSamples gives back what is too much, once the round is open again.
    lane.ledger_bytes = LedgerNeed(recovered, job.evidence.held().hellos());
    scope.memory.reserved += lane.ledger_bytes;
  }
  job.evidence.Decided(decision.cause, decision.lanes);
  job.standing.Await(decision.counted);
  if (scope.config.state_file && !job.membership().members.empty()) {
    SavePending(job, scope,
                {PendingChange::Kind::kRecovery, job.membership(), std::nullopt, 0, {}});
    return;
  }
  FinishRecovery(job, scope);
}

}  // namespace

std::string HowToEndHalt(const Job& job) {
  return absl::StrCat(job.reason, ". Bring them back, or run `basinctl recover ", job.name,
                      "` to continue without them.");
}

void EnterRecovery(Job& job, const JobScope& scope, const std::string& reason) {
  EndAllSessions(
      job, scope,
      Error{ErrorCode::kUnavailable, absl::StrCat("Job ", job.name, " recovers: ", reason,
                                                  ". The client reconnects by itself.")});
  // If a worker remembers a run that this aggregator took for new, the list formed here does not
  // count.
  const bool led = job.state() == JobState::kRunning && job.standing.established();
  job.evidence.Begin(scope.now, led ? std::optional(job.membership()) : std::nullopt);
  Forget(job, scope);
  job.Apply(JobInput::kRecover);
  job.goodput.Hold(scope.now);
  job.reason = reason;
  AddNote(job, scope, NoteKind::kRecovering, "", absl::StrCat("Recovering: ", reason, "."));
}

void Forget(Job& job, const JobScope& scope) {
  for (const Lane& lane : job.lanes) {
    if (lane.round.has_value()) {
      scope.actions.push_back(EndRound{job.id, lane.index, lane.round->number});
    }
  }
  ReleaseMemory(job, scope);
  job.blobs.Clear(BlobScopeOf(job, scope));
  job.workers.Clear();
  job.evidence.Forget();
  job.generations.DropPending();
  job.generations.ForgetDonor();
  job.standing.Forget();
  job.forming.Forget();
  if (job.pause.noted()) job.pause.End();
  job.goodput.LeaveAll(scope.now);
}

void RecoverOnceMore(Job& job, const JobScope& scope) {
  if (job.state() != JobState::kRunning) return;
  std::string what;
  for (const WorkerId& id : job.standing.awaited()) {
    const std::optional<Slot> slot = job.workers.Find(id);
    if (slot.has_value() && job.workers[*slot].state != WorkerState::kLost) continue;
    what = absl::StrCat("worker ", id, " was lost before it knew that this aggregator leads");
  }
  for (const Lane& lane : job.lanes) {
    if (!lane.round.has_value() || !lane.round->Orphaned()) continue;
    const Round& round = *lane.round;
    Orphan orphan{lane.name,
                  round.number,
                  job.standing.stands() ? round.ballot : *round.adopted,
                  ExtendChain(lane.chain, round.number, round.value),
                  {}};
    for (const RoundMember& member : round.members()) {
      if (member.holds) orphan.holders.insert(member.id);
    }
    what = Describe(orphan);
    job.evidence.Lose(std::move(orphan));
  }
  if (!what.empty()) EnterRecovery(job, scope, what);
}

void OnPromise(Job& job, const JobScope& scope, const WorkerId& worker) {
  if (!job.standing.Promise(worker, job.settings())) return;
  for (Lane& lane : job.lanes) {
    if (lane.round.has_value()) OnStanding(*lane.round, ScopeOf(job, scope, lane.index));
  }
  job.changed = true;
}

void HoldHello(Job& job, const JobScope& scope, SessionId session, const Hello& received) {
  Hello hello = received;
  if (job.standing.IsVoid(hello.membership.generation)) {
    hello.membership = Membership{};
    hello.lanes.clear();
  }
  HeldHellos& held = job.evidence.held();
  const Hello* before = held.Find(hello.worker);
  if (before == nullptr && held.hellos().size() >= scope.config.max_workers) {
    Refuse(job, scope, session, hello.worker, ErrorCode::kResourceExhausted,
           absl::StrCat("Job ", job.name, " is recovering, and ", held.hellos().size(),
                        " workers have sent a hello, which is its limit (limits.workers)."));
    return;
  }
  const bool keeps_out = held.KeepsOut(hello);
  if (const std::optional<SessionId> other = held.SessionOf(hello.worker); other.has_value()) {
    Refuse(
        job, scope, keeps_out ? session : *other, hello.worker, ErrorCode::kUnavailable,
        absl::StrCat("Job ", job.name, " is recovering, and another process uses the id of worker ",
                     hello.worker, ". The client retries."));
  }
  if (keeps_out) return;
  // The hello of a restarted process replaces that of the process before it, because nobody can
  // supply what the earlier process held. More history makes a decision that is being written down
  // void.
  const bool more = HasHistory(hello) && (before == nullptr || hello.lanes != before->lanes);
  if (held.Hold(scope.memory, session, hello)) {
    if (more && job.generations.IsPending(PendingChange::Kind::kRecovery))
      job.evidence.OnMoreHellos();
  } else {
    Refuse(job, scope, session, hello.worker, ErrorCode::kUnavailable,
           absl::StrCat("Job ", job.name, " is recovering, and the history that worker ",
                        hello.worker, " sent needs ", Footprint::Of(hello), " bytes, but only ",
                        scope.memory.free(), " are free: ", held.bytes(), " of ",
                        scope.memory.total, " hold the histories of ", held.hellos().size(),
                        " other workers. The client retries; give the aggregator more memory."));
  }
  if (job.evidence.MayDecide(scope.config, scope.now, job.state() == JobState::kHalted))
    TryRecover(job, scope);
}

void Take(Job& job, const JobScope& scope, const RecoverJob&) {
  if (job.state() != JobState::kHalted && job.state() != JobState::kRecovering) return;
  job.evidence.Force();
  TryRecover(job, scope);
}

void TryRecover(Job& job, const JobScope& scope) {
  if (job.generations.IsPending(PendingChange::Kind::kRecovery)) return;
  const RecoveryDecision decision =
      job.evidence.Decide(scope.config, job.settings().max_workers, scope.now,
                          job.state() == JobState::kHalted, scope.memory);
  switch (decision.step) {
    case RecoveryStep::kWait:
      job.reason = decision.reason;
      NoteWaiting(job, scope);
      return;
    case RecoveryStep::kHalt:
      if (job.state() != JobState::kHalted || job.reason != decision.reason) {
        job.reason = decision.reason;
        AddNote(job, scope, NoteKind::kHalted, "", absl::StrCat("Halted: ", HowToEndHalt(job)));
      }
      job.Apply(JobInput::kHalt);
      NoteWaiting(job, scope);
      return;
    case RecoveryStep::kFresh:
      StartFresh(job, scope, decision.reason);
      return;
    case RecoveryStep::kRecover:
      ApplyRecovery(job, scope, decision);
      return;
  }
}

void FinishRecovery(Job& job, const JobScope& scope) {
  if (job.evidence.TakeMoreHellos()) {  // The decision lacks what that worker remembers.
    job.workers.Clear();
    job.lanes.Drop(job.id, scope.memory, scope.actions);
    job.evidence.ForgetDecision();
    TryRecover(job, scope);
    return;
  }
  if (!job.Apply(JobInput::kKnow)) return;
  job.evidence.Close();
  job.standing.Recover();
  AddNote(job, scope, NoteKind::kRecovered, "",
          absl::StrCat("Recovered as generation ", ToString(job.membership().generation), " with ",
                       CountOf(job.membership().members.size(), "member"), ": ", job.reason, "."))
      .cause = job.evidence.cause();
  NoteWhoIsOutOfStep(job.evidence.held().hellos(), job.lanes, job.workers);
  for (const RecoveredLane& recovered : job.evidence.lanes()) {
    if (!recovered.adopted.has_value()) continue;
    const LaneIndex index = recovered.lane;
    Lane& lane = job.lanes[index];
    std::vector<RoundMember> members = job.RoundMembers(lane.kind);
    for (RoundMember& member : members) {
      if (member.presence.state() != Presence::kUndecided) continue;
      if (job.evidence.TakesPart(member.id, lane.name, lane.next)) {
        member.presence.Apply(PresenceInput::kTakePart);
      } else {
        member.contribution.Apply(ContributionInput::kWithdraw);
      }
    }
    lane.round.emplace(lane.next, Ballot{job.term, 1}, std::move(members), lane.layout, lane.shares,
                       scope.now);
    std::set<Slot> holders;
    for (const WorkerId& id : recovered.holders) holders.insert(*job.workers.Find(id));
    Adopt(*lane.round, ScopeOf(job, scope, index), *recovered.adopted, holders);
    const std::optional<RoundSamples>& samples = recovered.adopted->value.samples;
    if (samples.has_value()) lane.ledger.Adopt(*samples);
  }
  job.evidence.ForgetDecision();
  const std::map<WorkerId, Hello> hellos = job.evidence.held().TakeHellos(scope.memory);
  for (Lane& lane : job.lanes) {
    ChargeSamples(job, scope, lane);
    if (!lane.expired && lane.layout.version() > 0) PlanMemory(job, scope, lane, lane.index);
  }
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    Worker& worker = job.workers[slot];
    worker.last_message = scope.now;
    worker.lost_at = scope.now + scope.config.lease;
    if (IsMember(worker)) job.goodput.Join(slot, job.goodput.HeldSince(scope.now), false);
  }
  job.goodput.Resume(scope.now);
  // These include workers that came while the decision was written down.
  for (const auto& [id, session] : job.evidence.held().TakeSessions()) {
    if (CheckLineage(job, scope, session, hellos.at(id))) Admit(job, scope, session, hellos.at(id));
  }
  job.reason.clear();
  job.changed = true;
}

}  // namespace basin::aggregator
