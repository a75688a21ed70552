// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The processes that are connected to this one and hold bytes for it.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_CORE_SHARDS_H_
#define BASIN_AGGREGATOR_CORE_SHARDS_H_

#include <map>
#include <string>
#include <tuple>

#include "protocol/fields.h"
#include "protocol/placement.h"

namespace basin::aggregator {

struct Shard {
  std::string name;
  std::string endpoint;  // host:port of its data streams.
  auto Fields() const { return std::tie(name, endpoint); }
};

// In the order in which they came, without shard 0.
using Shards = std::map<ShardId, Shard>;

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_SHARDS_H_
