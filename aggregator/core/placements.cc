// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/placements.h"

#include <iterator>
#include <utility>

namespace basin::aggregator {

const Placement& Placements::Get(PlacementNumber number) const {
  static const auto* const on_coordinator = new Placement();
  const auto found = all_.find(number);
  return found == all_.end() ? *on_coordinator : found->second;
}

bool Placements::Choose(const std::vector<PlacedShard>& others, uint64_t least_bytes) {
  std::vector<PlacedShard> shards;
  if (!others.empty()) shards.emplace_back();
  shards.insert(shards.end(), others.begin(), others.end());
  const Placement& present = current();
  if (present.lost.empty() && present.shards == shards) return false;
  current_ = shards.empty() ? 0 : ++last_;
  if (current_ != 0) all_[current_] = Placement{current_, least_bytes, std::move(shards), {}};
  return true;
}

std::vector<PlacementNumber> Placements::Lose(ShardId shard) {
  std::vector<PlacementNumber> had;
  for (auto& [number, placement] : all_) {
    if (!placement.Has(shard)) continue;
    placement.lost.push_back(shard);
    had.push_back(number);
  }
  return had;
}

void Placements::KeepOnly(const std::set<PlacementNumber>& used) {
  for (auto it = all_.begin(); it != all_.end();) {
    const bool keep = it->first == current_ || used.count(it->first) > 0;
    it = keep ? std::next(it) : all_.erase(it);
  }
}

}  // namespace basin::aggregator
