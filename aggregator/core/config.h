// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What an operator may set, as the core sees it: timeouts, bounds, policies.
//
// Thread contract: a plain value, constant after construction of the Coordinator.

#ifndef BASIN_AGGREGATOR_CORE_CONFIG_H_
#define BASIN_AGGREGATOR_CORE_CONFIG_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "absl/time/time.h"
#include "aggregator/core/rules.h"
#include "protocol/messages.h"
#include "protocol/round.h"

namespace basin::aggregator {

enum class LossPolicy : uint8_t { kShrink = 0, kAbort = 1 };
enum class LatePolicy : uint8_t { kWait = 0, kEvict = 1, kLeaveOut = 2, kCarry = 3 };
// Whether rounds go on without those who are late.
inline bool LeavesOut(LatePolicy policy) {
  return policy == LatePolicy::kLeaveOut || policy == LatePolicy::kCarry;
}
inline const char* NameOf(LossPolicy policy) {
  return policy == LossPolicy::kAbort ? "abort" : "shrink";
}
inline const char* NameOf(LatePolicy policy) {
  switch (policy) {
    case LatePolicy::kWait:
      break;
    case LatePolicy::kEvict:
      return "evict";
    case LatePolicy::kLeaveOut:
      return "leave_out";
    case LatePolicy::kCarry:
      return "carry";
  }
  return "wait";
}
enum class RecoveryPolicy : uint8_t { kMajority = 0, kAny = 1 };

// The settings of a job in which an operator has changed something.
struct ChangedSettings {
  JobSettings declared;  // By the first hello of the run.
  JobSettings settings;
  // Where an operator has set other ones than the configuration has.
  std::optional<LossPolicy> loss_policy;
  std::optional<LatePolicy> late_policy;
  auto Fields() const { return std::tie(declared, settings, loss_policy, late_policy); }
};

// What was read from the state file about a job: a generation, and what an operator had changed.
struct SavedState {
  RunId run;
  Term term = 0;
  Membership membership;
  std::optional<ChangedSettings> settings = std::nullopt;
  auto Fields() const { return std::tie(run, term, membership, settings); }
};

struct Config {
  Term term = 1;  // At least one higher than any term used before, or unix seconds.
  // Random, so that two processes which receive the same terms never share one; see TermAbove().
  uint64_t term_random = 0;

  uint32_t max_streams = 64;  // Data streams of a session. The engine sets the protocol's limit.

  absl::Duration heartbeat = absl::Milliseconds(500);
  absl::Duration lease = absl::Seconds(5);                      // For a worker that went silent.
  absl::Duration unreachable_lease = absl::Milliseconds(1500);  // Its machine seems to be gone.
  absl::Duration closed_lease = absl::Milliseconds(75);         // Its process seems to have ended.
  absl::Duration recovery_window = absl::Seconds(8);
  absl::Duration late_warning = absl::Seconds(5);
  absl::Duration evict_late_after = absl::InfiniteDuration();
  // If they leave out: this part of the contributions is a quorum, and rounds wait at least so long
  // for the others.
  uint32_t quorum_percent = 66;
  absl::Duration grace = absl::Milliseconds(100);
  // How long workers may wait for each other in different rounds until the rounds are aborted.
  absl::Duration deadlock_timeout = absl::Seconds(5);
  absl::Duration pause_timeout = absl::InfiniteDuration();
  absl::Duration start_timeout = absl::Minutes(5);
  // A worker with so many fruitless joins in a row is refused for the pause; see JoinGuard. 0:
  // none.
  uint32_t fruitless_joins = 0;
  absl::Duration join_pause = absl::Minutes(10);
  // How long a ready worker waits for the others of its group, with which it joins.
  absl::Duration group_timeout = absl::Minutes(1);
  absl::Duration drain_grace = absl::Seconds(30);
  absl::Duration stall_threshold = absl::Milliseconds(500);
  absl::Duration idle_job_timeout = absl::Minutes(10);   // For a job without connected workers.
  absl::Duration idle_lane_timeout = absl::Minutes(10);  // For a call lane without use.

  // How many standard deviations the norm of a contribution may be from what is usual in its lane
  // until its worker is named. 0: any.
  uint32_t norm_alarm = 6;

  LossPolicy loss_policy = LossPolicy::kShrink;
  LatePolicy late_policy = LatePolicy::kWait;
  RecoveryPolicy recovery_policy = RecoveryPolicy::kMajority;

  uint64_t memory_bytes = uint64_t{4} << 30;  // Parked + accumulating + unacknowledged results.
  uint64_t frame_bytes = uint64_t{1} << 20;   // A multiple of kChunkBytes.
  uint32_t frame_tensors = 1;                 // In one frame. The engine sets the limit.
  // Features of the protocol that sessions may use, besides frames of several tensors. The engine
  // sets what it can do.
  uint64_t features = 0;
  uint64_t window_bytes = uint64_t{16} << 20;  // Parked per worker and lane, when there is room.
  // Unacknowledged results per lane, when there is room; more with many shards (PlanLaneMemory).
  uint64_t result_window_bytes = uint64_t{8} << 20;
  uint64_t least_share = kLeastShare;  // See Placement::least_bytes.
  // Whether shard 0 holds a part of the chunks while there are others.
  bool coordinator_share = true;
  // How long a worker may not reach a shard until its job goes on without the shard.
  absl::Duration shard_grace = absl::Seconds(10);

  // Limits of each job, so that one cannot take everything. 0: no limit of its own.
  uint64_t max_job_bytes = 0;   // Its share of memory_bytes, without broadcast values.
  uint32_t max_job_rounds = 0;  // Verdicts per second, in all lanes together.

  // Sessions from one address, in all jobs together. 0: any number. A process that returns is
  // admitted beyond it.
  uint32_t max_address_sessions = 4096;

  uint32_t max_jobs = 64;
  uint32_t max_team_jobs = 0;                   // Per team (TeamOf). 0: no limit of its own.
  uint32_t max_workers = 10000;                 // Per job.
  uint32_t max_lanes = 1024;                    // Per job, without calls that were idle for long.
  uint32_t max_lane_names = 2048;               // Per job; half of them are let go when idle.
  uint32_t max_tensors = 65536;                 // Per lane.
  uint64_t max_lane_bytes = uint64_t{1} << 40;  // One copy of its tensors.
  uint32_t max_values = 65536;                  // Broadcast values per job.
  // The longest hello, which reports all lanes of a job; at most the longest message.
  uint64_t max_history_bytes = uint64_t{64} << 20;

  // How long nothing may arrive from a worker before it counts as silent: a heartbeat may be late,
  // or lost with the connection that carried it.
  absl::Duration silence() const { return 2 * heartbeat; }

  // How long nothing may arrive from the machine of a worker, whatever unreachable_lease is: one
  // late heartbeat loses nobody, and without any sign of the machine the lease is the limit anyway.
  absl::Duration unreachable() const {
    return std::min(lease, std::max(unreachable_lease, 3 * heartbeat));
  }

  bool state_file = false;  // Announce a generation only after StateSaved.
  std::map<JobName, SavedState> saved;

  Rules rules;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_CONFIG_H_
