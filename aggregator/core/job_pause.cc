// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_pause.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/job_recovery.h"
#include "aggregator/core/names.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

// Lists the members that are lost and those whose new process is not ready, as in " (missing: w-3,
// w-7; not ready yet: w-5)"; empty if there are none.
std::string Missing(const Membership& membership, const Workers& workers) {
  std::vector<WorkerId> lost;
  std::vector<WorkerId> unready;
  for (const WorkerId& id : membership.members) {
    const std::optional<Slot> slot = workers.Find(id);
    const WorkerState state = slot.has_value() ? workers[*slot].state : WorkerState::kLost;
    if (slot.has_value() && (IsMember(workers[*slot]) || workers[*slot].finishing)) continue;
    if (state == WorkerState::kLost) lost.push_back(id);
    if (state == WorkerState::kAdmitted) unready.push_back(id);
  }
  std::vector<std::string> parts;
  if (!lost.empty()) parts.push_back(absl::StrCat("missing: ", NamesOf(lost, kNamedMissing)));
  if (!unready.empty()) {
    parts.push_back(absl::StrCat("not ready yet: ", NamesOf(unready, kNamedMissing)));
  }
  return parts.empty() ? "" : absl::StrCat(" (", absl::StrJoin(parts, "; "), ")");
}

std::string WhyNotRunning(const Job& job, const JobScope& scope) {
  if (job.state() == JobState::kHalted) {
    return absl::StrCat("Job ", job.name, " is halted: ", HowToEndHalt(job));
  }
  if (job.state() == JobState::kRecovering) {
    const absl::Duration left = job.evidence.Due(scope.config) - scope.now;
    return absl::StrCat(
        "Job ", job.name,
        " is recovering because the aggregator may have been restarted; it waits up to ",
        absl::FormatDuration(absl::Ceil(std::max(left, absl::ZeroDuration()), absl::Seconds(1))),
        " longer for the other workers: ", job.reason, ".");
  }
  const Candidates candidates = CandidatesOf(job.workers);
  const auto ids = [&](const std::vector<Slot>& slots) {
    std::vector<WorkerId> sorted;
    sorted.reserve(slots.size());
    for (const Slot slot : slots) sorted.push_back(job.workers[slot].id);
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  };
  std::vector<Slot> all;
  for (const auto& party : candidates.parties) all.insert(all.end(), party.begin(), party.end());
  const std::vector<WorkerId> ready = ids(all);
  std::string text = absl::StrCat("Job ", job.name, " starts with ",
                                  CountOf(job.forming.Least(job.settings()), "worker"), ", and ",
                                  ready.size(), ready.size() == 1 ? " is" : " are",
                                  " ready: ", NamesOf(ready, kNamedMissing), ".");
  const bool enough = ready.size() >= job.forming.Least(job.settings());
  if (enough && FirstMembers(job.workers, job.settings().max_workers).size() < ready.size()) {
    absl::StrAppend(&text, " Workers of one node join together, and max_workers is ",
                    job.settings().max_workers, ", too few for the next node.");
  }
  if (!candidates.waiting.empty()) {
    const std::vector<WorkerId> waiting = ids(candidates.waiting);
    absl::StrAppend(&text, " ", NamesOf(waiting, kNamedMissing),
                    waiting.size() == 1 ? " waits" : " wait",
                    " for the other workers of the same node, with which they join.");
  }
  return text;
}

}  // namespace

void ReviewPause(Job& job, const JobScope& scope) {
  // The pause may end when the members that are being written down take effect.
  if (job.generations.IsPending(PendingChange::Kind::kMembers)) return;
  const bool runs = job.state() == JobState::kRunning;
  const bool runs_now = runs && job.why_not_running.Retract();
  const bool paused = runs && job.Paused();
  if (runs_now || (!paused && job.pause.named())) SendToAll(job, scope, HeldUp{0, 0, ""});
  if (!paused) {
    if (runs) job.reason.clear();
    if (!job.pause.noted()) return;
    job.pause.End();
    job.goodput.Resume(scope.now);
    if (runs) AddNote(job, scope, NoteKind::kResumed, "", "The job continues.");
    return;
  }
  const std::string before = std::exchange(job.reason, WhyPaused(job));
  if (job.pause.noted()) {
    if (job.pause.named() && job.reason != before) SendToAll(job, scope, HeldUp{0, 0, job.reason});
    return;
  }
  const bool holds_up = job.suspended() || job.HasOpenRound() || job.blobs.AnybodyWaits() ||
                        job.workers.Count(WorkerState::kCandidate) > 0;
  if (!holds_up) return;
  job.pause.Begin(scope.now);
  job.goodput.Hold(scope.now);
  AddNote(job, scope, NoteKind::kPaused, "", job.reason);
}

void ReportPause(Job& job, const JobScope& scope) {
  if (job.pause.OnDue() == PauseState::kNamed)
    return SendToAll(job, scope, HeldUp{0, 0, job.reason});
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    SendTo(job, scope, slot, Rejected{Error{ErrorCode::kPaused, job.reason}, std::nullopt, 0});
  }
}

void NoteWaiting(Job& job, const JobScope& scope) {
  if (job.state() == JobState::kRunning) return;
  job.why_not_running.Plan(scope.now + 0.3 * scope.config.late_warning);
}

void ReportWhyNotRunning(Job& job, const JobScope& scope) {
  SendAll all;
  if (job.state() != JobState::kRunning) {
    all.message = HeldUp{0, 0, WhyNotRunning(job, scope)};
    for (const auto& [id, session] : job.waiting()) all.sessions.push_back(session);
    for (Slot slot = 0; slot < job.workers.size(); ++slot) {
      const Worker& worker = job.workers[slot];
      const bool waits =
          worker.state == WorkerState::kCandidate || worker.state == WorkerState::kSpare;
      if (waits && worker.connected()) all.sessions.push_back(*worker.session);
    }
  }
  job.why_not_running.OnDue(!all.sessions.empty());
  if (!all.sessions.empty()) scope.actions.push_back(std::move(all));
}

std::string WhyPaused(const Job& job) {
  if (job.suspended()) return absl::StrCat("Job ", job.name, " is suspended by an operator.");
  return absl::StrCat("Job ", job.name, " is paused: ", job.Present(),
                      job.Present() == 1 ? " worker is" : " workers are",
                      " left and min_workers is ", job.settings().min_workers,
                      Missing(job.membership(), job.workers),
                      ". It continues when more workers join. To let a run shrink further, "
                      "start it with a lower min_workers (--min-workers, BASIN_MIN_WORKERS).");
}

}  // namespace basin::aggregator
