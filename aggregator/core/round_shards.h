// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A shard that is lost takes chunks of a round with it: contributions that were parked there, and
// results that not all receivers have. No decision is lost with them.
//
// Before the value is prepared, the chunks are pushed again to the shards that hold them now, and
// are reduced again in the same attempt: the contributors are the same, so the results are the same
// bits, and what members have of them stays valid. If a contributor is gone and cannot push again,
// the next attempt goes on without it. After that, a member that has staged the value supplies the
// chunks; if nobody can have staged it, the round runs again.
//
// Thread contract: the functions change the round, append actions, and have no other effect.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_SHARDS_H_
#define BASIN_AGGREGATOR_CORE_ROUND_SHARDS_H_

#include <string>
#include <vector>

#include "aggregator/core/round.h"
#include "aggregator/core/round_scope.h"

namespace basin::aggregator {

// `before`: where the chunks were; the lane has where they are now. `reason`: as the start of a
// sentence ("shard b is lost"). The caller advances the lane.
void LoseChunks(Round& round, const RoundScope& scope, const Shares& before, ShardId lost,
                const std::string& reason);

// Drops chunks that are parked, on each shard what it has.
void DiscardParked(const Round& round, const RoundScope& scope, const Incarnation& contributor,
                   std::vector<ChunkRange> ranges);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_SHARDS_H_
