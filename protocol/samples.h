// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The samples of an epoch, as positions 0 to n-1 of an order that every worker computes for itself.
//
// Thread contract: plain values.

#ifndef BASIN_PROTOCOL_SAMPLES_H_
#define BASIN_PROTOCOL_SAMPLES_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "protocol/fields.h"
#include "protocol/intervals.h"

namespace basin {

// Samples [begin, end): as positions of an epoch, or of the data set.
using SampleRange = Interval;

// The most samples of an epoch.
inline constexpr uint64_t kMaxEpochSamples = uint64_t{1} << 48;

// An epoch of a lane. All workers of the lane give the same one for a number. Without samples it is
// none.
struct SampleEpoch {
  uint64_t number = 0;
  uint64_t samples = 0;  // Its positions are the numbers below this one.
  uint64_t order = 0;    // A hash of what determines the order: seed, kind, length.
  // The samples of each step over all workers, or 0: each worker trains on what it has leased.
  uint64_t global_batch = 0;
  bool exists() const { return samples > 0; }
  bool has_steps() const { return global_batch > 0; }
  // Whether a position is the same sample in both.
  bool HasOrderOf(const SampleEpoch& other) const {
    return number == other.number && samples == other.samples && order == other.order;
  }
  // REQUIRES: this one exists.
  bool IsAfter(const SampleEpoch& other) const { return !other.exists() || number > other.number; }
  auto Fields() const { return std::tie(number, samples, order, global_batch); }
};

// Positions of an epoch: those that are committed, or those that a worker holds.
struct SampleProgress {
  SampleEpoch epoch;
  std::vector<SampleRange> ranges;  // Ascending, and none touches the next.
  auto Fields() const { return std::tie(epoch, ranges); }
};

// What a round does to the ledger of its lane: it commits the positions that its contributions were
// computed from.
struct RoundSamples {
  SampleEpoch epoch;
  std::vector<SampleRange> ranges;  // As in SampleProgress; of all contributors.
  // What a checkpoint had committed; only in the rounds before the first verdict of the epoch that
  // commits something.
  std::vector<SampleRange> resumed;
  uint64_t committed = 0;  // Positions of the epoch that are committed after this round.
  bool ends_epoch() const { return committed == epoch.samples; }
  auto Fields() const { return std::tie(epoch, ranges, resumed, committed); }
};

// The progress of a lane after a round that was committed.
inline SampleProgress After(const SampleProgress& before, const RoundSamples& round) {
  if (before.epoch.exists() && round.epoch.number < before.epoch.number) return before;
  IntervalSet committed(round.ranges);
  committed.Add(round.epoch.IsAfter(before.epoch) ? round.resumed : before.ranges);
  return {round.epoch, committed.Runs()};
}

}  // namespace basin

#endif  // BASIN_PROTOCOL_SAMPLES_H_
