// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The names of a lane, for messages, actions and errors, and what its chunks are.
//
// Thread contract: a plain value; refers to the lane.

#ifndef BASIN_CLIENT_CORE_LANE_ID_H_
#define BASIN_CLIENT_CORE_LANE_ID_H_

#include <string>

#include "client/core/event.h"
#include "client/core/layout.h"
#include "protocol/placement.h"

namespace basin::client {

struct LaneId {
  LaneHandle handle = 0;
  LaneIndex index = 0;
  const std::string& name;
  const Layout& layout;
  const Shares& shares;  // Which shard holds each chunk of its next round.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LANE_ID_H_
