// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the memory budget is shared out. A lane of N workers gets N windows for parked
// contributions, one frame widened for the accumulator, and a window of results that not everybody
// has acknowledged yet. The least it can work with is one frame of each.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_AGGREGATOR_CORE_MEMORY_H_
#define BASIN_AGGREGATOR_CORE_MEMORY_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>

#include "aggregator/core/config.h"
#include "proto/vocabulary/tensor.h"

namespace basin::aggregator {

// u8 is accumulated in int64: the widest an accumulator gets.
inline constexpr uint64_t kWidening = 8;

struct MemoryBudget {
  uint64_t total = 0;
  uint64_t reserved = 0;
  uint64_t free() const { return total - reserved; }
  auto Fields() const { return std::tie(total, reserved); }
};

// What a lane may use. All zero: it waits for memory, and nobody may push.
struct LaneMemory {
  uint64_t frame = 0;          // The largest frame the lane can have.
  uint64_t window = 0;         // Parked bytes per worker.
  uint64_t result_window = 0;  // Published bytes that somebody has not acknowledged.
  uint64_t reserved = 0;       // Charged to the budget for all of it.
  auto Fields() const { return std::tie(frame, window, result_window, reserved); }
};

// The least that lets a lane of `workers` workers and `bytes` bytes make progress.
inline LaneMemory LeastLaneMemory(const Config& config, uint64_t workers, uint64_t bytes) {
  LaneMemory least;
  const uint64_t whole = std::max<uint64_t>(bytes, 1);
  least.frame = std::min(config.frame_bytes, whole);
  least.window = least.frame;
  least.result_window = least.frame;
  least.reserved = workers * least.window + kWidening * least.frame + least.result_window;
  return least;
}

// As much as is useful, but at most half of what is free, so that other lanes and jobs find room.
// Empty when not even the least is free. `held` is what the lane has already and may keep.
inline std::optional<LaneMemory> PlanLaneMemory(const Config& config, uint64_t workers,
                                                uint64_t bytes, uint64_t free,
                                                const LaneMemory& held) {
  const LaneMemory least = LeastLaneMemory(config, workers, bytes);
  if (least.reserved > free + held.reserved) return std::nullopt;
  const uint64_t whole = std::max<uint64_t>(bytes, 1);
  LaneMemory plan = least;
  const uint64_t spare = std::max(free / 2 + held.reserved, least.reserved) - least.reserved;
  const uint64_t most_results =
      std::max(least.frame, std::min(config.result_window_bytes, whole)) - least.frame;
  const uint64_t most_window =
      std::max(least.frame, std::min(config.window_bytes, whole)) - least.frame;
  const uint64_t more_results = std::min(most_results, spare / 4);
  const uint64_t more_window = std::min(most_window, (spare - more_results) / workers);
  plan.result_window = std::max(least.result_window + more_results, held.result_window);
  plan.window = std::max(least.window + more_window, held.window);
  plan.reserved = workers * plan.window + kWidening * plan.frame + plan.result_window;
  // Windows that were told are not taken back; where they leave no room to grow, keep what is held.
  if (plan.reserved > free + held.reserved) return std::nullopt;
  return plan;
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_MEMORY_H_
