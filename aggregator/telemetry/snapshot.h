// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The state of the engine at one moment, for metrics, copied out of its loop.
//
// Thread contract: a plain value. LookAt is called from the engine's loop.

#ifndef BASIN_AGGREGATOR_TELEMETRY_SNAPSHOT_H_
#define BASIN_AGGREGATOR_TELEMETRY_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/goodput.h"
#include "aggregator/engine/runner.h"
#include "aggregator/telemetry/memory_use.h"

namespace basin::aggregator {

// Workers beyond this number have no series of their own, so that the number of series is bounded.
inline constexpr size_t kMostWorkerSeries = 256;

// The same for the tensors of a lane.
inline constexpr size_t kMostTensorSeries = 256;

// The value of a committed round, without its numbers.
struct ResultSnapshot {
  RoundSpec spec;  // The one that was used.
  Generation generation;
  uint32_t world_size = 0;
  uint32_t contract_version = 0;
  uint64_t contributors = 0;
  uint64_t divisor = 0;
  uint64_t sum_of_weights = 0;
  Counts effective_batch;
  bool overflow = false;
  std::optional<double> norm;                                // Absent if there is none.
  std::vector<std::pair<std::string, double>> tensor_norms;  // The norms of the first tensors.
  std::optional<NonFinite> nonfinite;
  std::string nonfinite_tensor;  // Its name.
};

struct LaneSnapshot {
  std::string lane;
  RoundNumber round = 0;  // Open, or the next.
  bool open = false;
  uint32_t without_credit = 0;         // Members that wait for room.
  std::optional<ResultSnapshot> last;  // The last committed round that is remembered.
};

// What is known of a member's part in the rounds that counted it.
struct MemberSnapshot {
  WorkerId worker;
  Lateness lateness;
  absl::Duration waited_for;  // By all members together.
};

struct JobSnapshot {
  JobName job;
  std::string state;
  uint64_t generation = 0;                                        // Its counter.
  std::vector<std::pair<std::string, uint32_t>> workers;          // How many are in each state.
  std::vector<std::pair<WorkerId, absl::Duration>> last_message;  // Members, at most so many.
  std::vector<LaneSnapshot> lanes;
  GoodputView goodput;
  std::vector<MemberSnapshot> members;  // At most so many, if a round counted them.
};

struct Snapshot {
  std::vector<JobSnapshot> jobs;
  RunnerCounters counters;
  uint64_t reserved_bytes = 0;
  uint64_t limit_bytes = 0;
  LoopMemory loop_memory;
  std::vector<MemoryUse> memory;  // Filled in by whoever knows the other parts.
  uint64_t sessions = 0;
  uint64_t streams = 0;
  bool draining = false;
};

Snapshot LookAt(const Runner& runner, absl::Time now);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_SNAPSHOT_H_
