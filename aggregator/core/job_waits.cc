// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Heartbeats report the rounds that trainers wait in. Calls go on without a joiner that waits
// elsewhere, and rounds of workers that wait for each other are aborted.

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/job_messages.h"
#include "aggregator/core/job_rounds.h"
#include "aggregator/core/names.h"
#include "aggregator/core/round_members.h"
#include "aggregator/core/round_settle.h"

namespace basin::aggregator {
namespace {

// The text of a deadlock names at most this many workers of a round.
constexpr size_t kNamedWaiting = 3;

// While the worker is out of step and waits in another round, calls that it has not begun go on
// without it.
void LeaveOutOfStep(Job& job, const JobScope& scope, Slot slot) {
  if (!job.workers[slot].out_of_step) return;
  for (const RoundWait& wait : job.workers[slot].waits) {
    const Round* round = job.lanes.RoundOf(wait);
    if (round == nullptr || !round->Has(slot)) continue;
    if (round->TakesPart(slot)) return LeaveOutOfCalls(job, scope, slot);
  }
}

// Aborts rounds that nobody will begin: every member has waited for long in a round that another
// member has not begun. The reason names all of them. Another thread of a trainer might still begin
// such a round; the timeout allows for that.
void EndDeadlock(Job& job, const JobScope& scope) {
  if (job.state() != JobState::kRunning || job.Paused()) return;
  std::map<LaneIndex, std::vector<WorkerId>> waiting;
  for (const auto& [id, slot] : job.workers.by_id()) {
    const Worker& worker = job.workers[slot];
    if (worker.state != WorkerState::kMember || worker.finishing) continue;
    const bool long_ago = scope.now >= worker.waits_since + scope.config.deadlock_timeout;
    if (!worker.connected() || worker.waits.empty() || !long_ago) return;
    for (const RoundWait& wait : worker.waits) {
      const Round* round = job.lanes.RoundOf(wait);
      if (round == nullptr || !round->Has(slot) || !round->AwaitsBegin()) return;
      waiting[wait.lane].push_back(id);
    }
  }
  const auto describe = [&](std::string* text, const auto& entry) {
    const auto& [index, ids] = entry;
    absl::StrAppend(text, ids.size() == 1 ? "worker " : "workers ", NamesOf(ids, kNamedWaiting),
                    ids.size() == 1 ? " waits" : " wait", " in round ", job.lanes[index].next,
                    " of lane ", job.lanes[index].name);
  };
  const std::string reason =
      absl::StrCat("the workers wait for each other: ", absl::StrJoin(waiting, ", ", describe),
                   ". A retry alone fails in the same way: make the same calls in the same order "
                   "on every worker, and call finished() on a worker that has run out of data");
  for (const auto& [index, ids] : waiting) {
    // The end of one round may have ended others.
    if (!job.lanes.Has(index) || !job.lanes[index].round.has_value()) continue;
    if (!job.lanes[index].round->AwaitsBegin()) continue;
    EndDeadlock(*job.lanes[index].round, ScopeOf(job, scope, index), reason);
    AdvanceLane(job, scope, index);
  }
}

}  // namespace

void OnWaits(Job& job, const JobScope& scope, Slot slot, const std::vector<RoundWait>& waits) {
  Worker& worker = job.workers[slot];
  if (waits != worker.waits) {
    // A trainer waits in a lane at most once, so only a broken client sends a longer list.
    worker.waits = waits.size() <= job.lanes.size() ? waits : std::vector<RoundWait>{};
    worker.waits_since = scope.now;
  }
  const bool long_ago = scope.now >= worker.waits_since + scope.config.deadlock_timeout;
  LeaveOutOfStep(job, scope, slot);
  // A large job cannot afford to look at all workers for every heartbeat of each.
  if (!long_ago || scope.now < job.deadlock_check) return;
  job.deadlock_check = scope.now + scope.config.heartbeat;
  EndDeadlock(job, scope);
}

void LeaveOutOfCalls(Job& job, const JobScope& scope, Slot slot) {
  ForRoundsOf(job, scope, slot, [&](Round& round, const RoundScope& in) {
    LeaveOut(round, in, slot);
    AdvanceLane(job, scope, in.index);
  });
}

}  // namespace basin::aggregator
