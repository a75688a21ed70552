// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/placements.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace basin::aggregator {

const Placement& Placements::Get(PlacementNumber number) const {
  static const auto* const on_coordinator = new Placement();
  const auto found = all_.find(number);
  return found == all_.end() ? *on_coordinator : found->second;
}

bool Placements::Choose(const std::vector<PlacedShard>& others, uint64_t least_bytes,
                        bool coordinator_share) {
  std::vector<PlacedShard> shards;
  std::vector<ShardId> without;
  if (!others.empty() && !coordinator_share) without.push_back(kCoordinatorShard);
  if (!others.empty()) shards.emplace_back();
  shards.insert(shards.end(), others.begin(), others.end());
  const Placement& present = current();
  if (present.lost == without && present.shards == shards) return false;
  current_ = shards.empty() ? 0 : ++last_;
  if (current_ != 0)
    all_[current_] = Placement{current_, least_bytes, std::move(shards), std::move(without)};
  return true;
}

std::vector<PlacementNumber> Placements::Lose(ShardId shard) {
  std::vector<PlacementNumber> had;
  for (const auto& [number, placement] : all_) {
    if (placement.Has(shard)) had.push_back(number);
  }
  for (const PlacementNumber number : had) Lose(number, shard);
  return had;
}

void Placements::Lose(PlacementNumber number, ShardId shard) {
  Placement& placement = all_.at(number);
  placement.lost.push_back(shard);
  if (placement.lost.size() < placement.shards.size()) return;
  // Shard 0 is never gone. What it had not held comes to it from the last of the others.
  placement.lost.erase(std::find(placement.lost.begin(), placement.lost.end(), kCoordinatorShard));
}

void Placements::KeepOnly(const std::set<PlacementNumber>& used) {
  for (auto it = all_.begin(); it != all_.end();) {
    const bool keep = it->first == current_ || used.count(it->first) > 0;
    it = keep ? std::next(it) : all_.erase(it);
  }
}

}  // namespace basin::aggregator
