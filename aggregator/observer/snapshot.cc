// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/observer/snapshot.h"

#include <cmath>

#include "absl/strings/ascii.h"

namespace basin::aggregator {
namespace {

constexpr WorkerState kStates[] = {WorkerState::kAdmitted, WorkerState::kCandidate,
                                   WorkerState::kSpare, WorkerState::kMember,
                                   WorkerState::kFinished};

// The words of basin.v1.JobState.
std::string StateOf(const Job& job) {
  if (job.over()) return "finished";
  if (job.state() == JobState::kForming) return "starting";
  if (job.state() == JobState::kRunning && job.suspended()) return "suspended";
  if (job.state() == JobState::kRunning && job.Paused()) return "paused";
  return absl::AsciiStrToLower(JobStateName(job.state()));
}

LaneSnapshot LookAt(const Lane& lane) {
  LaneSnapshot snapshot;
  snapshot.lane = lane.name;
  snapshot.round = lane.next;
  snapshot.open = lane.Open();
  if (lane.round.has_value()) snapshot.without_credit = lane.round->WithoutCredit();
  for (const VerdictRecord& record : lane.verdicts) {
    if (record.value.outcome != Outcome::kCommitted) continue;
    snapshot.last = {std::sqrt(record.value.facts.squared_norm), record.value.contributors.size(),
                     record.value.divisor, record.value.facts.totals};
  }
  return snapshot;
}

JobSnapshot LookAt(const Job& job, absl::Time now) {
  JobSnapshot snapshot;
  snapshot.job = job.name();
  snapshot.state = StateOf(job);
  snapshot.generation = job.membership().generation.counter;
  for (const WorkerState state : kStates) {
    snapshot.workers.emplace_back(absl::AsciiStrToLower(WorkerStateName(state)),
                                  job.workers().Count(state));
  }
  for (const auto& [id, slot] : job.workers().by_id()) {
    if (snapshot.last_heard.size() == kMostWorkerSeries) break;
    const Worker& worker = job.workers()[slot];
    if (worker.state != WorkerState::kMember) continue;
    snapshot.last_heard.emplace_back(id, now - worker.last_heard);
  }
  for (const Lane& lane : job.lanes()) {
    if (lane.kind == LaneKind::kGradient) snapshot.lanes.push_back(LookAt(lane));
  }
  return snapshot;
}

}  // namespace

Snapshot LookAt(const Runner& runner, absl::Time now) {
  Snapshot snapshot;
  for (const auto& [id, job] : runner.core().jobs()) snapshot.jobs.push_back(LookAt(job, now));
  snapshot.counters = runner.counters();
  snapshot.reserved_bytes = runner.core().reserved_bytes();
  snapshot.limit_bytes = runner.core().config().memory_bytes;
  snapshot.parked_bytes = runner.parked_bytes();
  snapshot.result_bytes = runner.result_bytes();
  snapshot.sessions = runner.sessions();
  snapshot.streams = runner.streams();
  snapshot.draining = runner.core().draining();
  return snapshot;
}

}  // namespace basin::aggregator
