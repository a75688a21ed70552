// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/admin/shards_view.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/admin/view.h"
#include "aggregator/core/job.h"
#include "aggregator/core/job_placement.h"
#include "aggregator/core/shards.h"

namespace basin::aggregator {
namespace {

constexpr uint64_t kSlowTimes = 2;
constexpr uint64_t kSlowByNs = 5'000'000;

// The bytes of one contribution to the job's gradient lanes, by shard.
std::map<ShardId, uint64_t> PartsOf(const Job& job) {
  std::map<ShardId, uint64_t> parts;
  for (const Lane& lane : job.lanes) {
    if (lane.kind != LaneKind::kGradient) continue;
    if (lane.shares.single()) {
      parts[lane.shares.First()] += lane.layout.bytes();
      continue;
    }
    for (TensorIndex tensor = 0; tensor < lane.layout.version(); ++tensor) {
      lane.shares.Split(lane.layout, {tensor, 0, lane.layout.TensorChunks(tensor)},
                        [&](ShardId shard, const ChunkRange& part) {
                          parts[shard] += lane.layout.RangeBytes(part);
                        });
    }
  }
  return parts;
}

// `lived`: the clock of jobs (Coordinator::Lived).
void AddOutOfReach(const Job& job, ShardId shard, absl::Time lived, v1::ShardOfJob& status) {
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    const auto found = worker.unreachable.find(shard);
    if (worker.state == WorkerState::kLost || found == worker.unreachable.end()) continue;
    v1::ShardOutOfReach& entry = *status.add_out_of_reach();
    entry.set_worker(worker.id);
    entry.set_since_ns(Nanoseconds(lived - found->second.since));
    entry.set_why(found->second.why);
  }
}

void AddJobs(const Coordinator& core, absl::Time lived, v1::ListShardsResponse& shards) {
  std::map<JobName, const Job*> by_name;
  for (const auto& [id, job] : core.jobs()) by_name[job.name] = &job;
  for (const auto& [name, job] : by_name) {
    const std::map<ShardId, uint64_t> parts = PartsOf(*job);
    uint64_t all = 0;
    for (const auto& [shard, bytes] : parts) all += bytes;
    for (v1::ShardStatus& shard : *shards.mutable_shards()) {
      v1::ShardOfJob& status = *shard.add_jobs();
      status.set_job(name);
      const auto part = parts.find(shard.shard());
      if (part != parts.end()) status.set_bytes(part->second);
      status.set_job_bytes(all);
      status.set_left_out(WhyWithout(*job, core.shards(), shard.shard()));
      AddOutOfReach(*job, shard.shard(), lived, status);
    }
  }
}

}  // namespace

v1::ListShardsResponse ShardsOf(const Runner& runner, absl::Time now) {
  v1::ListShardsResponse response;
  v1::ShardStatus& own = *response.add_shards();
  const RunnerCounters counters = runner.counters();
  own.set_contribution_bytes(counters.contribution_bytes);
  own.set_result_bytes(counters.result_bytes);
  own.set_reductions(counters.reductions);
  own.set_parked_bytes(runner.parked_bytes());
  own.set_held_result_bytes(runner.result_bytes());
  own.set_memory_bytes(runner.core().config().memory_bytes);
  own.set_reduce_ns(Nanoseconds(runner.reduce_times().Median()));
  for (const auto& [id, shard] : runner.core().shards()) {
    v1::ShardStatus& status = *response.add_shards();
    status.set_shard(id);
    status.set_name(shard.name);
    status.set_endpoint(shard.endpoint);
    status.set_draining(shard.drains_since.has_value());
    status.set_memory_bytes(shard.memory);
    const ShardStanding* const standing = runner.remote_shards().StandingOf(id);
    if (standing == nullptr) continue;
    status.set_up_ns(Nanoseconds(now - standing->up));
    status.set_last_event_ns(Nanoseconds(now - standing->last_event));
    status.set_contribution_bytes(standing->use.contribution_bytes);
    status.set_result_bytes(standing->use.result_bytes);
    status.set_reductions(standing->use.reductions);
    status.set_parked_bytes(standing->use.parked_bytes);
    status.set_held_result_bytes(standing->use.held_result_bytes);
    status.set_reduce_ns(Nanoseconds(standing->reduce_times.Median()));
  }
  AddJobs(runner.core(), runner.core().Lived(now), response);
  MarkSlow(response);
  return response;
}

void MarkSlow(v1::ListShardsResponse& shards) {
  for (v1::ShardStatus& shard : *shards.mutable_shards()) {
    std::vector<uint64_t> others;
    for (const v1::ShardStatus& other : shards.shards()) {
      if (other.shard() != shard.shard() && other.reduce_ns() > 0) {
        others.push_back(other.reduce_ns());
      }
    }
    if (others.empty()) continue;
    const auto middle = others.begin() + static_cast<ptrdiff_t>(others.size() / 2);
    std::nth_element(others.begin(), middle, others.end());
    shard.set_slow(shard.reduce_ns() >= kSlowTimes * *middle &&
                   shard.reduce_ns() >= *middle + kSlowByNs);
  }
}

}  // namespace basin::aggregator
