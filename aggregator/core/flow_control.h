// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How much each member of a round may send, by the memory that its lane has.
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
  // Bytes that the member may send beyond those that are parked.
  static uint64_t Window(const LaneMemory& memory, const RoundMember& member);
  // Whether it has more to send than there is room for.
  static bool LacksRoom(const RoundMember& member);
  // The window that the member has to be sent, because it has room for its next frame and does not
  // know that. `pulled`: what it sends may be shorter than a frame, so any growth counts.
  static std::optional<uint64_t> News(const LaneMemory& memory, const RoundMember& member,
                                      bool pulled);

  // What the member has to send, or the room for it, has changed.
  void Review(const LaneMemory& memory, absl::Time now, Roster& roster, RoundMember& member);

  // Since when somebody can do no more than wait for the others; InfiniteFuture if nobody.
  absl::Time wait_since() const { return wait_since_; }
  // How often a member had more to send than there was room for. For observers.
  uint64_t stalls() const { return stalls_; }

  auto Fields() const { return std::tie(wait_since_); }

 private:
  absl::Time wait_since_ = absl::InfiniteFuture();
  uint64_t stalls_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_FLOW_CONTROL_H_
