// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How much each member of a round may send, which depends on the memory of the lane: a window at
// each shard that holds chunks of the round.
//
// Thread contract: a plain value, and pure functions.

#ifndef BASIN_AGGREGATOR_CORE_FLOW_CONTROL_H_
#define BASIN_AGGREGATOR_CORE_FLOW_CONTROL_H_

#include <cstdint>
#include <optional>
#include <tuple>

#include "absl/time/time.h"
#include "aggregator/core/memory.h"
#include "aggregator/core/roster.h"

namespace basin::aggregator {

class FlowControl {
 public:
  // Returns how many bytes the member may send to the shard in addition to those parked there.
  static uint64_t Window(const LaneMemory& memory, const RoundMember& member, ShardId shard);
  // Returns how many it may send to any of the shards.
  static uint64_t Least(const LaneMemory& memory, const RoundMember& member, const Shares& shares);
  // Returns whether the member has more to send than there is room for.
  static bool LacksRoom(const RoundMember& member);
  // Returns the shard's window if the member must receive it: there is room for its next frame, and
  // its last window was too small for that. If `pulled`, it may send less than a frame, so any
  // growth counts.
  static std::optional<uint64_t> News(const LaneMemory& memory, const RoundMember& member,
                                      ShardId shard, bool pulled);

  // Updates whether the member is blocked, after a change of its room or of what it has to send.
  void Review(const LaneMemory& memory, absl::Time now, Roster& roster, RoundMember& member);

  // The time since which some member can only wait for the others; InfiniteFuture if none.
  absl::Time wait_since() const { return wait_since_; }
  // The number of times that a member got more to send than there was room for. For observers.
  uint64_t stalls() const { return stalls_; }

  auto Fields() const { return std::tie(wait_since_); }

 private:
  absl::Time wait_since_ = absl::InfiniteFuture();
  uint64_t stalls_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_FLOW_CONTROL_H_
