// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the memory budget is shared out. A lane of N workers gets N windows for parked
// contributions, one frame widened for the accumulator, and a window of results that not all
// workers have acknowledged yet. The least it can work with is one frame of each. What a round
// knows of its chunks is charged as well, from the moment a tensor is registered; so is the
// tensor's description, for as long as the lane keeps its name.
//
// The part for the lanes' windows, accumulators and results is needed once more at each shard. So
// it grows no further than the smallest shard in use allows, unless a lane could not work
// otherwise; then that one gets the least, and the jobs go on without that shard.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_AGGREGATOR_CORE_MEMORY_H_
#define BASIN_AGGREGATOR_CORE_MEMORY_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>

#include "aggregator/core/config.h"
#include "aggregator/core/footprint.h"
#include "protocol/tensor.h"

namespace basin::aggregator {

// u8 is accumulated in int64: the widest an accumulator gets.
inline constexpr uint64_t kWidening = 8;

// What a round knows of a chunk. For each worker: a digest, and whether its chunk is there, was
// there, was acknowledged, was asked for. Once: state, counts, digest, norm and place in the queue.
inline uint64_t TrackingBytes(uint64_t workers, uint32_t chunks) {
  return chunks * (workers * 9 + 40);
}

// The most bytes that a tensor's description takes in a message: its name, ten for each size, and
// what stands around them.
inline uint64_t SpecBytes(const TensorSpec& spec) {
  return spec.name.size() + 10 * spec.shape.size() + 16;
}

// What an entry of a layout takes of memory: the description here and in the engine, which finds
// tensors by their numbers, and the name once more in the index.
inline uint64_t EntryBytes(const TensorSpec& spec) {
  constexpr uint64_t kIndexBytes = 96;  // A node of the index, and where the tensor's chunks begin.
  return 2 * Footprint::Of(spec) + Footprint::Of(spec.name) + kIndexBytes;
}

// What the descriptions of a lane's tensors take.
struct LayoutBytes {
  uint64_t sent = 0;  // SpecBytes of all.
  uint64_t held = 0;  // EntryBytes of all.
  void Add(const TensorSpec& spec) {
    sent += SpecBytes(spec);
    held += EntryBytes(spec);
  }
};

struct MemoryBudget {
  static constexpr uint64_t kNoBound = std::numeric_limits<uint64_t>::max();

  uint64_t total = 0;
  uint64_t reserved = 0;
  uint64_t cached = 0;    // The part of it for broadcast values, which may be dropped at any time.
  bool shortage = false;  // Others need what is cached; it is dropped before Step returns.
  uint64_t windows = 0;   // The part of it that each shard needs as well.
  uint64_t at_shards = kNoBound;  // What the smallest shard in use has for that.
  uint64_t free() const { return total - reserved; }
  // Charges so much more for windows; modulo 2^64, so that it can be less.
  void ChargeWindows(uint64_t more) {
    reserved += more;
    windows += more;
  }
  uint64_t free_at_shards() const { return at_shards - std::min(at_shards, windows); }
  auto Fields() const { return std::tie(total, reserved, cached, shortage, windows, at_shards); }
};

// What a lane may use. All zero: it waits for memory, and no worker may push.
struct LaneMemory {
  uint64_t frame = 0;          // The largest frame the lane can have.
  uint64_t window = 0;         // Parked bytes per worker.
  uint64_t result_window = 0;  // Published bytes not acknowledged by all.
  uint64_t reserved = 0;       // Charged to the budget for all of it.
  auto Fields() const { return std::tie(frame, window, result_window, reserved); }
};

inline uint64_t ChargeOf(const LaneMemory& lane, uint64_t workers) {
  return workers * lane.window + kWidening * lane.frame + lane.result_window;
}

// The least that lets a lane of `workers` workers and `bytes` bytes make progress.
inline LaneMemory LeastLaneMemory(const Config& config, uint64_t workers, uint64_t bytes) {
  LaneMemory least;
  const uint64_t whole = std::max<uint64_t>(bytes, 1);
  least.frame = std::min(config.frame_bytes, whole);
  least.window = least.frame;
  least.result_window = least.frame;
  least.reserved = ChargeOf(least, workers);
  return least;
}

// The same for a lane that has `held` already: windows that were announced are not taken back.
// Empty when that much is not free.
inline std::optional<LaneMemory> LeastBeside(const Config& config, uint64_t workers, uint64_t bytes,
                                             uint64_t free, const LaneMemory& held) {
  LaneMemory plan = LeastLaneMemory(config, workers, bytes);
  plan.window = std::max(plan.window, held.window);
  plan.result_window = std::max(plan.result_window, held.result_window);
  plan.reserved = ChargeOf(plan, workers);
  if (plan.reserved > free + held.reserved) return std::nullopt;
  return plan;
}

// The most that is useful, but at most half of what is free beyond the least, so that other lanes
// and jobs find room. Empty when not even the least is free. All `shards` share the window of
// results, so that two frames for each are useful even if the config asks for less: one is reduced
// while the one before is on its way to the workers.
inline std::optional<LaneMemory> PlanLaneMemory(const Config& config, uint64_t workers,
                                                uint64_t shards, uint64_t bytes, uint64_t free,
                                                const LaneMemory& held) {
  std::optional<LaneMemory> least_plan = LeastBeside(config, workers, bytes, free, held);
  if (!least_plan.has_value()) return std::nullopt;
  LaneMemory& plan = *least_plan;
  const uint64_t least = LeastLaneMemory(config, workers, bytes).reserved;
  // Counted from the least, so that a lane whose layout grows step by step gets no more.
  const uint64_t share = least + (free + held.reserved - least) / 2;
  const uint64_t spare = share - std::min(share, plan.reserved);
  const auto grow = [&](uint64_t& window, uint64_t useful, uint64_t room) {
    useful = std::min(useful, std::max<uint64_t>(bytes, 1));
    if (window < useful) window += std::min(useful - window, room);
  };
  const uint64_t for_shards = shards > 1 ? 2 * plan.frame * shards : 0;
  grow(plan.result_window, std::max(config.result_window_bytes, for_shards), spare / 4);
  grow(plan.window, config.window_bytes, (spare - spare / 4) / workers);
  plan.reserved = ChargeOf(plan, workers);
  return plan;
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_MEMORY_H_
