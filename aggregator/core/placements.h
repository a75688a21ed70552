// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The placements of a job: the one that its lanes' next rounds use, and those that rounds still
// use. protocol/placement.h has the rule by which a placement spreads chunks.
//
// Shard 0 is the first of each list, so a list is never empty, and what is small is on shard 0. If
// shard 0 is to hold nothing, it counts as lost from the start, until no other one is left.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_PLACEMENTS_H_
#define BASIN_AGGREGATOR_CORE_PLACEMENTS_H_

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "protocol/placement.h"

namespace basin::aggregator {

class Placements {
 public:
  // Its number is 0 while everything is on shard 0.
  const Placement& current() const { return Get(current_); }
  // Returns one that is in use. REQUIRES: the number is that of one, or 0.
  const Placement& Get(PlacementNumber number) const;
  // All that are in use, without number 0, in order.
  const std::map<PlacementNumber, Placement>& all() const { return all_; }

  // Makes these, after shard 0, the shards of the present placement. `coordinator_share`: whether
  // shard 0 holds a part. Returns whether it was another placement.
  bool Choose(const std::vector<PlacedShard>& others, uint64_t least_bytes,
              bool coordinator_share = true);
  // Returns the numbers of the placements that had the shard.
  std::vector<PlacementNumber> Lose(ShardId shard);
  // The same in this placement alone. REQUIRES: it has the shard.
  void Lose(PlacementNumber number, ShardId shard);
  // Forgets those that are neither of these nor the present one.
  void KeepOnly(const std::set<PlacementNumber>& used);

  // A worker of the job cannot reach the shard, so the job does without it.
  void Exclude(ShardId shard) { excluded_.insert(shard); }
  bool Excludes(ShardId shard) const { return excluded_.count(shard) > 0; }

  auto Fields() const { return std::tie(all_, current_, last_, excluded_); }

 private:
  std::map<PlacementNumber, Placement> all_;
  PlacementNumber current_ = 0;
  PlacementNumber last_ = 0;
  std::set<ShardId> excluded_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_PLACEMENTS_H_
