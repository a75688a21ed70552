// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The worlds that CI explores for every change, and those that it explores whole each night
// (ExploreWhole). The output is part of the result: how many states there are, how deep they lie,
// and whether the search was cut.

#include "gtest/gtest.h"
#include "tests/explore/search.h"

namespace basin::explore {
namespace {

SearchResult Explore(const Bounds& bounds, double seconds) {
  Limits limits;
  limits.seconds = seconds;
  SearchResult result = Search(bounds, limits);
  Print(bounds, result);
  return result;
}

Bounds OneFault(uint32_t workers, RoundNumber rounds, uint32_t crashes) {
  Bounds bounds;
  bounds.workers = workers;
  bounds.min_workers = 2;
  bounds.rounds = rounds;
  bounds.crashes = crashes;
  bounds.deaths = bounds.restarts = bounds.evictions = 1;
  bounds.faults = 1;
  return bounds;
}

// The search must have seen all states.
void ExpectComplete(const SearchResult& result) {
  EXPECT_EQ(result.violation, "");
  EXPECT_EQ(result.cut, "");
  EXPECT_GT(result.endings[static_cast<size_t>(Ending::kDone)], 0u);
}

TEST(ExploreCi, Fault_A1_TwoWorkersTwoRoundsWithOneCrash) {
  Bounds bounds = OneFault(2, 2, 1);
  bounds.faults = 0;
  ExpectComplete(Explore(bounds, 60));
}

TEST(ExploreCi, Fault_W2_TwoWorkersTwoRoundsWithOneLoss) {
  ExpectComplete(Explore(OneFault(2, 2, 0), 60));
}

TEST(ExploreCi, Fault_W1_ThreeWorkersOneRoundWithOneLoss) {
  ExpectComplete(Explore(OneFault(3, 1, 0), 60));
}

// A worker is lost after the round is prepared. Its replacement must load the state from before
// that round, whatever the aggregator forgets meanwhile.
TEST(ExploreCi, Fault_W19_TwoWorkersThatAreBothNeededWithOneCrashAndOneReplacement) {
  Bounds bounds = OneFault(2, 1, 1);
  bounds.deaths = bounds.evictions = 0;
  ExpectComplete(Explore(bounds, 60));
}

// The same with a call. A worker whose trainer never makes the call does not hold the others up, so
// it may stage before it has begun.
TEST(ExploreWhole, Fault_W19_ACallOfTwoWorkersThatAreBothNeededWithOneCrashAndOneReplacement) {
  Bounds bounds = OneFault(2, 1, 1);
  bounds.deaths = bounds.evictions = 0;
  bounds.kind = LaneKind::kCall;
  ExpectComplete(Explore(bounds, 60));
}

// A worker stands for two trainers in the first round and for one in the second. Each round is
// divided by the trainers that it holds, whatever is lost and repeated meanwhile.
TEST(ExploreCi, Fault_A1_ANodeThatShrinksAndAWorkerWithOneCrash) {
  Bounds bounds = OneFault(2, 2, 1);
  bounds.faults = 0;
  bounds.node = Node::kShrinks;
  ExpectComplete(Explore(bounds, 90));
}

TEST(ExploreCi, Fault_W2_ANodeThatShrinksAndAWorkerWithOneLoss) {
  Bounds bounds = OneFault(2, 2, 0);
  bounds.node = Node::kShrinks;
  ExpectComplete(Explore(bounds, 90));
}

// One worker contributes for the other, which goes without results until it requests them.
TEST(ExploreCi, Fault_A1_AWorkerThatCarriesAnotherWithOneCrash) {
  Bounds bounds = OneFault(2, 2, 1);
  bounds.faults = 0;
  bounds.node = Node::kRepresents;
  ExpectComplete(Explore(bounds, 90));
}

TEST(ExploreWhole, Fault_W2_AWorkerThatCarriesAnotherWithOneLoss) {
  Bounds bounds = OneFault(3, 1, 0);
  bounds.node = Node::kRepresents;
  ExpectComplete(Explore(bounds, 90));
}

// Rounds go on without whoever is late, which applies them like the others.
TEST(ExploreCi, TwoWorkersTwoRoundsOfWhichOneMayBeLeftOut) {
  Bounds bounds = OneFault(2, 2, 0);
  bounds.min_workers = 1;
  bounds.faults = 0;
  bounds.late = true;
  ExpectComplete(Explore(bounds, 60));
}

TEST(ExploreCi, Fault_A1_TwoWorkersOneRoundOfWhichOneMayBeLeftOutWithOneCrash) {
  Bounds bounds = OneFault(2, 1, 1);
  bounds.min_workers = 1;
  bounds.faults = 0;
  bounds.late = true;
  ExpectComplete(Explore(bounds, 60));
}

TEST(ExploreCi, Fault_W2_ThreeWorkersOneRoundOfWhichOneMayBeLeftOutWithOneDeath) {
  Bounds bounds = OneFault(3, 1, 0);
  bounds.restarts = bounds.evictions = 0;
  bounds.late = true;
  ExpectComplete(Explore(bounds, 60));
}

TEST(ExploreCi, Fault_W2_TwoCallsOfTwoWorkersWithOneLoss) {
  Bounds bounds = OneFault(2, 2, 0);
  bounds.kind = LaneKind::kCall;
  ExpectComplete(Explore(bounds, 60));
}

TEST(ExploreWhole, Fault_N2_TwoJobsOfTwoWorkersWithOneBrokenStream) {
  Bounds bounds = OneFault(2, 1, 0);
  bounds.deaths = bounds.restarts = bounds.evictions = 0;
  bounds.stream_cuts = 1;
  bounds.jobs = 2;
  ExpectComplete(Explore(bounds, 60));
}

// One shard, which holds all bytes.
Bounds WithAShard(RoundNumber rounds) {
  Bounds bounds = OneFault(2, rounds, 0);
  bounds.deaths = bounds.restarts = bounds.evictions = 0;
  bounds.shards = 1;
  bounds.coordinator_share = false;
  return bounds;
}

// What a shard held is pushed again, or supplied by whoever has staged it.
TEST(ExploreCi, TwoWorkersTwoRoundsAndAShardThatIsLost) {
  Bounds bounds = WithAShard(2);
  bounds.shard_losses = 1;
  ExpectComplete(Explore(bounds, 60));
}

TEST(ExploreCi, TwoWorkersOneRoundAndAShardThatIsLostBesideAWorker) {
  Bounds bounds = WithAShard(1);
  bounds.min_workers = 1;
  bounds.shard_losses = bounds.deaths = 1;
  bounds.faults = 2;
  ExpectComplete(Explore(bounds, 60));
}

TEST(ExploreCi, TwoWorkersTwoRoundsAndAShardThatDrains) {
  Bounds bounds = WithAShard(2);
  bounds.shard_drains = 1;
  ExpectComplete(Explore(bounds, 60));
}

TEST(ExploreCi, TwoWorkersOneRoundAndAShardThatOneCannotReach) {
  Bounds bounds = WithAShard(1);
  bounds.shard_cuts = 1;
  ExpectComplete(Explore(bounds, 60));
}

TEST(ExploreCi, TwoWorkersTwoRoundsAndAShardThatComes) {
  Bounds bounds = WithAShard(2);
  bounds.shards = 0;
  bounds.shard_joins = 1;
  ExpectComplete(Explore(bounds, 60));
}

TEST(ExploreCi, Fault_A1_TwoWorkersOneRoundAndAShardWithOneCrash) {
  Bounds bounds = WithAShard(1);
  bounds.crashes = 1;
  ExpectComplete(Explore(bounds, 60));
}

// The aggregator and a shard hold a chunk each.
TEST(ExploreWhole, TwoWorkersTwoChunksAndAShardThatIsLost) {
  Bounds bounds = WithAShard(1);
  bounds.coordinator_share = true;
  bounds.chunks = 2;
  bounds.shard_losses = 1;
  ExpectComplete(Explore(bounds, 600));
}

TEST(ExploreWhole, TwoWorkersTwoChunksAndAShardThatDrains) {
  Bounds bounds = WithAShard(1);
  bounds.coordinator_share = true;
  bounds.chunks = 2;
  bounds.shard_drains = 1;
  ExpectComplete(Explore(bounds, 600));
}

// The reduction leaves out orders but no ending: with and without it, each kind of ending occurs
// equally often.
TEST(ExploreCi, TheReductionLosesNoEnding) {
  Bounds loss = OneFault(2, 1, 0);
  Bounds crash = OneFault(2, 1, 1);
  crash.faults = 0;
  Bounds crash_and_death = OneFault(2, 1, 1);
  crash_and_death.restarts = crash_and_death.evictions = 0;
  Bounds broken_stream = OneFault(2, 1, 0);
  broken_stream.stream_cuts = 1;
  Bounds lost_shard = WithAShard(1);
  lost_shard.shard_losses = 1;
  Bounds drain = WithAShard(1);
  drain.shard_drains = 1;
  for (Bounds bounds : {loss, crash, crash_and_death, broken_stream, lost_shard, drain}) {
    const SearchResult reduced = Explore(bounds, 60);
    bounds.reduce = false;
    const SearchResult whole = Explore(bounds, 60);
    ExpectComplete(reduced);
    ExpectComplete(whole);
    EXPECT_EQ(reduced.endings, whole.endings);
    EXPECT_LT(reduced.states, whole.states);
  }
}

}  // namespace
}  // namespace basin::explore
