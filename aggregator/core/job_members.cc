// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// When the members of a job change: genesis, joins, losses, pauses and new lineages.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job.h"
#include "aggregator/core/names.h"

namespace basin::aggregator {
namespace {

// The note of a generation names at most this many workers, because thousands of notes are kept.
constexpr size_t kNamedMembers = 64;

}  // namespace

void Job::OnReady(const JobScope& scope, Slot slot, const Ready& ready) {
  Worker& worker = workers_[slot];
  if (worker.state != WorkerState::kAdmitted) return;  // It was repeated on a new session.
  worker.step_label = ready.step_label;
  worker.state_hash = ready.state_hash;
  worker.ready_order = workers_.NextReadyOrder();
  worker.ready_since = scope.now;
  worker.joins_alone = false;
  BeginAnew();
  const uint32_t taken =
      workers_.Count(WorkerState::kMember) + workers_.Count(WorkerState::kCandidate);
  const bool room = taken < settings().max_workers;
  workers_.Apply(slot, room ? WorkerInput::kReady : WorkerInput::kFindFull);
  AddNote(scope, room ? NoteKind::kWorkerReady : NoteKind::kWorkerSpare, worker.id,
          room ? "Ready."
               : absl::StrCat("Spare: the job has its ", settings().max_workers,
                              " workers (max_workers)."));
  if (!room) SendTo(scope, slot, MembershipChanged{membership(), Role::kSpare, std::nullopt, {}});
  changed_ = true;
}

// A worker has come to a job that may be over.
void Job::BeginAnew() {
  const bool was_over = over();
  forming_.BeginAnew();
  if (was_over) reason_ = "waits for workers that can start from their own state";
}

void Job::Reconcile(const JobScope& scope) {
  while (std::exchange(changed_, false)) {
    RecoverOnceMore(scope);
    RepairLineage(scope);
    if (changed_) continue;  // The steps below are for the workers that are left.
    TryForm(scope);
    ReconsiderMembers(scope);
    if (changed_) continue;
    NoteWaiting(scope);
    ReviewPause(scope);
    AdvanceAll(scope);
  }
  // Other jobs need the memory of a job that is remembered only to show how it ended. Nobody is
  // connected who knows a window of its lanes.
  if (state() == JobState::kForming && Idle() && !HasOpenRound()) {
    lanes_.ExpireAll(id_, scope.memory, scope.actions);
  }
}

// Changes the members if the change need not wait for a verdict.
void Job::ReconsiderMembers(const JobScope& scope) {
  if (state() != JobState::kRunning) return;
  const Membership next = NextMembership(!scope.draining);
  if (next == membership()) return;
  // A change cannot wait: before the first round a verdict may never come, and none will come after
  // every member has finished.
  if (!lanes_.AnyRoundEver() || (!HasOpenRound() && NobodyGoesOn(workers_))) {
    RequestChange(scope, next, DonorFor(next));
  } else if (Present() < settings().min_workers) {
    // No member leaves in a pause; drained and finished workers leave at the next verdict.
    const Membership all = NextMembership(!scope.draining, true);
    const bool enough = all.members.size() + workers_.Finished() >= settings().min_workers;
    if (enough && all != membership()) RequestChange(scope, all, DonorFor(all));
  }
}

void Job::TryForm(const JobScope& scope) {
  if (state() != JobState::kForming || scope.draining) return;
  const uint32_t least = std::min(forming_.Least(settings()), settings().max_workers);
  if (workers_.Count(WorkerState::kCandidate) + workers_.Count(WorkerState::kSpare) < least) return;
  const Membership next{generations_.Next(term_), FirstMembers(workers_, settings().max_workers)};
  if (next.members.size() < least || next.members.empty()) return;
  if (!Apply(JobInput::kForm)) return;
  reason_.clear();
  standing_.Form(next.generation);
  RequestChange(scope, next, ChooseFirstDonor(next.members, workers_));
}

Membership Job::NextMembership(bool admit, bool keep_all) const {
  return generations_.Choose(workers_, {admit, keep_all, settings().max_workers}, term_);
}

std::optional<WorkerId> Job::DonorFor(const Membership& next) const {
  return generations_.DonorFor(next, workers_, lanes_.AnyRoundEver());
}

// Changes the members outside a verdict. With a state file, the list is written down first.
void Job::RequestChange(const JobScope& scope, const Membership& next,
                        std::optional<WorkerId> donor) {
  if (generations_.pending().has_value()) return;  // Reconcile looks again after that change.
  if (!scope.config.state_file) {
    ApplyChange(scope, next, donor);
    return;
  }
  SavePending(scope, {PendingChange::Kind::kMembers, next, std::move(donor), 0, {}});
}

void Job::ApplyChange(const JobScope& scope, const Membership& next,
                      const std::optional<WorkerId>& donor) {
  Activate(scope, next, donor, true);
  // The new members join the rounds that the pause held up.
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (!lane.round.has_value()) continue;
    std::vector<RoundMember> joiners;
    for (RoundMember& member : RoundMembers(lane.kind)) {
      if (lane.round->Has(member.slot)) continue;
      const bool fixed = lane.round->phase() == RoundPhase::kPrepared;
      if (member.presence.state() == Presence::kUndecided && fixed) {
        member.contribution.Apply(ContributionInput::kWithdraw);
      }
      joiners.push_back(std::move(member));
    }
    if (!joiners.empty()) lane.round->Admit(ScopeOf(scope, i), std::move(joiners));
  }
  changed_ = true;
}

// Ready workers that have waited long enough for the others of their groups.
void Job::StopWaitingForGroups(const JobScope& scope) {
  const std::vector<Slot> waiting = CandidatesOf(workers_).waiting;
  for (const Slot slot : waiting) {
    Worker& worker = workers_[slot];
    if (scope.now < worker.ready_since + scope.config.group_timeout) continue;
    worker.joins_alone = true;
    changed_ = true;
    AddNote(scope, NoteKind::kWorkerReady, worker.id,
            absl::StrCat("It joins without its group ", worker.group.name, ": not all ",
                         worker.group.size, " workers of it have come within ",
                         absl::FormatDuration(scope.config.group_timeout), "."))
        .cause = NoteCause::kJoinsAlone;
  }
}

// Makes `next` the membership and sends it to the workers that do not receive it with a verdict.
void Job::Activate(const JobScope& scope, const Membership& next,
                   const std::optional<WorkerId>& donor, bool tell_members) {
  generations_.Activate(next, donor);
  forming_.NoteGone(next.members.empty());  // The last members have finished, or they drain.
  std::set<WorkerId> members(next.members.begin(), next.members.end());
  const bool others_go_on = std::any_of(members.begin(), members.end(), [&](const WorkerId& id) {
    const std::optional<Slot> slot = workers_.Find(id);
    return slot.has_value() && IsMember(workers_[*slot]);
  });
  const std::string names = next.members.empty() ? "nobody" : NamesOf(next.members, kNamedMembers);
  AddNote(scope, NoteKind::kGeneration, "",
          absl::StrCat("Generation ", ToString(next.generation), ": ", names, "."))
      .membership = next;
  bool joined = false;
  for (const auto& [id, slot] : workers_.by_id()) {
    Worker& worker = workers_[slot];
    if (worker.state == WorkerState::kLost) continue;
    const bool was_member = IsMember(worker);
    const bool is_member = members.count(id) > 0;
    joined |= is_member && !was_member;
    if (is_member) {
      if (!workers_.Apply(slot, WorkerInput::kChoose)) continue;
      if (was_member && !tell_members) continue;
      if (!was_member) {
        worker.member_since = next.generation;
        worker.out_of_step = others_go_on;
        worker.holds_state = !donor.has_value() || donor == id;
      }
      SendTo(scope, slot,
             MembershipChanged{membership(), Role::kMember, donor,
                               was_member ? std::vector<StartRound>{} : lanes_.StartRounds()});
      continue;
    }
    if (was_member) {
      workers_.Apply(slot, worker.finishing ? WorkerInput::kFinish : WorkerInput::kLeaveOut);
    }
    const Role role = worker.state == WorkerState::kSpare ? Role::kSpare : Role::kJoiner;
    SendTo(scope, slot, MembershipChanged{membership(), role, std::nullopt, {}});
  }
  if (joined) workers_.LimitStillCounting(settings().min_workers);
  ReformIdleRounds(scope);
}

// A round that has received only frames and no begin is not open, so the members of the new
// generation replace its members.
void Job::ReformIdleRounds(const JobScope& scope) {
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (!lane.round.has_value() || lane.Open()) continue;
    lane.round->Reform(ScopeOf(scope, i), RoundMembers(lane.kind));
    if (lane.round->AnyoneAlive()) continue;
    scope.actions.push_back(EndRound{id_, i, lane.round->number()});
    lane.round.reset();
  }
}

// Removes a lost worker from every open round and from the members in one step.
void Job::Lose(const JobScope& scope, Slot slot, NoteKind kind, const std::string& reason,
               const Error& error) {
  Worker& worker = workers_[slot];
  if (worker.state == WorkerState::kLost) return;
  // A worker that has run out of data still counts for min_workers when it exits.
  const bool was_member = IsMember(worker);
  const bool took_part = was_member || worker.state == WorkerState::kFinished;
  worker.finishing &= took_part;
  workers_.Apply(slot, WorkerInput::kLose);
  if (worker.finishing) {
    workers_.SetStillCounts(slot, true);
    workers_.LimitStillCounting(settings().min_workers);
  }
  worker.left = kind == NoteKind::kWorkerLeft;
  if (was_member) forming_.NoteGone(worker.left || worker.finishing);
  AddNote(scope, kind, worker.id, absl::StrCat("Worker ", worker.id, " ", reason, "."));
  if (worker.connected()) {
    scope.sessions.erase(*worker.session);
    scope.actions.push_back(EndSession{*worker.session, error});
    worker.session.reset();
  }
  values_.Lose(ValuesScope(scope), slot);
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].round.has_value() && lanes_[i].round->Has(slot)) {
      lanes_[i].round->Lose(ScopeOf(scope, i), slot, reason);
    }
  }
  changed_ = true;
  forget_when_idle_ = false;
  if (Idle()) idle_since_ = scope.now;
}

// Members were lost, or a list that was written is not used. A member must have the job's state,
// and those that lack it must know which worker sends it.
void Job::RepairLineage(const JobScope& scope) {
  if (state() != JobState::kRunning || generations_.IsPending(PendingChange::Kind::kMembers)) {
    return;
  }
  if (workers_.Count(WorkerState::kMember) == 0) {
    EndLineage(scope);
  } else if (!AnyMemberHoldsState(workers_) && !DonorServes(generations_.donor(), workers_)) {
    ReleaseStateless(scope);
  } else {
    ReplaceDonor(scope);
  }
}

// While a member lacks the state, no round can commit, so no verdict may come that names a new
// donor in place of a lost one. The job therefore names it at once, without a change of members.
void Job::ReplaceDonor(const JobScope& scope) {
  if (DonorServes(generations_.donor(), workers_) || !AnyMemberLacksState(workers_)) return;
  generations_.NameDonor(DonorFor(membership()));
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (!IsMember(workers_[slot])) continue;
    SendTo(scope, slot, MembershipChanged{membership(), Role::kMember, generations_.donor(), {}});
  }
}

// The remaining members joined and lost their donor before they had its state, so they would wait
// for it for ever. They must rejoin with a state of their own.
void Job::ReleaseStateless(const JobScope& scope) {
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (!IsMember(workers_[slot])) continue;
    Lose(scope, slot, NoteKind::kWorkerLost,
         "has no state, and no worker is left that could serve it",
         Error{ErrorCode::kEvicted,
               absl::StrCat("Worker ", workers_[slot].id, " of job ", name_,
                            " joined, but all workers that had the state were lost before it could "
                            "load it. Rejoin with the state of a checkpoint; no restart needed.")});
  }
}

// No worker that holds the state is left. Open rounds are aborted, although nobody receives the
// verdict, and the next workers start from their own state.
void Job::EndLineage(const JobScope& scope) {
  if (!Apply(JobInput::kEndLineage)) return;
  const bool others_are_here = workers_.Count(WorkerState::kAdmitted) > 0 ||
                               workers_.Count(WorkerState::kCandidate) > 0 ||
                               workers_.Count(WorkerState::kSpare) > 0;
  const bool ended_well = forming_.EndLineage(scope.now, others_are_here);
  generations_.DropPending();
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.round.has_value()) {
      if (lane.Open()) {
        VerdictRecord record;
        record.round = lane.round->number();
        record.ballot = record.value_ballot = lane.round->ballot();
        record.value.outcome = Outcome::kAborted;
        record.value.reason = "every member was lost";
        record.next = membership();
        record.chain = ExtendChain(lane.chain, record.round, record.value);
        scope.actions.push_back(Note{NoteKind::kRoundAborted, name_, "", lane.name, record.round,
                                     "Every member was lost."});
        ++rounds_.aborted;
        lane.Remember(std::move(record), scope.now);
      }
      scope.actions.push_back(EndRound{id_, i, lane.round->number()});
      lane.round.reset();
    }
    lane.StartLineage(membership().generation.counter);
  }
  DropCached(scope);  // Versions count on, and may now name other content.
  // Workers that finished take no part in the new lineage.
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    workers_.SetStillCounts(slot, false);
    if (workers_[slot].state == WorkerState::kLost) workers_[slot].finishing = false;
    if (workers_[slot].state == WorkerState::kFinished) {
      workers_.Apply(slot, WorkerInput::kNewLineage);
    }
  }
  standing_.EndLineage();
  reason_ = over()       ? "its workers have finished"
            : ended_well ? "its workers have finished; waits for workers that can start from their "
                           "own state"
                         : "no worker with state is left; waits for workers that can start from "
                           "their own state";
  AddNote(
      scope, NoteKind::kNewLineage, "",
      absl::StrCat(ended_well ? "All workers have finished or left."
                              : "No worker with the state of the past rounds is left.",
                   " The next workers start from their own states; if these differ, all load the "
                   "one with the highest step."));
  // Writes an empty list, so that the next aggregator does not wait for finished workers.
  if (ended_well && scope.config.state_file && !membership().members.empty()) {
    const Membership nobody{generations_.Next(term_), {}};
    generations_.Write(nobody.generation, scope.now + scope.config.lease);
    Save(scope, nobody);
  }
}

// ---- commands

void Job::Evict(const JobScope& scope, const WorkerId& id, const std::string& reason) {
  const std::optional<Slot> slot = workers_.Find(id);
  if (!slot.has_value()) return;
  Lose(scope, *slot, NoteKind::kWorkerLost, reason,
       Error{ErrorCode::kEvicted,
             absl::StrCat("Worker ", id, " of job ", name_, " ", reason, ". Rejoin with state.")});
}

void Job::DrainWorkerNow(const JobScope& scope, const WorkerId& id) {
  const std::optional<Slot> slot = workers_.Find(id);
  if (!slot.has_value() || workers_[*slot].state == WorkerState::kLost) return;
  workers_[*slot].draining = true;
  AddNote(scope, NoteKind::kDraining, id,
          "It is draining, and the next generation does not include it.");
  SendTo(scope, *slot, Drain{false});
  changed_ = true;
}

void Job::Suspend(bool suspended) {
  pause_.Suspend(suspended);
  changed_ = true;
}

void Job::TellDraining(const JobScope& scope) {
  for (Slot slot = 0; slot < workers_.size(); ++slot) SendTo(scope, slot, Drain{true});
}

void Job::EndAllSessions(const JobScope& scope, const Error& error) {
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    Worker& worker = workers_[slot];
    if (!worker.connected()) continue;
    scope.sessions.erase(*worker.session);
    scope.actions.push_back(EndSession{*worker.session, error});
    worker.session.reset();
    worker.lost_at = scope.now + scope.config.lease;
    values_.ForgetRequests(ValuesScope(scope), slot);
  }
  for (const auto& [id, session] : evidence_.held().TakeSessions()) {
    scope.sessions.erase(session);
    scope.actions.push_back(EndSession{session, error});
  }
}

}  // namespace basin::aggregator
