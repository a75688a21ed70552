// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/telemetry/snapshot.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "aggregator/core/job_goodput.h"
#include "aggregator/core/round_summary.h"
#include "aggregator/core/status.h"

namespace basin::aggregator {
namespace {

constexpr WorkerState kStates[] = {WorkerState::kAdmitted, WorkerState::kCandidate,
                                   WorkerState::kSpare, WorkerState::kMember,
                                   WorkerState::kFinished};

ResultSnapshot LookAt(const Layout& layout, const RoundValue& value) {
  ResultSnapshot snapshot;
  snapshot.spec = value.spec;
  snapshot.generation = value.generation;
  snapshot.world_size = value.world_size;
  snapshot.contract_version = value.contract_version;
  snapshot.contributors = TrainersOf(value);
  snapshot.divisor = value.divisor;
  snapshot.sum_of_weights = SumOfWeights(value);
  snapshot.effective_batch = value.facts.totals;
  snapshot.overflow = value.facts.overflow;
  const ResultNorms norms = NormsOf(layout, value);
  snapshot.norm = norms.all;
  for (TensorIndex tensor = 0; tensor < norms.tensors.size(); ++tensor) {
    if (snapshot.tensor_norms.size() == kMostTensorSeries) break;
    if (!norms.tensors[tensor].has_value()) continue;
    snapshot.tensor_norms.emplace_back(layout.tensors()[tensor].name, *norms.tensors[tensor]);
  }
  snapshot.nonfinite = value.facts.nonfinite;
  if (snapshot.nonfinite.has_value() && snapshot.nonfinite->tensor < layout.version()) {
    snapshot.nonfinite_tensor = layout.tensors()[snapshot.nonfinite->tensor].name;
  }
  return snapshot;
}

LaneSnapshot LookAt(const Lane& lane) {
  LaneSnapshot snapshot;
  snapshot.lane = lane.name;
  snapshot.round = lane.next;
  snapshot.open = lane.Open();
  if (lane.round.has_value()) snapshot.without_credit = lane.round->WithoutCredit();
  const auto last = std::find_if(
      lane.verdicts.rbegin(), lane.verdicts.rend(),
      [](const VerdictRecord& record) { return record.value.outcome == Outcome::kCommitted; });
  if (last != lane.verdicts.rend()) snapshot.last = LookAt(lane.layout, last->value);
  return snapshot;
}

JobSnapshot LookAt(const Job& job, const Coordinator& core, absl::Time lived) {
  JobSnapshot snapshot;
  snapshot.job = job.name;
  snapshot.state = JobStatusName(StatusOf(job, core.draining()));
  snapshot.generation = job.membership().generation.counter;
  for (const WorkerState state : kStates) {
    snapshot.workers.emplace_back(absl::AsciiStrToLower(WorkerStateName(state)),
                                  job.workers.Count(state));
  }
  for (const auto& [id, slot] : job.workers.by_id()) {
    if (snapshot.last_message.size() == kMostWorkerSeries) break;
    const Worker& worker = job.workers[slot];
    if (worker.state != WorkerState::kMember) continue;
    snapshot.last_message.emplace_back(id, lived - worker.last_message);
    const Lateness lateness = job.goodput.LatenessOf(slot);
    if (lateness.rounds == 0) continue;
    const auto waited = job.goodput.waited_for().find(id);
    snapshot.members.push_back(
        {id, lateness,
         waited == job.goodput.waited_for().end() ? absl::ZeroDuration() : waited->second});
  }
  for (const Lane& lane : job.lanes) {
    if (lane.kind == LaneKind::kGradient) snapshot.lanes.push_back(LookAt(lane));
  }
  snapshot.goodput = GoodputAsOf(job, core.config(), lived);
  return snapshot;
}

}  // namespace

Snapshot LookAt(const Runner& runner, absl::Time now) {
  Snapshot snapshot;
  const absl::Time lived = runner.core().Lived(now);
  for (const auto& [id, job] : runner.core().jobs()) {
    snapshot.jobs.push_back(LookAt(job, runner.core(), lived));
  }
  snapshot.counters = runner.counters();
  snapshot.reserved_bytes = runner.core().reserved_bytes();
  snapshot.limit_bytes = runner.core().config().memory_bytes;
  snapshot.loop_memory = LookAtMemory(runner);
  snapshot.sessions = runner.sessions();
  snapshot.streams = runner.streams();
  snapshot.draining = runner.core().draining();
  return snapshot;
}

}  // namespace basin::aggregator
