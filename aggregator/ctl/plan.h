// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// `basinctl plan`: what a job will take, computed from its size and the network. The network is the
// only limit that is counted for time; docs/performance.md has what a byte costs a processor.
//
// Thread contract: pure functions, but for RunPlan, which prints.

#ifndef BASIN_AGGREGATOR_CTL_PLAN_H_
#define BASIN_AGGREGATOR_CTL_PLAN_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/ctl/arguments.h"

namespace basin::aggregator {

struct PlannedJob {
  uint32_t workers = 0;      // At least 1.
  uint64_t model_bytes = 0;  // One gradient; at least 1.
  double nic_bits = 0;       // A worker's machine, per second and direction; above 0.
  // The machine of the aggregator and that of each shard; 0: the same.
  double shard_nic_bits = 0;
  absl::Duration round_trip;

  double holder_bits() const { return shard_nic_bits > 0 ? shard_nic_bits : nic_bits; }
};

inline constexpr uint64_t kAnyModel = ~uint64_t{0};

struct Plan {
  // A round through the aggregator: all contributions enter it while all results leave it.
  absl::Duration round;
  // An all-reduce of the same in a ring of the workers.
  absl::Duration ring;
  // The network of the aggregator with which a round takes as long as the ring, in bits a second.
  // Absent: more bandwidth does not help, because the ring is faster than two round trips.
  std::optional<double> even_nic_bits;
  // The largest model for which a round is no slower than the ring; 0: none; kAnyModel: with this
  // network of the aggregator there is no largest one.
  uint64_t even_model_bytes = 0;
  // The memory of the aggregator for one lane: to work at all, and with full windows.
  uint64_t least_memory = 0;
  uint64_t full_memory = 0;
  // Processor time of the aggregator for a round, and how many of its cores are busy meanwhile.
  absl::Duration cpu;
  double cores = 0;
};

Plan PlanOf(const PlannedJob& job);

absl::Status RunPlan(const Arguments& arguments);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_PLAN_H_
