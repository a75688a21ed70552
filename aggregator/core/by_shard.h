// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Bytes at each shard: of most rounds, there is one.
//
// Thread contract: a plain value, and a pure function.

#ifndef BASIN_AGGREGATOR_CORE_BY_SHARD_H_
#define BASIN_AGGREGATOR_CORE_BY_SHARD_H_

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "protocol/layout.h"
#include "protocol/placement.h"

namespace basin::aggregator {

class ByShard {
 public:
  // In order of the shards, without those that have none.
  auto begin() const { return bytes_.begin(); }
  auto end() const { return bytes_.end(); }
  bool empty() const { return bytes_.empty(); }
  uint64_t At(ShardId shard) const {
    for (const auto& [id, bytes] : bytes_) {
      if (id >= shard) return id == shard ? bytes : 0;
    }
    return 0;
  }
  void Set(ShardId shard, uint64_t bytes) {
    const auto at = std::find_if(bytes_.begin(), bytes_.end(),
                                 [shard](const auto& entry) { return entry.first >= shard; });
    const bool there = at != bytes_.end() && at->first == shard;
    if (!there) {
      if (bytes > 0) bytes_.insert(at, {shard, bytes});
    } else if (bytes > 0) {
      at->second = bytes;
    } else {
      bytes_.erase(at);
    }
  }
  void Add(ShardId shard, uint64_t bytes) { Set(shard, At(shard) + bytes); }
  void Subtract(ShardId shard, uint64_t bytes) { Set(shard, At(shard) - bytes); }
  void Add(const ByShard& other) {
    for (const auto& [shard, bytes] : other) Add(shard, bytes);
  }
  void Clear() { bytes_.clear(); }
  uint64_t total() const {
    uint64_t total = 0;
    for (const auto& [shard, bytes] : bytes_) total += bytes;
    return total;
  }
  auto Fields() const { return std::tie(bytes_); }

 private:
  absl::InlinedVector<std::pair<ShardId, uint64_t>, 1> bytes_;
};

// Returns where the bytes of the layout's tensors from this one on are.
inline ByShard BytesFrom(const Layout& layout, const Shares& shares, TensorIndex first) {
  ByShard bytes;
  for (TensorIndex tensor = first; tensor < layout.version(); ++tensor) {
    shares.Split(
        layout, ChunkRange{tensor, 0, layout.TensorChunks(tensor)},
        [&](ShardId shard, const ChunkRange& part) { bytes.Add(shard, layout.RangeBytes(part)); });
  }
  return bytes;
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_BY_SHARD_H_
