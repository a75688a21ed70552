// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The processes that are connected to this one and hold bytes for it.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_CORE_SHARDS_H_
#define BASIN_AGGREGATOR_CORE_SHARDS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "absl/time/time.h"
#include "protocol/fields.h"
#include "protocol/placement.h"

namespace basin::aggregator {

struct Shard {
  std::string name;
  std::string endpoint;                                   // host:port of its data streams.
  uint64_t memory = 0;                                    // Its memory.budget; 0: it has not said.
  std::optional<absl::Time> drains_since = std::nullopt;  // It is to end.
  bool released = false;                                  // No round needs it any more.
  std::string too_small = {};  // Why jobs do without it, for people; empty: they need not.
  auto Fields() const {
    return std::tie(name, endpoint, memory, drains_since, released, too_small);
  }
};

// In the order in which they came, without shard 0.
using Shards = std::map<ShardId, Shard>;

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_SHARDS_H_
