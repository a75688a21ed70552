// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Larger worlds, which time or memory may cut. The states that were seen must be right; the output
// says how many were not.

#include "gtest/gtest.h"
#include "tests/explore/search.h"

namespace basin::explore {
namespace {

void ExpectRight(const Bounds& bounds, double seconds) {
  Limits limits;
  limits.seconds = seconds;
  limits.memory_mib = 5 * 1024;
  limits.states = 4'000'000'000;
  const SearchResult result = Search(bounds, limits);
  Print(bounds, result);
  EXPECT_EQ(result.violation, "");
  EXPECT_GT(result.states, 1'000'000u);
}

Bounds TwoOfEach(uint32_t workers, RoundNumber rounds) {
  Bounds bounds;
  bounds.workers = workers;
  bounds.min_workers = 2;
  bounds.rounds = rounds;
  bounds.crashes = 2;
  bounds.deaths = bounds.evictions = 2;
  bounds.restarts = 1;
  return bounds;
}

// All states.
TEST(ExploreNightly, Fault_A2_ThreeWorkersOneRoundWithOneCrash) {
  Bounds bounds;
  bounds.workers = 3;
  bounds.min_workers = 2;
  bounds.crashes = 1;
  bounds.faults = 0;
  ExpectRight(bounds, 900);
}

Bounds OneCrashAndOneLoss(uint32_t workers, RoundNumber rounds) {
  Bounds bounds = TwoOfEach(workers, rounds);
  bounds.crashes = bounds.deaths = bounds.evictions = bounds.faults = 1;
  return bounds;
}

TEST(ExploreNightly, Fault_A2_TwoWorkersTwoRoundsWithOneCrashAndOneLoss) {
  ExpectRight(OneCrashAndOneLoss(2, 2), 300);
}

TEST(ExploreNightly, Fault_A2_ThreeWorkersOneRoundWithOneCrashAndOneLoss) {
  ExpectRight(OneCrashAndOneLoss(3, 1), 300);
}

TEST(ExploreNightly, Fault_A2_ThreeWorkersInAllOrders) { ExpectRight(TwoOfEach(3, 1), 900); }

TEST(ExploreNightly, Fault_A2_ThreeWorkersWithTwoDelays) {
  Bounds bounds = TwoOfEach(3, 2);
  bounds.delays = 2;
  ExpectRight(bounds, 900);
}

TEST(ExploreNightly, Fault_W2_RoundsWithoutWhoeverIsLate) {
  Bounds bounds = TwoOfEach(3, 2);
  bounds.crashes = 1;
  bounds.late = true;
  bounds.delays = 2;
  ExpectRight(bounds, 900);
}

TEST(ExploreNightly, Fault_N2_BrokenConnections) {
  Bounds bounds = TwoOfEach(3, 2);
  bounds.deaths = bounds.restarts = bounds.evictions = 1;
  bounds.cuts = 2;
  bounds.delays = 2;
  ExpectRight(bounds, 900);
}

// Two chunks, of which the aggregator and a shard hold one each.
Bounds TwoChunksAndAShard() {
  Bounds bounds = TwoOfEach(2, 1);
  bounds.min_workers = 1;
  bounds.crashes = bounds.evictions = bounds.restarts = 0;
  bounds.deaths = 1;
  bounds.shards = 1;
  bounds.chunks = 2;
  bounds.shard_losses = bounds.shard_drains = bounds.shard_cuts = bounds.shard_joins = 1;
  return bounds;
}

TEST(ExploreNightly, AShardThatAWorkerCannotReach) {
  Bounds bounds = TwoChunksAndAShard();
  bounds.faults = 1;
  ExpectRight(bounds, 900);
}

TEST(ExploreNightly, Fault_A2_AShardWithOneCrashAndOneFault) {
  Bounds bounds = TwoChunksAndAShard();
  bounds.chunks = 1;
  bounds.coordinator_share = false;
  bounds.crashes = bounds.faults = 1;
  ExpectRight(bounds, 900);
}

TEST(ExploreNightly, ShardsThatComeAndGoWithTwoDelays) {
  Bounds bounds = TwoChunksAndAShard();
  bounds.rounds = 2;
  bounds.crashes = 1;
  bounds.shard_losses = bounds.shard_joins = 2;
  bounds.delays = 2;
  ExpectRight(bounds, 900);
}

}  // namespace
}  // namespace basin::explore
