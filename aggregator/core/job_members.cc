// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The members of a job, and when they change: genesis, join, loss, pause, a new lineage.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/job.h"
#include "aggregator/core/names.h"
#include "proto/vocabulary/plural.h"

namespace basin::aggregator {
namespace {

// The note of a generation names no more workers than this: thousands of notes are kept.
constexpr size_t kNamedMembers = 64;

}  // namespace

bool Job::AnyRoundEver() const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.next > 1 || lane.Open(); });
}

std::vector<Slot> Job::Candidates() const {
  std::vector<Slot> ready;
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    const Worker& worker = workers_[slot];
    if (worker.draining || worker.finishing) continue;
    if (worker.state == WorkerState::kCandidate || worker.state == WorkerState::kSpare) {
      ready.push_back(slot);
    }
  }
  std::sort(ready.begin(), ready.end(),
            [this](Slot a, Slot b) { return workers_[a].ready_order < workers_[b].ready_order; });
  return ready;
}

void Job::TakeReady(const JobScope& scope, Slot slot, const Ready& ready) {
  Worker& worker = workers_[slot];
  if (worker.state != WorkerState::kAdmitted) return;  // Repeated on a new session.
  worker.step_label = ready.step_label;
  worker.state_hash = ready.state_hash;
  worker.ready_order = ++next_ready_;
  BeginAnew();
  const uint32_t taken =
      workers_.Count(WorkerState::kMember) + workers_.Count(WorkerState::kCandidate);
  const bool room = taken < settings_.max_workers;
  workers_.SetState(slot, room ? WorkerState::kCandidate : WorkerState::kSpare);
  Say(scope, room ? NoteKind::kWorkerReady : NoteKind::kWorkerSpare, worker.id,
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
    RepairLineage(scope);
    if (changed_) continue;  // What follows is for those who are left.
    TryForm(scope);
    ReconsiderMembers(scope);
    if (changed_) continue;
    NoteWaiting(scope);
    if (!pending_.has_value()) NotePause(scope);  // Else it may end when that is on disk.
    AdvanceAll(scope);
  }
}

// Changes the members where that need not wait for a verdict.
void Job::ReconsiderMembers(const JobScope& scope) {
  if (state_ != JobState::kRunning) return;
  const Membership next = NextMembership(!scope.draining);
  if (next == membership_) return;
  if (!AnyRoundEver() || NobodyGoesOn()) {
    RequestChange(scope, next, ChooseDonor(next));
  } else if (Present() < settings_.min_workers) {
    // Nobody is let go in a pause: who is drained or has finished goes at the next verdict.
    const Membership all = NextMembership(!scope.draining, true);
    const size_t finished = workers_.Count(WorkerState::kFinished) + finished_and_gone_;
    const bool enough = all.members.size() + finished >= settings_.min_workers;
    if (enough && all != membership_) RequestChange(scope, all, ChooseDonor(all));
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
  if (state_ != JobState::kForming || scope.draining || pending_.has_value()) return;
  const uint32_t least = forming_timed_out_ ? settings_.min_workers : settings_.start_workers;
  if (workers_.Count(WorkerState::kCandidate) + workers_.Count(WorkerState::kSpare) < least) return;
  const std::vector<Slot> ready = Candidates();
  const bool enough = ready.size() >= settings_.start_workers ||
                      (forming_timed_out_ && ready.size() >= settings_.min_workers);
  if (!enough || ready.empty()) return;
  // Ranks of the first generation follow the worker ids, so that they do not depend on who was
  // quick. Who does not fit stays a spare.
  Membership next;
  next.generation = NextGeneration();
  for (const Slot slot : ready) {
    if (next.members.size() < settings_.max_workers) next.members.push_back(workers_[slot].id);
  }
  std::sort(next.members.begin(), next.members.end());
  SetState(JobState::kRunning);
  reason_.clear();
  formed_ = next.generation;
  RequestChange(scope, next, ChooseDonorByState(next));
}

// The donor among workers that form a job, each with its own state: nobody needs a donor when all
// declare the same; else it is the one that is furthest, the lowest id among equals.
std::optional<WorkerId> Job::ChooseDonorByState(const Membership& next) const {
  if (next.members.empty()) return std::nullopt;
  bool same = true;
  const Worker* donor = &workers_[*workers_.Find(next.members.front())];
  for (const WorkerId& id : next.members) {
    const Worker& worker = workers_[*workers_.Find(id)];
    same &= worker.step_label == donor->step_label && worker.state_hash == donor->state_hash;
    const auto further = [](const Worker& a, const Worker& b) {
      return a.step_label != b.step_label ? a.step_label > b.step_label : a.id < b.id;
    };
    if (further(worker, *donor)) donor = &worker;
  }
  if (same) return std::nullopt;
  return donor->id;
}

Generation Job::NextGeneration() const {
  const Generation newest = std::max(membership_.generation, written_);
  return {term_, newest.term == term_ ? newest.counter + 1 : 1};
}

// Survivors keep their order, joiners are appended in the order in which they became ready.
Membership Job::NextMembership(bool admit, bool keep_all) const {
  Membership next = membership_;
  next.members.clear();
  for (const WorkerId& id : membership_.members) {
    const std::optional<Slot> slot = workers_.Find(id);
    if (!slot.has_value()) continue;
    const Worker& worker = workers_[*slot];
    const bool stays = keep_all || (!worker.draining && !worker.finishing);
    if (IsMember(worker) && stays) next.members.push_back(id);
  }
  if (admit) {
    for (const Slot slot : Candidates()) {
      if (next.members.size() >= settings_.max_workers) break;
      next.members.push_back(workers_[slot].id);
    }
  }
  if (next.members != membership_.members || Revived(next)) next.generation = NextGeneration();
  return next;
}

// Whether somebody in `next` has come back as another incarnation under the same rank.
bool Job::Revived(const Membership& next) const {
  return std::any_of(next.members.begin(), next.members.end(), [this](const WorkerId& id) {
    return !IsMember(workers_[*workers_.Find(id)]);
  });
}

// The donor in a job that has members: one that holds the state, while somebody in `next` lacks
// it. A worker that joins before the first round and declares the same state does not lack it.
std::optional<WorkerId> Job::ChooseDonor(const Membership& next) const {
  std::optional<WorkerId> best;
  int best_rank = -1;
  for (const WorkerId& id : membership_.members) {
    const std::optional<Slot> slot = workers_.Find(id);
    if (!slot.has_value() || !IsMember(workers_[*slot])) continue;
    if (!workers_[*slot].holds_state) continue;
    // One that still takes part, before one that has finished and may lack the last rounds; one
    // that is here, before one that is away; one that stays, before one that is on its way out.
    const bool stays =
        std::find(next.members.begin(), next.members.end(), id) != next.members.end();
    const int rank = 4 * !workers_[*slot].finishing + 2 * workers_[*slot].connected() + stays;
    if (rank <= best_rank) continue;
    best = id;
    best_rank = rank;
  }
  if (!best.has_value()) return std::nullopt;
  const Worker& donor = workers_[*workers_.Find(*best)];
  const bool trained = AnyRoundEver();
  const bool lacking =
      std::any_of(next.members.begin(), next.members.end(), [&](const WorkerId& id) {
        const Worker& worker = workers_[*workers_.Find(id)];
        if (IsMember(worker)) return !worker.holds_state;
        return trained || worker.step_label != donor.step_label ||
               worker.state_hash != donor.state_hash;
      });
  return lacking ? best : std::nullopt;
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
  const bool saving =
      std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.saving; });
  if (pending_.has_value() || saving) return;  // Reconsidered when that is done.
  if (!scope.config.state_file) {
    ApplyChange(scope, next, donor);
    return;
  }
  pending_ = PendingChange{next, std::move(donor)};
  Save(scope, next);
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
      if (member.presence == Presence::kUndecided && fixed) member.standing = Standing::kWithdrawn;
      joiners.push_back(std::move(member));
    }
    if (!joiners.empty()) lane.round->Admit(ScopeOf(scope, i), std::move(joiners));
  }
  changed_ = true;
}

// Makes `next` the membership and tells whoever does not hear it with a verdict.
void Job::Activate(const JobScope& scope, const Membership& next,
                   const std::optional<WorkerId>& donor, bool tell_members) {
  membership_ = next;
  donor_ = donor;
  ended_well_ = true;  // If it is empty: its last members have finished, or drain.
  std::set<WorkerId> members(next.members.begin(), next.members.end());
  const bool others_go_on = std::any_of(members.begin(), members.end(), [&](const WorkerId& id) {
    const std::optional<Slot> slot = workers_.Find(id);
    return slot.has_value() && IsMember(workers_[*slot]);
  });
  Say(scope, NoteKind::kGeneration, "",
      absl::StrCat("Generation ", ToString(next.generation), ": ",
                   next.members.empty() ? "nobody" : NamesOf(next.members, kNamedMembers), "."));
  for (const auto& [id, slot] : workers_.by_id()) {
    Worker& worker = workers_[slot];
    if (worker.state == WorkerState::kLost) continue;
    const bool was_member = IsMember(worker);
    const bool is_member = members.count(id) > 0;
    if (is_member) {
      workers_.SetState(slot, WorkerState::kMember);
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
      workers_.SetState(slot, worker.finishing ? WorkerState::kFinished : WorkerState::kAdmitted);
    }
    const Role role = worker.state == WorkerState::kSpare ? Role::kSpare : Role::kJoiner;
    SendTo(scope, slot, MembershipChanged{membership_, role, std::nullopt, {}});
  }
  ReformIdleRounds(scope);
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
  const bool took_part =
      worker.state == WorkerState::kMember || worker.state == WorkerState::kFinished;
  worker.finishing &= took_part;
  if (worker.finishing) ++finished_and_gone_;
  workers_.SetState(slot, WorkerState::kLost);
  worker.left = kind == NoteKind::kWorkerLeft;
  if (took_part) ended_well_ = worker.left || worker.finishing;
  Say(scope, kind, worker.id, absl::StrCat("Worker ", worker.id, " ", reason, "."));
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

// Members were lost, or a list of them could not be used: somebody must have the job's state, and
// those who lack it must know who gives it to them.
void Job::RepairLineage(const JobScope& scope) {
  if (state_ != JobState::kRunning || pending_.has_value()) return;
  if (workers_.Count(WorkerState::kMember) == 0) {
    EndLineage(scope);
  } else if (NobodyHoldsState()) {
    ReleaseStateless(scope);
  } else {
    ReplaceDonor(scope);
  }
}

// While somebody has not got the state yet, nothing is COMMITTED, and no verdict may come that
// could name a donor in place of one that was lost. So it is named at once; the members stay.
void Job::ReplaceDonor(const JobScope& scope) {
  if (DonorServes() || !SomebodyLacksState()) return;
  donor_ = ChooseDonor(membership_);
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (!IsMember(workers_[slot])) continue;
    SendTo(scope, slot, MembershipChanged{membership_, Role::kMember, donor_, {}});
  }
}

// The donor may have finished, or drain, and serves all the same while it is here.
bool Job::DonorServes() const {
  const std::optional<Slot> slot = donor_.has_value() ? workers_.Find(*donor_) : std::nullopt;
  return slot.has_value() && workers_[*slot].state != WorkerState::kLost &&
         workers_[*slot].holds_state;
}

bool Job::NobodyHoldsState() const {
  if (DonorServes()) return false;
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (IsMember(workers_[slot]) && workers_[slot].holds_state) return false;
  }
  return true;
}

bool Job::SomebodyLacksState() const {
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (IsMember(workers_[slot]) && !workers_[slot].holds_state) return true;
  }
  return false;
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
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    lane.saving = false;
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
        lane.Remember(std::move(record));
      }
      scope.actions.push_back(EndRound{id_, i, lane.round->number()});
      lane.round.reset();
    }
    lane.StartLineage(membership_.generation.counter);
  }
  DropCached(scope);  // Versions count on, and may now name other content.
  // Workers that finished have no part in what begins now.
  finished_and_gone_ = 0;
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (workers_[slot].state == WorkerState::kLost) workers_[slot].finishing = false;
    if (workers_[slot].state == WorkerState::kFinished) {
      workers_.SetState(slot, WorkerState::kAdmitted);
    }
  }
  // A late worker may still hold it, and is heard until the new lineage has a verdict.
  recovered_ = false;
  SetState(JobState::kForming);
  forming_since_ = scope.now;
  forming_timed_out_ = false;
  over_ = over;
  reason_ =
      over ? "its workers have finished"
           : "no worker with state is left; waits for workers that can start from their own state";
  Say(scope, NoteKind::kNewLineage, "",
      absl::StrCat(over ? "All workers have finished or left."
                        : "No worker with the state of the past rounds is left.",
                   " The next workers start from their own states; if these differ, all load the "
                   "one with the highest step."));
  // The next aggregator need not wait for who is done.
  if (over && scope.config.state_file && !membership_.members.empty()) {
    Save(scope, Membership{NextGeneration(), {}});
  }
}

// A pause is noted, and its time begins, when it holds somebody up: workers that leave one after
// the other at the end of a job, with nobody in a round, deserve no warning.
void Job::NotePause(const JobScope& scope) {
  const bool paused = state_ == JobState::kRunning && Paused();
  if (!paused) {
    if (state_ == JobState::kRunning) {
      reason_.clear();
      if (std::exchange(told_why_, false)) TellPause(scope, "");
    }
    if (!paused_noted_) return;
    paused_noted_ = false;
    paused_since_ = absl::InfiniteFuture();
    if (std::exchange(pause_named_, false)) TellPause(scope, "");
    if (state_ != JobState::kRunning) return;  // Not paused any more, but lost.
    Say(scope, NoteKind::kResumed, "", "The job continues.");
    return;
  }
  const std::string before = std::exchange(reason_, WhyPaused());
  if (paused_noted_) {
    if (pause_named_ && reason_ != before) TellPause(scope, reason_);
    return;
  }
  const bool holds_up = suspended_ || HasOpenRound() || values_.AnybodyWaits() ||
                        workers_.Count(WorkerState::kCandidate) > 0;
  if (!holds_up) return;
  paused_noted_ = true;
  paused_since_ = scope.now;
  pause_named_ = pause_told_ = false;
  Say(scope, NoteKind::kPaused, "", reason_);
}

// Somebody waits for a job that does not run. It is told why a moment later, so that workers which
// start together are not told of each other.
void Job::NoteWaiting(const JobScope& scope) {
  if (state_ == JobState::kRunning || tell_why_ != absl::InfiniteFuture()) return;
  tell_why_ = scope.now + 0.3 * scope.config.late_warning;
}

void Job::TellWhyNotRunning(const JobScope& scope) {
  tell_why_ = absl::InfiniteFuture();
  if (state_ == JobState::kRunning) return;
  SendAll all{{}, HeldUp{0, 0, WhyNotRunning(scope)}};
  for (const auto& [id, session] : waiting_) all.sessions.push_back(session);
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    const Worker& worker = workers_[slot];
    const bool waits =
        worker.state == WorkerState::kCandidate || worker.state == WorkerState::kSpare;
    if (waits && worker.connected()) all.sessions.push_back(*worker.session);
  }
  if (all.sessions.empty()) return;
  told_why_ = true;
  scope.actions.push_back(std::move(all));
}

std::string Job::WhyNotRunning(const JobScope& scope) const {
  if (state_ == JobState::kHalted) {
    return absl::StrCat("Job ", name_, " is halted: ", HowToEndHalt());
  }
  if (state_ == JobState::kRecovering) {
    const absl::Duration left = recovery_since_ + scope.config.recovery_window - scope.now;
    return absl::StrCat(
        "Job ", name_, " recovers because the aggregator may have been restarted, and waits up to ",
        absl::FormatDuration(absl::Ceil(std::max(left, absl::ZeroDuration()), absl::Seconds(1))),
        " more for its other workers: ", reason_, ".");
  }
  std::vector<WorkerId> ready;
  for (const Slot slot : Candidates()) ready.push_back(workers_[slot].id);
  std::sort(ready.begin(), ready.end());
  return absl::StrCat(
      "Job ", name_, " starts with ",
      CountOf(forming_timed_out_ ? settings_.min_workers : settings_.start_workers, "worker"),
      ", and ", ready.size(), ready.size() == 1 ? " is" : " are",
      " ready: ", NamesOf(ready, kNamedMissing), ".");
}

std::string Job::WhyPaused() const {
  if (suspended_) return absl::StrCat("Job ", name_, " is suspended by an operator.");
  return absl::StrCat("Job ", name_, " is paused: ", Present(),
                      Present() == 1 ? " worker is" : " workers are", " left and min_workers is ",
                      settings_.min_workers, Missing(),
                      ". It continues when more workers join; to let it shrink further, lower "
                      "min_workers (--min-workers, BASIN_MIN_WORKERS).");
}

// " (missing: w-3, w-7; not ready yet: w-5)": the members that are gone, and those whose new
// process is here; nothing when there are none.
std::string Job::Missing() const {
  std::vector<WorkerId> gone;
  std::vector<WorkerId> unready;
  for (const WorkerId& id : membership_.members) {
    const std::optional<Slot> slot = workers_.Find(id);
    const WorkerState state = slot.has_value() ? workers_[*slot].state : WorkerState::kLost;
    if (slot.has_value() && (IsMember(workers_[*slot]) || workers_[*slot].finishing)) continue;
    if (state == WorkerState::kLost) gone.push_back(id);
    if (state == WorkerState::kAdmitted) unready.push_back(id);
  }
  std::vector<std::string> parts;
  if (!gone.empty()) parts.push_back(absl::StrCat("missing: ", NamesOf(gone, kNamedMissing)));
  if (!unready.empty()) {
    parts.push_back(absl::StrCat("not ready yet: ", NamesOf(unready, kNamedMissing)));
  }
  return parts.empty() ? "" : absl::StrCat(" (", absl::StrJoin(parts, "; "), ")");
}

// To everybody who is here: what the log of a trainer that waits, and the text of a deadline that
// it passes, say of the pause. Empty: the job goes on.
void Job::TellPause(const JobScope& scope, const std::string& text) const {
  SendAll all{{}, HeldUp{0, 0, text}};
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    const Worker& worker = workers_[slot];
    if (worker.state != WorkerState::kLost && worker.connected()) {
      all.sessions.push_back(*worker.session);
    }
  }
  if (!all.sessions.empty()) scope.actions.push_back(std::move(all));
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
  Say(scope, NoteKind::kDraining, id,
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
  for (const auto& [id, session] : std::exchange(waiting_, {})) {
    scope.sessions.erase(session);
    scope.actions.push_back(EndSession{session, error});
  }
}

}  // namespace basin::aggregator
