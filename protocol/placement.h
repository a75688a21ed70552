// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Which shard holds each chunk of a lane's round.
//
// A shard is a process that holds bytes: contributions, reductions and results. Shard 0 is the
// coordinator's own. A Placement names shards, and it travels; where each chunk is follows from it
// and from the layout (Shares), so both ends compute it, and nothing is sent per chunk.
//
// The rule, for the tensors that the lane had when the round got its placement:
// - Their chunks in layout order are dealt to the shards in the order of the list, in up to eight
//   turns, so that each stretch of layers is spread over all of them. In a turn each shard gets a
//   contiguous part, of at least four times `least_bytes` and a chunk if there are several turns. A
//   cut is at the border of a chunk that is next to the equal part, so a shard has at most one
//   chunk (256 KiB) more than the mean: at most 1.02 of it from 13 MiB per shard.
// - A lane with fewer than `least_bytes` for each shard of the list stays on the first one.
// - What a lost shard had is dealt again in the same way, for those that are left, in the order in
//   which shards were lost. No other chunk moves.
// Tensors that are registered later stay on the first shard if they have fewer than `least_bytes`;
// the others are dealt whole, in turn. At the next verdict they are dealt with the rest.
//
// Thread contract: plain values.

#ifndef BASIN_PROTOCOL_PLACEMENT_H_
#define BASIN_PROTOCOL_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "protocol/fields.h"
#include "protocol/ids.h"
#include "protocol/layout.h"
#include "protocol/tensor.h"

namespace basin {

// A shard, as the coordinator names it. Never used for two shards in a term.
using ShardId = uint32_t;

// The coordinator itself.
inline constexpr ShardId kCoordinatorShard = 0;

// A placement of a job, in order of time. 0: everything is on shard 0.
using PlacementNumber = uint64_t;

// About a frame: less would cost more messages than it spreads bytes.
inline constexpr uint64_t kLeastShare = uint64_t{1} << 20;

struct PlacedShard {
  ShardId shard = 0;
  std::string name;      // As it calls itself: a label. Empty for shard 0.
  std::string endpoint;  // host:port of its data streams. Empty for shard 0: that of the session.
  auto Fields() const { return std::tie(shard, name, endpoint); }
};

struct Placement {
  PlacementNumber number = 0;
  uint64_t least_bytes = kLeastShare;
  std::vector<PlacedShard> shards;  // Not empty, unless the number is 0. No two have one id.
  std::vector<ShardId> lost;        // Some of them, but not all, in order of loss.
  bool Has(ShardId shard) const;    // Whether it is in the list, and was not lost.
  auto Fields() const { return std::tie(number, least_bytes, shards, lost); }
};

// What a round uses: a placement, and the version of the lane's layout whose tensors are dealt.
struct RoundPlacement {
  PlacementNumber number = 0;
  uint32_t layout = 0;
  auto Fields() const { return std::tie(number, layout); }
};

// Where each chunk of a lane's round is.
class Shares {
 public:
  // Everything is on shard 0.
  Shares() = default;
  // `tensors`: see RoundPlacement. REQUIRES: it is at most the layout's version.
  Shares(const Placement& placement, const Layout& layout, uint32_t tensors);

  // Returns whether one shard has all chunks: First().
  bool single() const { return single_; }
  // Returns the shards that are left of the placement, in its order, whether each has chunks or
  // not.
  std::vector<ShardId> Left() const {
    return dealt_.empty() ? std::vector<ShardId>{home_} : dealt_.back();
  }
  // Returns the first shard that is left.
  ShardId First() const { return home_; }

  // REQUIRES: `layout` has grown from that of the constructor, and has the chunk.
  ShardId Of(const Layout& layout, uint32_t flat) const;
  // Returns the shard of the range's first chunk, and how many chunks from there on are on the same
  // shard, up to all of the range.
  std::pair<ShardId, uint32_t> Head(const Layout& layout, const ChunkRange& range) const;

  // Calls take(shard, part) for the parts of the range, in order.
  template <typename Take>
  void Split(const Layout& layout, ChunkRange range, Take&& take) const {
    while (range.count > 0) {
      const auto [shard, count] = Head(layout, range);
      take(shard, ChunkRange{range.tensor, range.first, count});
      range.first += count;
      range.count -= count;
    }
  }

  auto Fields() const { return std::tie(runs_, dealt_, home_, least_bytes_, tensors_, single_); }

 private:
  // The flat chunks from the end of the run before it up to `end_at`.
  struct Run {
    uint32_t end_at = 0;
    ShardId shard = 0;
    auto Fields() const { return std::tie(end_at, shard); }
  };

  std::vector<Run> runs_;  // Those of the first tensors; in order.
  // For the tensors after these: the list, and what is left after each loss.
  std::vector<std::vector<ShardId>> dealt_;
  ShardId home_ = kCoordinatorShard;
  uint64_t least_bytes_ = 0;
  uint32_t tensors_ = 0;
  bool single_ = true;
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_PLACEMENT_H_
