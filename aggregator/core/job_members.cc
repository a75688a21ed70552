// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The members of a job, and when they change: genesis, join, loss, pause, a new lineage.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job.h"
#include "aggregator/core/names.h"

namespace basin::aggregator {
namespace {

// The note of a generation names no more workers than this: thousands of notes are kept.
constexpr size_t kNamedMembers = 64;

}  // namespace

bool Job::AnyRoundEver() const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.next > 1 || lane.Open(); });
}

void Job::OnReady(const JobScope& scope, Slot slot, const Ready& ready) {
  Worker& worker = workers_[slot];
  if (worker.state != WorkerState::kAdmitted) return;  // Repeated on a new session.
  worker.step_label = ready.step_label;
  worker.state_hash = ready.state_hash;
  worker.ready_order = ++next_ready_;
  BeginAnew();
  const uint32_t taken =
      workers_.Count(WorkerState::kMember) + workers_.Count(WorkerState::kCandidate);
  const bool room = taken < settings_.max_workers;
  workers_.Apply(slot, room ? WorkerInput::kReady : WorkerInput::kFindFull);
  AddNote(scope, room ? NoteKind::kWorkerReady : NoteKind::kWorkerSpare, worker.id,
          room ? "Ready."
               : absl::StrCat("Spare: the job has its ", settings_.max_workers,
                              " workers (max_workers)."));
  if (!room) SendTo(scope, slot, MembershipChanged{membership_, Role::kSpare, std::nullopt, {}});
  changed_ = true;
}

// Somebody has come to a job that was over.
void Job::BeginAnew() {
  if (over()) reason_ = "waits for workers that can start from their own state";
  over_ = false;
}

void Job::Reconcile(const JobScope& scope) {
  while (std::exchange(changed_, false)) {
    RecoverOnceMore(scope);
    RepairLineage(scope);
    if (changed_) continue;  // What follows is for those who are left.
    TryForm(scope);
    ReconsiderMembers(scope);
    if (changed_) continue;
    NoteWaiting(scope);
    ReviewPause(scope);
    AdvanceAll(scope);
  }
}

// Changes the members where that need not wait for a verdict.
void Job::ReconsiderMembers(const JobScope& scope) {
  if (state() != JobState::kRunning) return;
  const Membership next = NextMembership(!scope.draining);
  if (next == membership_) return;
  if (!AnyRoundEver() || NobodyGoesOn()) {
    RequestChange(scope, next, DonorFor(next));
  } else if (Present() < settings_.min_workers) {
    // No member leaves in a pause: drained and finished workers leave at the next verdict.
    const Membership all = NextMembership(!scope.draining, true);
    const size_t finished = workers_.Count(WorkerState::kFinished) + still_counting_;
    const bool enough = all.members.size() + finished >= settings_.min_workers;
    if (enough && all != membership_) RequestChange(scope, all, DonorFor(all));
  }
}

// Whether every member has finished and no round is open, so that no verdict will come any more.
bool Job::NobodyGoesOn() const {
  if (HasOpenRound() || workers_.Count(WorkerState::kMember) == 0) return false;
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (IsMember(workers_[slot]) && !workers_[slot].finishing) return false;
  }
  return true;
}

void Job::TryForm(const JobScope& scope) {
  if (state() != JobState::kForming || scope.draining) return;
  const uint32_t least = forming_timed_out_ ? settings_.min_workers : settings_.start_workers;
  if (workers_.Count(WorkerState::kCandidate) + workers_.Count(WorkerState::kSpare) < least) return;
  const std::vector<Slot> ready = Candidates(workers_);
  if (ready.size() < least || ready.empty()) return;
  const Membership next{NextGeneration(), FirstMembers(ready, workers_, settings_.max_workers)};
  if (!Apply(JobInput::kForm)) return;
  reason_.clear();
  formed_ = next.generation;
  RequestChange(scope, next, ChooseFirstDonor(next.members, workers_));
}

Generation Job::NextGeneration() const {
  const Generation newest = std::max(membership_.generation, writes_.newest());
  return {term_, newest.term == term_ ? newest.counter + 1 : 1};
}

Membership Job::NextMembership(bool admit, bool keep_all) const {
  Membership next = membership_;
  next.members =
      ChooseMembers(membership_.members, workers_, {admit, keep_all, settings_.max_workers});
  if (next.members != membership_.members || AnyRevived(next.members, workers_)) {
    next.generation = NextGeneration();
  }
  return next;
}

std::optional<WorkerId> Job::DonorFor(const Membership& next) const {
  // All members may still load the state of a worker that has left them and serves it.
  if (!AnyMemberHoldsState(workers_) && DonorServes(donor_, workers_)) return donor_;
  return ChooseDonor(membership_.members, next.members, workers_, AnyRoundEver());
}

std::vector<StartRound> Job::StartRounds() const {
  std::vector<StartRound> start;
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].name.empty()) continue;
    start.push_back({lanes_[i].name, i, lanes_[i].next, lanes_[i].chain});
  }
  return start;
}

// Changes the members outside a verdict. With a state file, once they are written down.
void Job::RequestChange(const JobScope& scope, const Membership& next,
                        std::optional<WorkerId> donor) {
  if (pending_.has_value()) return;  // Reconsidered when that is done.
  if (!scope.config.state_file) {
    ApplyChange(scope, next, donor);
    return;
  }
  SavePending(scope, {PendingChange::Kind::kMembers, next, std::move(donor), 0, {}});
}

void Job::ApplyChange(const JobScope& scope, const Membership& next,
                      const std::optional<WorkerId>& donor) {
  Activate(scope, next, donor, true);
  // Rounds that were held up by the pause go on with everyone.
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (!lane.round.has_value()) continue;
    std::vector<RoundMember> joiners;
    for (RoundMember& member : RoundMembers(lane.kind)) {
      if (lane.round->Has(member.slot)) continue;
      const bool fixed = lane.round->phase() == RoundPhase::kPrepared;
      if (member.presence == Presence::kUndecided && fixed) {
        member.contribution.Apply(ContributionInput::kWithdraw);
      }
      joiners.push_back(std::move(member));
    }
    if (!joiners.empty()) lane.round->Admit(ScopeOf(scope, i), std::move(joiners));
  }
  changed_ = true;
}

// Makes `next` the membership and sends it to those who do not receive it with a verdict.
void Job::Activate(const JobScope& scope, const Membership& next,
                   const std::optional<WorkerId>& donor, bool tell_members) {
  membership_ = next;
  donor_ = donor;
  ended_well_ = next.members.empty();  // The last ones have finished, or drain.
  std::set<WorkerId> members(next.members.begin(), next.members.end());
  const bool others_go_on = std::any_of(members.begin(), members.end(), [&](const WorkerId& id) {
    const std::optional<Slot> slot = workers_.Find(id);
    return slot.has_value() && IsMember(workers_[*slot]);
  });
  const std::string names = next.members.empty() ? "nobody" : NamesOf(next.members, kNamedMembers);
  Note& note = AddNote(scope, NoteKind::kGeneration, "",
                       absl::StrCat("Generation ", ToString(next.generation), ": ", names, "."));
  note.members = next.members.size();
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
             MembershipChanged{membership_, Role::kMember, donor,
                               was_member ? std::vector<StartRound>{} : StartRounds()});
      continue;
    }
    if (was_member) {
      workers_.Apply(slot, worker.finishing ? WorkerInput::kFinish : WorkerInput::kLeaveOut);
    }
    const Role role = worker.state == WorkerState::kSpare ? Role::kSpare : Role::kJoiner;
    SendTo(scope, slot, MembershipChanged{membership_, role, std::nullopt, {}});
  }
  if (joined) LimitStillCounting();
  ReformIdleRounds(scope);
}

// A worker that finished and left counts only as far as the job would have fewer than min_workers
// without it. A worker that joins may replace it, and if both counted, each such exchange would let
// the job shrink by one more.
void Job::LimitStillCounting() {
  const uint32_t here =
      workers_.Count(WorkerState::kMember) + workers_.Count(WorkerState::kFinished);
  const uint32_t lacking = settings_.min_workers - std::min(settings_.min_workers, here);
  for (Slot slot = 0; slot < workers_.size() && still_counting_ > lacking; ++slot) {
    still_counting_ -= workers_[slot].still_counts;
    workers_[slot].still_counts = false;
  }
}

// A round of which only frames have come, and no begin, is not open: its members are those of the
// generation.
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

// A worker is gone: from every open round in one step, and from the members.
void Job::Lose(const JobScope& scope, Slot slot, NoteKind kind, const std::string& reason,
               const Error& error) {
  Worker& worker = workers_[slot];
  if (worker.state == WorkerState::kLost) return;
  // A worker that has run out of data is not missed when it exits.
  const bool was_member = IsMember(worker);
  const bool took_part = was_member || worker.state == WorkerState::kFinished;
  worker.finishing &= took_part;
  workers_.Apply(slot, WorkerInput::kLose);
  if (worker.finishing) {
    worker.still_counts = true;
    ++still_counting_;
    LimitStillCounting();
  }
  worker.left = kind == NoteKind::kWorkerLeft;
  if (was_member) ended_well_ = worker.left || worker.finishing;
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
  if (Idle()) idle_since_ = scope.now;
}

// Members were lost, or a list that was written is not used: somebody must have the job's state,
// and those who lack it must know who gives it to them.
void Job::RepairLineage(const JobScope& scope) {
  if (state() != JobState::kRunning || IsPending(PendingChange::Kind::kMembers)) return;
  if (workers_.Count(WorkerState::kMember) == 0) {
    EndLineage(scope);
  } else if (!AnyMemberHoldsState(workers_) && !DonorServes(donor_, workers_)) {
    ReleaseStateless(scope);
  } else {
    ReplaceDonor(scope);
  }
}

// While somebody has not got the state yet, nothing is COMMITTED, and no verdict may come that
// could name a donor in place of one that was lost. So it is named at once; the members stay.
void Job::ReplaceDonor(const JobScope& scope) {
  if (DonorServes(donor_, workers_) || !AnyMemberLacksState(workers_)) return;
  donor_ = DonorFor(membership_);
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (!IsMember(workers_[slot])) continue;
    SendTo(scope, slot, MembershipChanged{membership_, Role::kMember, donor_, {}});
  }
}

// The members that are left joined, and lost their donor before they had its state: they would
// wait for it for ever. They come in again with a state of their own.
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

// Nobody is left who holds the state. What was open is aborted, with nobody there to hear it, and
// whoever comes starts from a state of its own.
void Job::EndLineage(const JobScope& scope) {
  const bool over = std::exchange(ended_well_, false);
  const bool others_are_here = workers_.Count(WorkerState::kAdmitted) > 0 ||
                               workers_.Count(WorkerState::kCandidate) > 0 ||
                               workers_.Count(WorkerState::kSpare) > 0;
  pending_.reset();
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.round.has_value()) {
      if (lane.Open()) {
        VerdictRecord record;
        record.round = lane.round->number();
        record.ballot = record.value_ballot = lane.round->ballot();
        record.value.outcome = Outcome::kAborted;
        record.value.reason = "every member was lost";
        record.next = membership_;
        record.chain = ExtendChain(lane.chain, record.round, record.value);
        scope.actions.push_back(Note{NoteKind::kRoundAborted, name_, "", lane.name, record.round,
                                     "Every member was lost."});
        ++rounds_.aborted;
        lane.Remember(std::move(record), scope.now);
      }
      scope.actions.push_back(EndRound{id_, i, lane.round->number()});
      lane.round.reset();
    }
    lane.StartLineage(membership_.generation.counter);
  }
  DropCached(scope);  // Versions count on, and may now name other content.
  // Workers that finished have no part in what begins now.
  still_counting_ = 0;
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    workers_[slot].still_counts = false;
    if (workers_[slot].state == WorkerState::kLost) workers_[slot].finishing = false;
    if (workers_[slot].state == WorkerState::kFinished) {
      workers_.Apply(slot, WorkerInput::kNewLineage);
    }
  }
  // A late worker may still hold it, and is heard until the new lineage has a verdict.
  recovered_ = false;
  Apply(JobInput::kEndLineage);
  forming_since_ = scope.now;
  forming_timed_out_ = false;
  over_ = over && !others_are_here;
  reason_ = over_  ? "its workers have finished"
            : over ? "its workers have finished; waits for workers that can start from their own "
                     "state"
                   : "no worker with state is left; waits for workers that can start from their "
                     "own state";
  AddNote(
      scope, NoteKind::kNewLineage, "",
      absl::StrCat(over ? "All workers have finished or left."
                        : "No worker with the state of the past rounds is left.",
                   " The next workers start from their own states; if these differ, all load the "
                   "one with the highest step."));
  // The next aggregator need not wait for finished workers.
  if (over && scope.config.state_file && !membership_.members.empty()) {
    Save(scope, Membership{NextGeneration(), {}});
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
  suspended_ = suspended;
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
  for (const auto& [id, session] : held_.TakeSessions()) {
    scope.sessions.erase(session);
    scope.actions.push_back(EndSession{session, error});
  }
}

}  // namespace basin::aggregator
