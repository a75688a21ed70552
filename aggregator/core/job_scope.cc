// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_scope.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {

RoundScope ScopeOf(const Job& job, const JobScope& scope, LaneIndex index) {
  const Lane& lane = job.lanes[index];
  const JobContext view{job.id,
                        job.name,
                        job.workers,
                        job.membership(),
                        job.lanes,
                        job.standing.stands(),
                        job.loss_policy(scope.config),
                        job.LatePolicyNow(scope.config),
                        job.settings().min_workers};
  return {scope.now, scope.config, scope.actions, view, index, lane, job.PausedIn(lane)};
}

BlobScope BlobScopeOf(const Job& job, const JobScope& scope) {
  const bool paused = job.state() == JobState::kRunning && job.Paused();
  return BlobScope{scope.now, scope.config, scope.memory, scope.actions,
                   job.id,    job.name,     job.workers,  paused ? job.reason : std::string()};
}

Note& AddNote(const Job& job, const JobScope& scope, NoteKind kind, const WorkerId& worker,
              const std::string& text) {
  return std::get<Note>(scope.actions.emplace_back(Note{kind, job.name, worker, "", 0, text}));
}

void SendTo(const Job& job, const JobScope& scope, Slot slot, ToWorker message) {
  const Worker& worker = job.workers[slot];
  if (worker.connected()) scope.actions.push_back(Send{*worker.session, std::move(message)});
}

void RejectMessage(const Job& job, const JobScope& scope, Slot slot, ErrorCode code,
                   const std::string& text, std::optional<LaneIndex> lane, RoundNumber round) {
  Reject(job, scope, slot, Rejected{Error{code, text}, lane, round});
}

void SendToAll(const Job& job, const JobScope& scope, ToWorker message,
               std::optional<Slot> except) {
  SendAll all{{}, std::move(message)};
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    if (worker.connected() && slot != except) all.sessions.push_back(*worker.session);
  }
  if (!all.sessions.empty()) scope.actions.push_back(std::move(all));
}

void Reject(const Job& job, const JobScope& scope, Slot slot, Rejected rejected) {
  AddNote(job, scope, NoteKind::kContributionRejected, job.workers[slot].id,
          absl::StrCat(ErrorCodeName(rejected.error.code), ": ", rejected.error.text));
  SendTo(job, scope, slot, std::move(rejected));
}

}  // namespace basin::aggregator
