// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/aggregator_store.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::explore {
namespace {

AggregatorSummary Summarize(const AggregatorProcess& process) {
  AggregatorSummary summary;
  summary.term = process.term();
  summary.reducing = process.Reducing();
  summary.window_runs = process.WindowRuns();
  summary.grace_runs = process.GraceEnd() != absl::InfiniteFuture();
  summary.start_timeout_runs = process.StartTimeoutRuns();
  summary.vacate_runs = process.VacateAt() != absl::InfiniteFuture();
  summary.shard_grace_runs = process.UnreachableEnd() != absl::InfiniteFuture();
  for (const auto& [slot, shard] : process.shards()) {
    summary.shards[slot] = {true, shard.alive(), shard.Reducing(), shard.Reports(),
                            shard.draining()};
  }
  for (uint32_t i = 0; i < process.jobs(); ++i) {
    const aggregator::Job* job = process.FindJob(i);
    for (uint32_t w = 0; job != nullptr && w < kMaxWorkers; ++w) {
      const std::optional<aggregator::Slot> slot = job->workers.Find(absl::StrCat("w", w));
      if (!slot.has_value()) continue;
      const aggregator::Worker& worker = job->workers[*slot];
      if (worker.state != aggregator::WorkerState::kLost) summary.known[w] = worker.nonce;
      summary.member[w] = worker.state == aggregator::WorkerState::kMember;
    }
  }
  return summary;
}

}  // namespace

AggregatorStore::AggregatorStore(Birth birth, Step step, size_t cached)
    : birth_(std::move(birth)), step_(std::move(step)), cache_(cached) {}

uint32_t AggregatorStore::Add(AggregatorProcess process, const AggregatorOrigin& origin) {
  const auto [it, added] =
      ids_.try_emplace(Fingerprint::Of(process), static_cast<uint32_t>(entries_.size()));
  if (added) {
    entries_.push_back({origin, Summarize(process)});
    EntryOf(it->second).emplace(it->second, std::move(process));
  }
  return it->second;
}

const AggregatorProcess& AggregatorStore::Get(uint32_t id) {
  if (Has(id)) return EntryOf(id)->second;
  std::vector<uint32_t> steps;  // The last step comes first.
  uint32_t from = id;
  while (from != AggregatorOrigin::kBorn && !Has(from)) {
    steps.push_back(from);
    from = entries_[from].origin.parent;
  }
  std::optional<AggregatorProcess> process;
  if (from == AggregatorOrigin::kBorn) {
    process.emplace(birth_(entries_[steps.back()].origin));
    steps.pop_back();
  } else {
    process.emplace(EntryOf(from)->second);
  }
  for (; !steps.empty(); steps.pop_back()) {
    step_(*process, entries_[steps.back()].origin);
    ++remade_;
  }
  EntryOf(id).emplace(id, *std::move(process));
  return EntryOf(id)->second;
}

}  // namespace basin::explore
