// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// When a job is paused, and what it sends to its workers: why it is paused or does not run yet, and
// that it goes on.

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

// Lists the members that are gone and those whose new process is not ready, as in " (missing: w-3,
// w-7; not ready yet: w-5)"; empty if there are none.
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

// Returns whether the pause holds back the round of this lane. A drained worker is no longer a
// member of the job but still takes part in its open rounds, so they count it. It leaves after
// them, and another worker replaces it.
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

// A pause is noted, and its time starts, when it delays a worker. Workers that leave one by one at
// the end of a job, with no round open, deserve no warning.
void Job::ReviewPause(const JobScope& scope) {
  // The pause may end when the members that are being written down take effect.
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

// Sends the reason of the pause to every connected worker. A waiting trainer logs it, and adds it
// to the error text if its deadline passes. An empty text means that the job goes on.
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

// Plans to send the reason to workers that wait for a job that does not run. The delay keeps
// workers that start together from being reported as missing to each other.
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
  const Candidates candidates = CandidatesOf(workers_);
  const auto ids = [this](const std::vector<Slot>& slots) {
    std::vector<WorkerId> sorted;
    sorted.reserve(slots.size());
    for (const Slot slot : slots) sorted.push_back(workers_[slot].id);
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  };
  std::vector<Slot> all;
  for (const auto& party : candidates.parties) all.insert(all.end(), party.begin(), party.end());
  const std::vector<WorkerId> ready = ids(all);
  std::string text =
      absl::StrCat("Job ", name_, " starts with ", CountOf(forming_.Least(settings()), "worker"),
                   ", and ", ready.size(), ready.size() == 1 ? " is" : " are",
                   " ready: ", NamesOf(ready, kNamedMissing), ".");
  const bool enough = ready.size() >= forming_.Least(settings());
  if (enough && FirstMembers(workers_, settings().max_workers).size() < ready.size()) {
    absl::StrAppend(&text, " Workers of one node join together, and max_workers is ",
                    settings().max_workers, ", too few for the next node.");
  }
  if (!candidates.waiting.empty()) {
    const std::vector<WorkerId> waiting = ids(candidates.waiting);
    absl::StrAppend(&text, " ", NamesOf(waiting, kNamedMissing),
                    waiting.size() == 1 ? " waits" : " wait",
                    " for the other workers of the same node, with which they join.");
  }
  return text;
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
