// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_timers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job_members.h"
#include "aggregator/core/job_pause.h"
#include "aggregator/core/job_placement.h"
#include "aggregator/core/job_recovery.h"
#include "aggregator/core/job_rounds.h"
#include "aggregator/core/job_settings.h"
#include "aggregator/core/round_late.h"
#include "aggregator/core/round_waits.h"

namespace basin::aggregator {
namespace {

void GiveUpWrites(Job& job, const JobScope& scope) {
  while (scope.now >= job.generations.due()) {
    EndWrite(job, scope, job.generations.oldest(),
             absl::StrCat("has not been written to the state file in ",
                          absl::FormatDuration(scope.config.lease), "; its disk may hang"));
  }
}

void LoseSilentWorkers(Job& job, const JobScope& scope) {
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    if (scope.now < worker.LeaseEnd(scope.config.lease)) continue;
    if (!worker.connected()) {
      Lose(job, scope, slot, NoteKind::kWorkerLost, "did not reconnect in time", Error{});
      continue;
    }
    Lose(job, scope, slot, NoteKind::kWorkerLost, "was silent for longer than its lease",
         Error{ErrorCode::kEvicted,
               absl::StrCat("Worker ", worker.id, " of job ", job.name, " was silent for ",
                            absl::FormatDuration(scope.now - worker.last_message),
                            ", longer than its lease. Rejoin with state; no restart needed.")});
  }
}

// So many packets were lost in a row, or there is nobody who could answer. The transport has that
// many sent in half a second where a worker has two connections (aggregator/transport/unheard.h).
// While a fifth of all packets is lost in each direction, a packet and its answer arrive with 0.64,
// so that 20 in a row are lost once in 10^9 cases.
constexpr uint32_t kLeastUnanswered = 20;

// What was seen longer ago may be over: the loop was late. The transport sees the rest again.
constexpr absl::Duration kMostAge = absl::Milliseconds(250);

// If nobody is heard, the network of this machine is as likely to be the cause, and there is nobody
// who would go on without the silent workers.
bool HearsAnother(const Job& job, const JobScope& scope, Slot slot) {
  for (Slot other = 0; other < job.workers.size(); ++other) {
    const Worker& worker = job.workers[other];
    if (other == slot || !worker.connected()) continue;
    if (scope.now - worker.last_message <= scope.config.silence()) return true;
  }
  return false;
}

void CheckRounds(Job& job, const JobScope& scope) {
  for (Lane& lane : job.lanes) {
    if (!lane.round.has_value()) continue;
    if (LeaveOutLate(*lane.round, ScopeOf(job, scope, lane.index))) {
      AdvanceLane(job, scope, lane.index);
      continue;
    }
    for (const auto& [slot, reason] : Overdue(*lane.round, ScopeOf(job, scope, lane.index))) {
      if (job.workers[slot].state == WorkerState::kLost) continue;
      if (job.workers[slot].unread_at == scope.now) continue;  // What is missing may be among it.
      Evict(job, scope, slot, reason);
    }
  }
}

// A job does some things by itself at a certain time.
struct Timer {
  absl::Time (*due)(const Job&, const Config&);  // InfiniteFuture while the timer does not run.
  void (*fire)(Job&, const JobScope&);           // Null if the coordinator acts instead of the job.
};

// Timers that are due at once fire in this order.
const Timer kTimers[] = {
    {[](const Job& job, const Config&) { return job.generations.due(); }, GiveUpWrites},
    {[](const Job& job, const Config&) { return job.settings_writes.due(); }, GiveUpSettingsWrites},
    {[](const Job& job, const Config& config) { return job.workers.LeaseDue(config.lease); },
     LoseSilentWorkers},
    {[](const Job& job, const Config& config) {
       return job.lanes.RoundDue(config, job.LatePolicyNow(config), job.workers);
     },
     CheckRounds},
    {[](const Job& job, const Config& config) { return job.lanes.IdleDue(config); },
     [](Job& job, const JobScope& scope) {
       job.lanes.ExpireIdle(scope.config, scope.now, job.id, scope.memory, scope.actions);
     }},
    {[](const Job& job, const Config&) { return job.blobs.NextDeadline(); },
     [](Job& job, const JobScope& scope) { job.blobs.CheckDeadlines(BlobScopeOf(job, scope)); }},
    {[](const Job& job, const Config& config) {
       const bool forms = job.state() == JobState::kForming;
       return forms ? job.forming.Due(config) : absl::InfiniteFuture();
     },
     // From now on, min_workers are enough.
     [](Job& job, const JobScope&) {
       job.forming.TimeOut();
       job.changed = true;
     }},
    {[](const Job& job, const Config& config) {
       return GroupDue(job.workers, config.group_timeout);
     },
     StopWaitingForGroups},
    {[](const Job& job, const Config& config) {
       const bool waits = job.state() == JobState::kRecovering &&
                          !job.generations.IsPending(PendingChange::Kind::kRecovery);
       return waits ? job.evidence.Due(config) : absl::InfiniteFuture();
     },
     TryRecover},
    {UnreachableDue, GoOnWithoutUnreachable},
    {[](const Job& job, const Config&) { return job.why_not_running.due(); }, ReportWhyNotRunning},
    {[](const Job& job, const Config& config) { return job.pause.Due(config); }, ReportPause},
    {[](const Job& job, const Config& config) {
       const bool counts = config.max_job_rounds != 0 && job.state() == JobState::kRunning;
       return counts && job.lanes.AnyPaced() ? job.pace.Next(config) : absl::InfiniteFuture();
     },
     SendPaced},
    // The coordinator forgets the job.
    {[](const Job& job, const Config& config) { return job.IdleDue(config); }, nullptr},
};

}  // namespace

void CheckTimers(Job& job, const JobScope& scope) {
  for (const Timer& timer : kTimers) {
    if (timer.fire != nullptr && scope.now >= timer.due(job, scope.config)) {
      timer.fire(job, scope);
    }
  }
}

bool LoseIfGone(Job& job, const JobScope& scope, Slot slot, const UnheardSession& seen,
                absl::Duration age) {
  const Worker& worker = job.workers[slot];
  const absl::Duration lease = scope.config.unreachable();
  // What is silent by the clock of the job was so while this process ran.
  const absl::Duration silent = scope.now - worker.last_message;
  if (age > kMostAge || std::min(seen.unheard, silent) < lease) return false;
  if (seen.unanswered < kLeastUnanswered || !HearsAnother(job, scope, slot)) return false;
  Lose(job, scope, slot, NoteKind::kWorkerLost,
       absl::StrCat("was silent, and its machine has acknowledged nothing for ",
                    absl::FormatDuration(seen.unheard)),
       Error{ErrorCode::kEvicted,
             absl::StrCat("Worker ", worker.id, " of job ", job.name, " was silent for ",
                          absl::FormatDuration(silent),
                          ", and its machine acknowledged nothing meanwhile, as if it had no power "
                          "or no network. Rejoin with state; no restart needed.")});
  return true;
}

absl::Time NextTimer(const Job& job, const Config& config) {
  absl::Time next = absl::InfiniteFuture();
  for (const Timer& timer : kTimers) next = std::min(next, timer.due(job, config));
  return next;
}

}  // namespace basin::aggregator
