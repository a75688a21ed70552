// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_members.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job_goodput.h"
#include "aggregator/core/job_hello.h"
#include "aggregator/core/job_lanes.h"
#include "aggregator/core/job_pause.h"
#include "aggregator/core/job_placement.h"
#include "aggregator/core/job_recovery.h"
#include "aggregator/core/job_rounds.h"
#include "aggregator/core/job_samples.h"
#include "aggregator/core/job_settings.h"
#include "aggregator/core/names.h"
#include "aggregator/core/round_members.h"

namespace basin::aggregator {
namespace {

// The note of a generation names at most this many workers, because thousands of notes are kept.
constexpr size_t kNamedMembers = 64;

// Changes the members outside a verdict. With a state file, the list is written down first.
void RequestChange(Job& job, const JobScope& scope, const Membership& next,
                   std::optional<WorkerId> donor) {
  if (job.generations.pending().has_value()) return;  // Reconcile looks again after that change.
  if (!scope.config.state_file) {
    ApplyChange(job, scope, next, donor);
    return;
  }
  SavePending(job, scope, {PendingChange::Kind::kMembers, next, std::move(donor), 0, {}});
}

// Changes the members if the change need not wait for a verdict.
void ReconsiderMembers(Job& job, const JobScope& scope) {
  if (job.state() != JobState::kRunning) return;
  const Membership next = job.NextMembership(!scope.draining);
  if (next == job.membership()) return;
  // A change cannot wait: before the first round a verdict may never come, and none will come after
  // every member has finished.
  if (!job.lanes.AnyRoundEver() || (!job.HasOpenRound() && NobodyGoesOn(job.workers))) {
    RequestChange(job, scope, next, job.DonorFor(next));
  } else if (job.Present() < job.settings().min_workers) {
    // No member leaves in a pause; drained and finished workers leave at the next verdict.
    const Membership all = job.NextMembership(!scope.draining, true);
    const bool enough = all.members.size() + job.workers.Finished() >= job.settings().min_workers;
    if (enough && all != job.membership()) RequestChange(job, scope, all, job.DonorFor(all));
  }
}

void TryForm(Job& job, const JobScope& scope) {
  if (job.state() != JobState::kForming || scope.draining) return;
  const uint32_t least = std::min(job.forming.Least(job.settings()), job.settings().max_workers);
  if (job.workers.Count(WorkerState::kCandidate) + job.workers.Count(WorkerState::kSpare) < least)
    return;
  const Membership next{job.generations.Next(job.term),
                        FirstMembers(job.workers, job.settings().max_workers)};
  if (next.members.size() < least || next.members.empty()) return;
  if (!job.Apply(JobInput::kForm)) return;
  job.reason.clear();
  job.standing.Form(next.generation);
  NoteLatePolicy(job, scope);
  RequestChange(job, scope, next, ChooseFirstDonor(next.members, job.workers));
}

// A round that has received only frames and no begin is not open, so the members of the new
// generation replace its members.
void ReformIdleRounds(Job& job, const JobScope& scope) {
  for (Lane& lane : job.lanes) {
    if (!lane.round.has_value() || lane.Open()) continue;
    Reform(*lane.round, ScopeOf(job, scope, lane.index), job.RoundMembers(lane.kind));
    if (lane.round->AnyoneAlive()) continue;
    scope.actions.push_back(EndRound{job.id, lane.index, lane.round->number});
    lane.round.reset();
  }
}

// While a member lacks the state, no round can commit, so no verdict may come that names a new
// donor in place of a lost one. The job therefore names it at once, without a change of members.
void ReplaceDonor(Job& job, const JobScope& scope) {
  if (DonorServes(job.generations.donor(), job.workers) || !AnyMemberLacksState(job.workers))
    return;
  job.generations.NameDonor(job.DonorFor(job.membership()));
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    if (!IsMember(job.workers[slot])) continue;
    SendTo(job, scope, slot,
           MembershipChanged{job.membership(), Role::kMember, job.generations.donor(), {}});
  }
}

// The remaining members joined and lost their donor before they had its state, so they would wait
// for it for ever. They must rejoin with a state of their own.
void ReleaseStateless(Job& job, const JobScope& scope) {
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    if (!IsMember(job.workers[slot])) continue;
    Lose(job, scope, slot, NoteKind::kWorkerLost,
         "has no state, and no worker is left that could serve it",
         Error{ErrorCode::kEvicted,
               absl::StrCat("Worker ", job.workers[slot].id, " of job ", job.name,
                            " joined, but all workers that had the state were lost before it could "
                            "load it. Rejoin with the state of a checkpoint; no restart needed.")});
  }
}

// No worker that holds the state is left. Open rounds are aborted, although nobody receives the
// verdict, and the next workers start from their own state.
void EndLineage(Job& job, const JobScope& scope) {
  if (!job.Apply(JobInput::kEndLineage)) return;
  const bool others_are_here = job.workers.Count(WorkerState::kAdmitted) > 0 ||
                               job.workers.Count(WorkerState::kCandidate) > 0 ||
                               job.workers.Count(WorkerState::kSpare) > 0;
  const bool ended_well = job.forming.EndLineage(scope.now, others_are_here);
  job.generations.DropPending();
  for (Lane& lane : job.lanes) {
    if (lane.round.has_value()) {
      if (lane.Open()) {
        VerdictRecord record;
        record.round = lane.round->number;
        record.ballot = record.value_ballot = lane.round->ballot;
        record.value.outcome = Outcome::kAborted;
        record.value.reason = "every member was lost";
        record.next = job.membership();
        record.chain = ExtendChain(lane.chain, record.round, record.value);
        scope.actions.push_back(Note{NoteKind::kRoundAborted, job.name, "", lane.name, record.round,
                                     "Every member was lost."});
        ++job.rounds.aborted;
        if (lane.kind == LaneKind::kGradient) {
          job.goodput.End(TimesOf(*lane.round, record, scope.now));
        }
        lane.Remember(std::move(record), scope.now, scope.memory);
      }
      scope.actions.push_back(EndRound{job.id, lane.index, lane.round->number});
      lane.round.reset();
    }
    PlaceLane(job, lane);
    lane.StartLineage(job.membership().generation.counter, scope.memory);
    ChargeSamples(job, scope, lane);
  }
  DropCached(job, scope);  // Versions count on, and may now name other content.
  // Workers that finished take no part in the new lineage.
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    job.workers.SetStillCounts(slot, false);
    if (job.workers[slot].state == WorkerState::kLost) job.workers[slot].finishing = false;
    if (job.workers[slot].state == WorkerState::kFinished) {
      job.workers.Apply(slot, WorkerInput::kNewLineage);
    }
  }
  job.standing.EndLineage();
  job.reason = job.over() ? "its workers have finished"
               : ended_well
                   ? "its workers have finished; waits for workers that can start from their "
                     "own state"
                   : "no worker with state is left; waits for workers that can start from "
                     "their own state";
  AddNote(
      job, scope, NoteKind::kNewLineage, "",
      absl::StrCat(ended_well ? "All workers have finished or left."
                              : "No worker with the state of the past rounds is left.",
                   " The next workers start from their own states; if these differ, all load the "
                   "one with the highest step."));
  // Writes an empty list, so that the next aggregator does not wait for finished workers.
  if (ended_well && scope.config.state_file && !job.membership().members.empty()) {
    const Membership nobody{job.generations.Next(job.term), {}};
    job.generations.Write(nobody.generation, scope.now + scope.config.lease);
    Save(job, scope, nobody);
  }
}

// Members were lost, or a list that was written is not used. A member must have the job's state,
// and those that lack it must know which worker sends it.
void RepairLineage(Job& job, const JobScope& scope) {
  if (job.state() != JobState::kRunning ||
      job.generations.IsPending(PendingChange::Kind::kMembers)) {
    return;
  }
  if (job.workers.Count(WorkerState::kMember) == 0) {
    EndLineage(job, scope);
  } else if (!AnyMemberHoldsState(job.workers) &&
             !DonorServes(job.generations.donor(), job.workers)) {
    ReleaseStateless(job, scope);
  } else {
    ReplaceDonor(job, scope);
  }
}

}  // namespace

void OnReady(Job& job, const JobScope& scope, Slot slot, const Ready& ready) {
  Worker& worker = job.workers[slot];
  if (worker.state != WorkerState::kAdmitted) return;  // It was repeated on a new session.
  worker.step_label = ready.step_label;
  worker.state_hash = ready.state_hash;
  worker.ready_order = job.workers.NextReadyOrder();
  worker.ready_since = scope.now;
  worker.joins_alone = false;
  job.BeginAnew();
  const uint32_t taken =
      job.workers.Count(WorkerState::kMember) + job.workers.Count(WorkerState::kCandidate);
  const bool room = taken < job.settings().max_workers;
  job.workers.Apply(slot, room ? WorkerInput::kReady : WorkerInput::kFindFull);
  AddNote(job, scope, room ? NoteKind::kWorkerReady : NoteKind::kWorkerSpare, worker.id,
          room ? "Ready."
               : absl::StrCat("Spare: the job has its ", job.settings().max_workers,
                              " workers (max_workers)."));
  if (!room)
    SendTo(job, scope, slot, MembershipChanged{job.membership(), Role::kSpare, std::nullopt, {}});
  job.changed = true;
}

void Reconcile(Job& job, const JobScope& scope) {
  while (std::exchange(job.changed, false)) {
    RecoverOnceMore(job, scope);
    RepairLineage(job, scope);
    if (job.changed) continue;  // The steps below are for the workers that are left.
    TryForm(job, scope);
    ReconsiderMembers(job, scope);
    if (job.changed) continue;
    NoteWaiting(job, scope);
    ReviewPause(job, scope);
    AdvanceAll(job, scope);
  }
  if (job.lanes.TakeFewerKnow()) DropNames(job, scope);
  // Other jobs need the memory of a job that is remembered only to show how it ended. Nobody is
  // connected who knows a window of its lanes.
  if (job.state() == JobState::kForming && job.Idle() && !job.HasOpenRound()) {
    job.lanes.ExpireAll(job.id, scope.memory, scope.actions);
  }
}

void ApplyChange(Job& job, const JobScope& scope, const Membership& next,
                 const std::optional<WorkerId>& donor) {
  Activate(job, scope, next, donor, true);
  // The new members join the rounds that the pause held up.
  for (Lane& lane : job.lanes) {
    if (!lane.round.has_value()) continue;
    std::vector<RoundMember> joiners;
    for (RoundMember& member : job.RoundMembers(lane.kind)) {
      if (lane.round->Has(member.slot)) continue;
      const bool fixed = lane.round->phase() == RoundPhase::kPrepared;
      if (member.presence.state() == Presence::kUndecided && fixed) {
        member.contribution.Apply(ContributionInput::kWithdraw);
      }
      joiners.push_back(std::move(member));
    }
    if (!joiners.empty()) {
      Admit(*lane.round, ScopeOf(job, scope, lane.index), std::move(joiners));
    }
  }
  job.changed = true;
}

void StopWaitingForGroups(Job& job, const JobScope& scope) {
  const std::vector<Slot> waiting = CandidatesOf(job.workers).waiting;
  for (const Slot slot : waiting) {
    Worker& worker = job.workers[slot];
    if (scope.now < worker.ready_since + scope.config.group_timeout) continue;
    worker.joins_alone = true;
    job.changed = true;
    AddNote(job, scope, NoteKind::kWorkerReady, worker.id,
            absl::StrCat("It joins without its group ", worker.group.name, ": not all ",
                         worker.group.size, " workers of it have come within ",
                         absl::FormatDuration(scope.config.group_timeout), "."))
        .cause = NoteCause::kJoinsAlone;
  }
}

void Activate(Job& job, const JobScope& scope, const Membership& next,
              const std::optional<WorkerId>& donor, bool to_members) {
  job.generations.Activate(next, donor);
  job.forming.NoteLoss(next.members.empty());  // The last members have finished, or they drain.
  std::set<WorkerId> members(next.members.begin(), next.members.end());
  const bool others_go_on = std::any_of(members.begin(), members.end(), [&](const WorkerId& id) {
    const std::optional<Slot> slot = job.workers.Find(id);
    return slot.has_value() && IsMember(job.workers[*slot]);
  });
  const std::string names = next.members.empty() ? "nobody" : NamesOf(next.members, kNamedMembers);
  AddNote(job, scope, NoteKind::kGeneration, "",
          absl::StrCat("Generation ", ToString(next.generation), ": ", names, "."))
      .membership = next;
  bool joined = false;
  for (const auto& [id, slot] : job.workers.by_id()) {
    Worker& worker = job.workers[slot];
    if (worker.state == WorkerState::kLost) continue;
    const bool was_member = IsMember(worker);
    const bool is_member = members.count(id) > 0;
    joined |= is_member && !was_member;
    if (is_member) {
      if (!job.workers.Apply(slot, WorkerInput::kChoose)) continue;
      if (was_member && !to_members) continue;
      if (!was_member) {
        worker.member_since = next.generation;
        job.goodput.Join(slot, scope.now, others_go_on);
        worker.out_of_step = others_go_on;
        worker.holds_state = !donor.has_value() || donor == id;
      }
      SendTo(
          job, scope, slot,
          MembershipChanged{job.membership(), Role::kMember, donor,
                            was_member ? std::vector<StartRound>{} : StartRoundsFor(job, worker)});
      continue;
    }
    if (was_member) {
      job.workers.Apply(slot, worker.finishing ? WorkerInput::kFinish : WorkerInput::kLeaveOut);
      ReturnAllSamples(job, scope, slot);
      job.goodput.Leave(slot, scope.now);
    }
    const Role role = worker.state == WorkerState::kSpare ? Role::kSpare : Role::kJoiner;
    SendTo(job, scope, slot, MembershipChanged{job.membership(), role, std::nullopt, {}});
  }
  if (joined) job.workers.LimitStillCounting(job.settings().min_workers);
  ReformIdleRounds(job, scope);
  ReviewPlacement(job, scope);
  job.lanes.FewerKnow();  // Those that were lost, and are in the list no more.
}

void Lose(Job& job, const JobScope& scope, Slot slot, NoteKind kind, const std::string& reason,
          const Error& error) {
  Worker& worker = job.workers[slot];
  if (worker.state == WorkerState::kLost) return;
  // A worker that has run out of data still counts for min_workers when it exits.
  const bool was_member = IsMember(worker);
  const bool took_part = was_member || worker.state == WorkerState::kFinished;
  worker.finishing &= took_part;
  job.workers.Apply(slot, WorkerInput::kLose);
  if (worker.finishing) {
    job.workers.SetStillCounts(slot, true);
    job.workers.LimitStillCounting(job.settings().min_workers);
  }
  worker.left = kind == NoteKind::kWorkerLeft;
  if (was_member) job.forming.NoteLoss(worker.left || worker.finishing);
  // A script that raises an error leaves, too.
  const bool fruitless = was_member && worker.out_of_step && !worker.finishing;
  if (fruitless && scope.config.fruitless_joins > 0) worker.joins.AddFruitless(scope.now, reason);
  AddNote(job, scope, kind, worker.id, absl::StrCat("Worker ", worker.id, " ", reason, "."));
  if (worker.connected()) {
    scope.sessions.erase(*worker.session);
    scope.actions.push_back(EndSession{*worker.session, error});
    worker.session.reset();
  }
  job.blobs.Lose(BlobScopeOf(job, scope), slot);
  job.goodput.Lose(LossOf(job, slot, scope.now), scope.now);
  ForRoundsOf(job, scope, slot,
              [&](Round& round, const RoundScope& in) { Lose(round, in, slot, reason); });
  ReturnAllSamples(job, scope, slot);
  if (!worker.knows_placement) ReviewPlacement(job, scope);  // It may have been the last of these.
  job.lanes.FewerKnow();
  job.changed = true;
  job.forget_when_idle = false;
  if (job.Idle()) job.idle_since = scope.now;
}

void Evict(Job& job, const JobScope& scope, Slot slot, const std::string& reason) {
  Lose(job, scope, slot, NoteKind::kWorkerLost, reason,
       Error{ErrorCode::kEvicted, absl::StrCat("Worker ", job.workers[slot].id, " of job ",
                                               job.name, " ", reason, ". Rejoin with state.")});
}

void Take(Job& job, const JobScope& scope, const EvictWorker& evict) {
  const std::optional<Slot> slot = job.workers.Find(evict.worker);
  if (slot.has_value()) Evict(job, scope, *slot, absl::StrCat("was evicted: ", evict.reason));
}

void Take(Job& job, const JobScope& scope, const WorkerExited& exited) {
  const std::optional<Slot> slot = job.workers.Find(exited.worker);
  if (!slot.has_value()) return;
  // A newer process may have taken the id since the launcher saw the end.
  if (exited.nonce != 0 && job.workers[*slot].nonce != exited.nonce) return;
  Evict(job, scope, *slot, "has exited");
  // No process comes back that remembers them.
  job.workers[*slot].registered.clear();
  job.lanes.FewerKnow();
}

void Take(Job& job, const JobScope& scope, const DrainWorker& drain) {
  const std::optional<Slot> slot = job.workers.Find(drain.worker);
  if (!slot.has_value() || job.workers[*slot].state == WorkerState::kLost) return;
  job.workers[*slot].draining = true;
  AddNote(job, scope, NoteKind::kDraining, drain.worker,
          "It is draining, and the next generation does not include it.");
  SendTo(job, scope, *slot, Drain{false});
  job.changed = true;
}

void SendDraining(Job& job, const JobScope& scope) {
  for (Slot slot = 0; slot < job.workers.size(); ++slot) SendTo(job, scope, slot, Drain{true});
}

void EndAllSessions(Job& job, const JobScope& scope, const Error& error) {
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    Worker& worker = job.workers[slot];
    if (!worker.connected()) continue;
    scope.sessions.erase(*worker.session);
    scope.actions.push_back(EndSession{*worker.session, error});
    worker.session.reset();
    worker.lost_at = scope.now + scope.config.lease;
    job.blobs.ForgetRequests(BlobScopeOf(job, scope), slot);
  }
  for (const auto& [id, session] : job.evidence.held().TakeSessions()) {
    scope.sessions.erase(session);
    scope.actions.push_back(EndSession{session, error});
  }
}

}  // namespace basin::aggregator
