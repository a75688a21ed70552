// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a job does by itself when its time has come: among others, when a silent worker is lost.
// Each timer is one row: when it is due, and what happens then.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job.h"

namespace basin::aggregator {

// In this order, when several are due at once.
const Job::Timer Job::kTimers[] = {
    {&Job::WriteDue, &Job::GiveUpWrites},
    {&Job::LeaseDue, &Job::LoseSilentWorkers},
    {&Job::RoundDue, &Job::CheckRounds},
    {&Job::IdleLaneDue, &Job::ExpireIdleLanes},
    {&Job::ValueDue, &Job::CheckValues},
    {&Job::StartDue, &Job::LowerStart},
    {&Job::RecoveryDue, &Job::TryRecover},
    {&Job::WhyNotRunningDue, &Job::ReportWhyNotRunning},
    {&Job::PauseDue, &Job::ReportPause},
    {&Job::PaceDue, &Job::TellPaced},
    {&Job::IdleDue, nullptr},  // The coordinator forgets the job; see Expired.
};

void Job::CheckDeadlines(const JobScope& scope) {
  for (const Timer& timer : kTimers) {
    if (timer.fire != nullptr && scope.now >= (this->*timer.due)(scope.config)) {
      (this->*timer.fire)(scope);
    }
  }
}

absl::Time Job::NextDeadline(const Config& config) const {
  absl::Time next = absl::InfiniteFuture();
  for (const Timer& timer : kTimers) next = std::min(next, (this->*timer.due)(config));
  return next;
}

// ---- generations on their way to the disk

absl::Time Job::WriteDue(const Config&) const { return writes_.due(); }

void Job::GiveUpWrites(const JobScope& scope) {
  while (scope.now >= writes_.due()) {
    EndWrite(scope, writes_.oldest(),
             absl::StrCat("has not been written to the state file in ",
                          absl::FormatDuration(scope.config.lease), "; its disk may hang"));
  }
}

// ---- workers

void Job::LoseSession(const JobScope& scope, std::optional<Slot> slot, const SessionLost& lost) {
  held_.LoseSession(lost.session);
  if (Idle()) idle_since_ = scope.now;
  if (!slot.has_value()) return;
  Worker& worker = workers_[*slot];
  worker.session.reset();
  values_.ForgetRequests(ValuesScope(scope), *slot);
  // A live client is back at once; a kernel closes every connection only when the process is gone.
  // But an interrupted network delivers the delayed messages together with the end of the worker's
  // connections: such a worker lives, and is on its way back.
  const bool heard_lately = scope.now - worker.last_heard <= scope.config.silence() &&
                            scope.now - worker.silent_until >= scope.config.lease;
  const absl::Time by_silence = worker.last_heard + scope.config.lease;
  worker.lost_at = lost.closed_by_peer && heard_lately
                       ? std::min(by_silence, scope.now + scope.config.closed_lease)
                       : by_silence;
  AddNote(scope, NoteKind::kWorkerDisconnected, worker.id,
          !lost.ended.empty()   ? absl::StrCat("The aggregator ended its session. ", lost.ended)
          : lost.closed_by_peer ? "It closed its connections."
                                : "Its connection broke.");
}

// When the worker counts as lost. `lost_at` is set when its session ends, in LoseSession.
absl::Time Job::LeaseEnd(const Worker& worker, const Config& config) const {
  if (worker.state == WorkerState::kLost) return absl::InfiniteFuture();
  return worker.connected() ? worker.last_heard + config.lease : worker.lost_at;
}

absl::Time Job::LeaseDue(const Config& config) const {
  absl::Time next = absl::InfiniteFuture();
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    next = std::min(next, LeaseEnd(workers_[slot], config));
  }
  return next;
}

void Job::LoseSilentWorkers(const JobScope& scope) {
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    const Worker& worker = workers_[slot];
    if (scope.now < LeaseEnd(worker, scope.config)) continue;
    if (!worker.connected()) {
      Lose(scope, slot, NoteKind::kWorkerLost, "did not reconnect in time", Error{});
      continue;
    }
    Lose(scope, slot, NoteKind::kWorkerLost, "was silent for longer than its lease",
         Error{ErrorCode::kEvicted,
               absl::StrCat("Worker ", worker.id, " of job ", name_, " was silent for ",
                            absl::FormatDuration(scope.now - worker.last_heard),
                            ", longer than its lease. Rejoin with state; no restart needed.")});
  }
}

void Job::NoteStall(absl::Duration gap, const Config& config, absl::Time now) {
  if (gap <= config.silence()) return;
  for (Slot slot = 0; slot < workers_.size(); ++slot) workers_[slot].silent_until = now;
}

// ---- rounds, lanes, values

absl::Time Job::RoundDue(const Config& config) const {
  absl::Time next = absl::InfiniteFuture();
  for (const Lane& lane : lanes_) {
    if (lane.round.has_value())
      next = std::min(next, lane.round->NextDeadline(config, late_policy(config), workers_));
  }
  return next;
}

void Job::CheckRounds(const JobScope& scope) {
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].round.has_value()) continue;
    std::vector<std::pair<Slot, std::string>> overdue;
    lanes_[i].round->CheckDeadlines(ScopeOf(scope, i), overdue);
    for (const auto& [slot, reason] : overdue) {
      if (workers_[slot].state == WorkerState::kLost) continue;
      Lose(scope, slot, NoteKind::kWorkerLost, reason,
           Error{ErrorCode::kEvicted, absl::StrCat("Worker ", workers_[slot].id, " of job ", name_,
                                                   " ", reason, ". Rejoin with state.")});
    }
  }
}

absl::Time Job::IdleLaneDue(const Config& config) const {
  absl::Time next = absl::InfiniteFuture();
  for (const Lane& lane : lanes_) next = std::min(next, lane.IdleEnd(config));
  return next;
}

void Job::ExpireIdleLanes(const JobScope& scope) {
  for (Lane& lane : lanes_) {
    if (scope.now < lane.IdleEnd(scope.config)) continue;
    lane.expired = true;
    Release(scope, lane);
  }
}

absl::Time Job::ValueDue(const Config&) const { return values_.NextDeadline(); }

void Job::CheckValues(const JobScope& scope) { values_.CheckDeadlines(ValuesScope(scope)); }

// ---- the job

absl::Time Job::StartDue(const Config& config) const {
  const bool runs = state() == JobState::kForming && !forming_timed_out_;
  return runs ? forming_since_ + config.start_timeout : absl::InfiniteFuture();
}

// min_workers are enough from here on.
void Job::LowerStart(const JobScope&) { forming_timed_out_ = changed_ = true; }

absl::Time Job::RecoveryDue(const Config& config) const {
  const bool runs = state() == JobState::kRecovering && !IsPending(PendingChange::Kind::kRecovery);
  return runs ? recovery_since_ + config.recovery_window : absl::InfiniteFuture();
}

absl::Time Job::WhyNotRunningDue(const Config&) const { return why_not_running_.due(); }

absl::Time Job::PauseDue(const Config& config) const { return pause_.Due(config); }

absl::Time Job::IdleDue(const Config& config) const {
  return Idle() ? idle_since_ + config.idle_job_timeout : absl::InfiniteFuture();
}

}  // namespace basin::aggregator
