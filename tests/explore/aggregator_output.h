// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What leaves the aggregator of an explored world, or one of its shards, for the world.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_EXPLORE_AGGREGATOR_OUTPUT_H_
#define BASIN_TESTS_EXPLORE_AGGREGATOR_OUTPUT_H_

#include <cstdint>

#include "tests/explore/item.h"

namespace basin::explore {

struct AggregatorOutput {
  enum class Kind : uint8_t {
    kMessage,
    kFrame,
    kEnd,           // The session's last message.
    kShardFrame,    // On a data stream of a shard, as the two that follow.
    kAcceptStream,  // Frames of the worker may arrive from now on.
    kCloseStream,   // The stream ends.
    kRelease,       // A shard ends.
  };
  Kind kind = Kind::kMessage;
  uint64_t to = 0;  // The session; the data stream of a shard; the shard's slot.
  Item item;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_AGGREGATOR_OUTPUT_H_
