// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A job does some things by itself at a certain time, such as losing a silent worker. Each timer is
// one row: when it is due, and what it does.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job.h"
#include "aggregator/core/round_waits.h"

namespace basin::aggregator {

// Timers that are due at once fire in this order.
const Job::Timer Job::kTimers[] = {
    {[](const Job& job, const Config&) { return job.generations_.due(); },
     [](Job& job, const JobScope& scope) { job.GiveUpWrites(scope); }},
    {[](const Job& job, const Config&) { return job.settings_writes_.due(); },
     [](Job& job, const JobScope& scope) { job.GiveUpSettingsWrites(scope); }},
    {[](const Job& job, const Config& config) { return job.workers_.LeaseDue(config.lease); },
     [](Job& job, const JobScope& scope) { job.LoseSilentWorkers(scope); }},
    {[](const Job& job, const Config& config) {
       return job.lanes_.RoundDue(config, job.LatePolicyNow(config), job.workers_);
     },
     [](Job& job, const JobScope& scope) { job.CheckRounds(scope); }},
    {[](const Job& job, const Config& config) { return job.lanes_.IdleDue(config); },
     [](Job& job, const JobScope& scope) {
       job.lanes_.ExpireIdle(scope.config, scope.now, job.id_, scope.memory, scope.actions);
     }},
    {[](const Job& job, const Config&) { return job.values_.NextDeadline(); },
     [](Job& job, const JobScope& scope) { job.values_.CheckDeadlines(job.ValuesScope(scope)); }},
    {[](const Job& job, const Config& config) {
       const bool forms = job.state() == JobState::kForming;
       return forms ? job.forming_.Due(config) : absl::InfiniteFuture();
     },
     // From now on, min_workers are enough.
     [](Job& job, const JobScope&) {
       job.forming_.TimeOut();
       job.changed_ = true;
     }},
    {[](const Job& job, const Config& config) {
       return GroupDue(job.workers_, config.group_timeout);
     },
     [](Job& job, const JobScope& scope) { job.StopWaitingForGroups(scope); }},
    {[](const Job& job, const Config& config) {
       const bool waits = job.state() == JobState::kRecovering &&
                          !job.generations_.IsPending(PendingChange::Kind::kRecovery);
       return waits ? job.evidence_.Due(config) : absl::InfiniteFuture();
     },
     [](Job& job, const JobScope& scope) { job.TryRecover(scope); }},
    {[](const Job& job, const Config&) { return job.why_not_running_.due(); },
     [](Job& job, const JobScope& scope) { job.ReportWhyNotRunning(scope); }},
    {[](const Job& job, const Config& config) { return job.pause_.Due(config); },
     [](Job& job, const JobScope& scope) { job.ReportPause(scope); }},
    {[](const Job& job, const Config& config) {
       const bool counts = config.max_job_rounds != 0 && job.state() == JobState::kRunning;
       return counts && job.lanes_.AnyPaced() ? job.pace_.Next(config) : absl::InfiniteFuture();
     },
     [](Job& job, const JobScope& scope) { job.TellPaced(scope); }},
    // The coordinator forgets the job; see Expired.
    {[](const Job& job, const Config& config) { return job.IdleDue(config); }, nullptr},
};

void Job::CheckDeadlines(const JobScope& scope) {
  for (const Timer& timer : kTimers) {
    if (timer.fire != nullptr && scope.now >= timer.due(*this, scope.config)) {
      timer.fire(*this, scope);
    }
  }
}

absl::Time Job::NextDeadline(const Config& config) const {
  absl::Time next = absl::InfiniteFuture();
  for (const Timer& timer : kTimers) next = std::min(next, timer.due(*this, config));
  return next;
}

// ---- generations and settings on their way to the disk

void Job::GiveUpWrites(const JobScope& scope) {
  while (scope.now >= generations_.due()) {
    EndWrite(scope, generations_.oldest(),
             absl::StrCat("has not been written to the state file in ",
                          absl::FormatDuration(scope.config.lease), "; its disk may hang"));
  }
}

// ---- workers

void Job::LoseSession(const JobScope& scope, std::optional<Slot> slot, const SessionLost& lost) {
  evidence_.held().LoseSession(lost.session);
  if (Idle()) idle_since_ = scope.now;
  if (!slot.has_value()) return;
  Worker& worker = workers_[*slot];
  worker.session.reset();
  values_.ForgetRequests(ValuesScope(scope), *slot);
  // A kernel closes all connections of a process only when it exits, and a live client reconnects
  // at once, so a short lease is enough. But after a network outage, delayed messages can arrive
  // together with the end of the connections; such a worker lives, so it keeps the full lease.
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

void Job::LoseSilentWorkers(const JobScope& scope) {
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    const Worker& worker = workers_[slot];
    if (scope.now < worker.LeaseEnd(scope.config.lease)) continue;
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

// ---- rounds

void Job::CheckRounds(const JobScope& scope) {
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].round.has_value()) continue;
    for (const auto& [slot, reason] : Overdue(*lanes_[i].round, ScopeOf(scope, i))) {
      if (workers_[slot].state == WorkerState::kLost) continue;
      if (workers_[slot].unread_at == scope.now) continue;  // What is missing may be among it.
      Lose(scope, slot, NoteKind::kWorkerLost, reason,
           Error{ErrorCode::kEvicted, absl::StrCat("Worker ", workers_[slot].id, " of job ", name_,
                                                   " ", reason, ". Rejoin with state.")});
    }
  }
}

// ---- the job

absl::Time Job::IdleDue(const Config& config) const {
  if (!Idle()) return absl::InfiniteFuture();
  return forget_when_idle_ ? idle_since_ : idle_since_ + config.idle_job_timeout;
}

}  // namespace basin::aggregator
