// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How many shards a job is worth, by the model of docs/scale.md: with S processes that hold bytes,
// the aggregator among them, a round of N workers with M bytes each takes
//
//   max(M / network of a worker, N * M / (S * network of a process)) + round trips
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CTL_PLAN_SHARDS_H_
#define BASIN_AGGREGATOR_CTL_PLAN_SHARDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/ctl/plan.h"

namespace basin::aggregator {

// Processor seconds of basind per byte that it receives or sends: docs/performance-notes.md, "Where
// the CPU time goes". On other machines it is another number.
inline constexpr double kCpuSecondsPerByte = 0.41e-9;

absl::Duration TimeOf(double bytes, double bits_per_second);

// What the bytes of a round take with so many processes, without round trips.
absl::Duration NetworkTime(const PlannedJob& job, uint32_t processes);

struct RoundWithShards {
  uint32_t shards = 0;  // Besides the aggregator.
  absl::Duration round;
  uint64_t bytes_each = 0;  // That each process receives in a round, and sends.
  double cores_each = 0;    // Busy meanwhile.
  // All processes together. Workers push in one order, so each may hold all that is under way.
  uint64_t memory_in_all = 0;
};
RoundWithShards RoundWith(const PlannedJob& job, uint32_t shards, uint64_t full_memory);

// With more of them a round is no shorter: the workers' own network is the limit, or a part would
// be smaller than what is spread at all.
uint32_t MostUsefulShards(const PlannedJob& job);

// What is asked; zero: not given.
struct WantedShards {
  uint32_t shards = 0;
  absl::Duration within;  // A round should take no longer.
};

struct ShardsPlan {
  uint32_t most_useful = 0;
  WantedShards wanted;
  std::optional<uint32_t> needed;  // The least for `within`; absent: no number is enough.
  // For 1, 2, 4, ... processes up to the most useful ones, and for what is wanted; ascending.
  std::vector<RoundWithShards> rounds;
};
// `full_memory`: of one aggregator (Plan).
ShardsPlan PlanShards(const PlannedJob& job, uint64_t full_memory, const WantedShards& wanted);

// As a table with a sentence or two.
std::string Show(const ShardsPlan& shards, const Plan& plan);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_PLAN_SHARDS_H_
