// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// When a job is paused, and what its workers are sent about it: why it is paused or does not run
// yet, and that it continues.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/job.h"
#include "aggregator/core/names.h"
#include "protocol/plural.h"

namespace basin::aggregator {

namespace {

// " (missing: w-3, w-7; not ready yet: w-5)": the members that are gone, and those whose new
// process is here; nothing when there are none.
std::string Missing(const Membership& membership, const Workers& workers) {
  std::vector<WorkerId> gone;
  std::vector<WorkerId> unready;
  for (const WorkerId& id : membership.members) {
    const std::optional<Slot> slot = workers.Find(id);
    const WorkerState state = slot.has_value() ? workers[*slot].state : WorkerState::kLost;
    if (slot.has_value() && (IsMember(workers[*slot]) || workers[*slot].finishing)) continue;
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

}  // namespace

// Whether a round waits for more workers. A worker that was drained is no member of the job any
// more and takes part in the rounds that are open; it leaves, and another one replaces it, when
// they end.
bool Job::PausedIn(const Lane& lane) const {
  if (!Paused() || suspended() || !lane.round.has_value()) return Paused();
  uint32_t present = Present();
  for (const RoundMember& member : lane.round->members()) {
    const WorkerState state = workers_[member.slot].state;
    const bool counted = state == WorkerState::kMember || state == WorkerState::kFinished;
    present += member.alive() && !counted;
  }
  return present < settings().min_workers;
}

// A pause is noted, and its time begins, when it holds somebody up: workers that leave one after
// the other at the end of a job, with nobody in a round, deserve no warning.
void Job::ReviewPause(const JobScope& scope) {
  // It may end when the members that are being written down are announced.
  if (generations_.IsPending(PendingChange::Kind::kMembers)) return;
  const bool runs = state() == JobState::kRunning;
  const bool runs_now = runs && why_not_running_.Retract();
  const bool paused = runs && Paused();
  if (runs_now || (!paused && pause_.named())) SendHeldUp(scope, "");
  if (!paused) {
    if (runs) reason_.clear();
    if (!pause_.noted()) return;
    pause_.End();
    if (runs) AddNote(scope, NoteKind::kResumed, "", "The job continues.");
    return;
  }
  const std::string before = std::exchange(reason_, WhyPaused());
  if (pause_.noted()) {
    if (pause_.named() && reason_ != before) SendHeldUp(scope, reason_);
    return;
  }
  const bool holds_up = suspended() || HasOpenRound() || values_.AnybodyWaits() ||
                        workers_.Count(WorkerState::kCandidate) > 0;
  if (!holds_up) return;
  pause_.Begin(scope.now);
  AddNote(scope, NoteKind::kPaused, "", reason_);
}

void Job::ReportPause(const JobScope& scope) {
  if (pause_.Tell() == PauseState::kNamed) return SendHeldUp(scope, reason_);
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    if (workers_[slot].state == WorkerState::kLost) continue;
    SendTo(scope, slot, Rejected{Error{ErrorCode::kPaused, reason_}, std::nullopt, 0});
  }
}

// To every worker that is here: the reason of the pause, for the log of a trainer that waits and
// for the text of a deadline that passes. Empty: the job goes on.
void Job::SendHeldUp(const JobScope& scope, const std::string& text) const {
  SendAll all{{}, HeldUp{0, 0, text}};
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    const Worker& worker = workers_[slot];
    if (worker.state != WorkerState::kLost && worker.connected()) {
      all.sessions.push_back(*worker.session);
    }
  }
  if (!all.sessions.empty()) scope.actions.push_back(std::move(all));
}

// A worker that waits for a job that does not run gets the reason a moment later, so that workers
// that start together are not named to each other.
void Job::NoteWaiting(const JobScope& scope) {
  if (state() == JobState::kRunning) return;
  why_not_running_.Plan(scope.now + 0.3 * scope.config.late_warning);
}

void Job::ReportWhyNotRunning(const JobScope& scope) {
  SendAll all;
  if (state() != JobState::kRunning) {
    all.message = HeldUp{0, 0, WhyNotRunning(scope)};
    for (const auto& [id, session] : waiting()) all.sessions.push_back(session);
    for (Slot slot = 0; slot < workers_.size(); ++slot) {
      const Worker& worker = workers_[slot];
      const bool waits =
          worker.state == WorkerState::kCandidate || worker.state == WorkerState::kSpare;
      if (waits && worker.connected()) all.sessions.push_back(*worker.session);
    }
  }
  why_not_running_.Tell(!all.sessions.empty());
  if (!all.sessions.empty()) scope.actions.push_back(std::move(all));
}

std::string Job::WhyNotRunning(const JobScope& scope) const {
  if (state() == JobState::kHalted) {
    return absl::StrCat("Job ", name_, " is halted: ", HowToEndHalt());
  }
  if (state() == JobState::kRecovering) {
    const absl::Duration left = evidence_.Due(scope.config) - scope.now;
    return absl::StrCat(
        "Job ", name_,
        " is recovering because the aggregator may have been restarted; it waits up to ",
        absl::FormatDuration(absl::Ceil(std::max(left, absl::ZeroDuration()), absl::Seconds(1))),
        " longer for the other workers: ", reason_, ".");
  }
  std::vector<WorkerId> ready;
  for (const Slot slot : Candidates(workers_)) ready.push_back(workers_[slot].id);
  std::sort(ready.begin(), ready.end());
  return absl::StrCat("Job ", name_, " starts with ", CountOf(forming_.Least(settings()), "worker"),
                      ", and ", ready.size(), ready.size() == 1 ? " is" : " are",
                      " ready: ", NamesOf(ready, kNamedMissing), ".");
}

std::string Job::WhyPaused() const {
  if (suspended()) return absl::StrCat("Job ", name_, " is suspended by an operator.");
  return absl::StrCat("Job ", name_, " is paused: ", Present(),
                      Present() == 1 ? " worker is" : " workers are", " left and min_workers is ",
                      settings().min_workers, Missing(membership(), workers_),
                      ". It continues when more workers join. To let a run shrink further, "
                      "start it with a lower min_workers (--min-workers, BASIN_MIN_WORKERS).");
}

}  // namespace basin::aggregator
