// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Rounds whose chunks are on several shards: which shard has what, shards that come and go, and
// workers that do not know or cannot reach them.

#include "absl/strings/str_cat.h"
#include "aggregator/core/job_placement.h"
#include "aggregator/core/memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Config Spread() {
  Config config;
  config.least_share = kChunkBytes;  // The tensors of these tests are small.
  return config;
}

// Members a and b, with a lane of eight chunks, of which the second half is on shard `one`.
struct Sharded : Cluster {
  explicit Sharded(uint64_t features_of_b = kFeaturePlacement, Config config = Spread())
      : Cluster(Settings(1, 4, 2), std::move(config)), a(Worker("a")), b(Worker("b")) {
    one = AddShard("one");
    a.features = kFeaturePlacement;
    b.features = features_of_b;
    for (TestWorker* worker : {&a, &b}) {
      worker->Connect();
      worker->Register({Tensor("w", 8)});
      worker->Ready();
    }
  }
  void Begin() {
    for (TestWorker* worker : {&a, &b}) worker->Begin();
  }
  // Chunk c of the tensor as the worker got it in the round.
  Reduced Got(const TestWorker& worker, uint32_t chunk, RoundNumber round = 1) {
    return worker.lanes.at(kLane).delivered.at(round).at({0, chunk});
  }
  void ExpectSumOfBoth(RoundNumber round = 1) {
    for (const TestWorker* worker : {&a, &b}) {
      ASSERT_EQ(worker->lanes.at(kLane).delivered.count(round), 1u) << worker->id;
      for (uint32_t chunk = 0; chunk < 8; ++chunk) {
        EXPECT_EQ(Got(*worker, chunk, round), (Reduced{a.value + b.value, 2})) << chunk;
      }
    }
  }
  std::vector<ShardId> ReducedOn() {
    std::vector<ShardId> shards;
    for (const Reduce& reduce : Actions<Reduce>()) shards.push_back(reduce.shard);
    return shards;
  }

  TestWorker& a;
  TestWorker& b;
  ShardId one = 0;
};

TEST(Shards, ChunksAreKeptAndReducedWhereThePlacementHasThem) {
  Sharded t;
  EXPECT_EQ(t.a.lane().placement.number, 1u);
  EXPECT_EQ(t.a.lane().placement.layout, 1u);
  t.a.Begin();
  t.a.PushTensor(0);
  EXPECT_EQ(t.kept_chunks(), 4u);
  EXPECT_EQ(t.kept_chunks(t.one), 4u);
  t.a.Commit();
  t.b.Contribute();
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.kept_chunks() + t.kept_chunks(t.one) + t.held_results() + t.held_results(t.one), 0u);
  for (const Reduce& reduce : t.Actions<Reduce>()) {
    for (const ChunkRange& range : reduce.ranges) {
      EXPECT_EQ(reduce.shard, range.first < 4 ? kCoordinatorShard : t.one);
      EXPECT_TRUE(range.first >= 4 || range.first + range.count <= 4) << "one shard has all of it";
    }
  }
}

TEST(Shards, ASmallLaneStaysOnTheCoordinator) {
  Sharded t(kFeaturePlacement, Config());
  t.Begin();
  t.a.PushTensor(0);
  EXPECT_EQ(t.kept_chunks(t.one), 4u) << "eight chunks are two frames";
  t.a.Register({Tensor("tiny")}, "other");
  t.b.Register({Tensor("tiny")}, "other");
  t.a.Begin(Spec(ReduceOp::kSum), "other");
  t.a.PushTensor(0, "other");
  EXPECT_EQ(t.kept_chunks(), 5u);
}

TEST(Shards, OneThatComesIsUsedFromTheNextVerdictOn) {
  Sharded t;
  t.Begin();
  t.a.PushTensor(0);
  const ShardId two = t.AddShard("two");
  EXPECT_EQ(t.a.Last<Placement>().shards.size(), 3u) << "so that streams are open when it is used";
  EXPECT_EQ(t.a.lane().placement.number, 1u);
  t.a.Commit();
  t.b.Contribute();
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.a.lane().placement.number, 2u);
  t.ClearLog();
  t.a.Contribute();
  EXPECT_EQ(t.kept_chunks(two), 3u) << "of 8 chunks, from the border next to two thirds on";
  t.b.Contribute();
  t.ExpectSumOfBoth(2);
}

TEST(Shards, TheWindowOfResultsGrowsWithThem) {
  Config config = Spread();
  config.frame_bytes = config.result_window_bytes = kChunkBytes;
  Sharded t(kFeaturePlacement, config);
  const auto memory = [&] { return t.job().lanes.begin()->memory; };
  EXPECT_EQ(memory().result_window, 4 * kChunkBytes) << "two frames for each of two shards";
  t.Begin();
  t.a.PushTensor(0);
  t.ClearLog();
  t.AddShard("two");
  EXPECT_EQ(memory().result_window, 6 * kChunkBytes);
  EXPECT_EQ(memory().reserved, 4 * memory().window + kWidening * kChunkBytes + 6 * kChunkBytes);
  EXPECT_EQ(t.a.Count<Credit>(), 0u) << "workers need not know";
  t.a.Commit();
  t.b.Contribute();
  t.ExpectSumOfBoth();
  t.LoseShard(t.one);
  EXPECT_EQ(memory().result_window, 6 * kChunkBytes) << "it is not taken back";
}

TEST(Shards, TheWindowOfResultsStaysWhereMemoryIsShort) {
  Config config = Spread();
  config.frame_bytes = config.window_bytes = config.result_window_bytes = kChunkBytes;
  // Four windows, eight for the accumulator and one for results, with what describes the lane.
  config.memory_bytes = 13 * kChunkBytes + 4096;
  Sharded t(kFeaturePlacement, config);
  t.AddShard("two");
  EXPECT_LT(t.job().lanes.begin()->memory.result_window, 2 * kChunkBytes);
}

TEST(Shards, ANewOneIsNamedTheTensorsOfAllLanes) {
  Sharded t;
  t.ClearLog();
  const ShardId two = t.AddShard("two");
  ASSERT_EQ(t.Actions<NameTensors>().size(), 1u);
  EXPECT_EQ(t.Actions<NameTensors>()[0].shard, two);
  EXPECT_EQ(t.Actions<NameTensors>()[0].tensors.size(), 1u);
  EXPECT_THAT(t.NoteText(NoteKind::kShardUp), HasSubstr("Shard two"));
}

TEST(Shards, WhatALostOneHadParkedIsPushedAgain) {
  Sharded t;
  t.Begin();
  t.a.PushTensor(0);
  t.a.Commit();
  t.LoseShard(t.one);
  EXPECT_EQ(t.kept_chunks(), 8u) << "a has pushed its second half to the coordinator";
  EXPECT_THAT(t.a.Last<Placement>().lost, ElementsAre(t.one));
  EXPECT_THAT(t.NoteText(NoteKind::kShardLost), HasSubstr("Shard one"));
  EXPECT_EQ(t.a.Count<AttemptRestarted>(), 0u);
  t.b.Contribute();
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.a.lane().placement.number, 0u) << "no shard is left but the coordinator";
}

TEST(Shards, AReductionThatWasUnderWayOnALostOneIsMadeAgain) {
  Sharded t;
  t.reduces = false;
  t.a.Contribute();
  t.b.Contribute();
  ASSERT_THAT(t.ReducedOn(), ElementsAre(0, 1));
  t.LoseShard(t.one);
  t.reduces = true;
  t.FinishReduces();
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.a.verdict().ballot.attempt, 1u) << "the attempt goes on";
}

TEST(Shards, AResultThatSomeLackIsReducedAgainInTheSameAttempt) {
  Sharded t;
  t.b.acks = t.b.stages = false;
  t.Begin();
  for (TestWorker* worker : {&t.a, &t.b}) worker->Push(0, 4, 4);
  EXPECT_EQ(t.held_results(t.one), 4u) << "b has not acknowledged them";
  t.ClearLog();
  t.b.acks = t.b.stages = true;
  t.LoseShard(t.one);
  const auto again = t.Actions<Publish>();
  ASSERT_FALSE(again.empty());
  for (const Publish& publish : again) EXPECT_THAT(publish.sessions, ElementsAre(t.b.session));
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Push(0, 0, 4);
    worker->Commit();
  }
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.a.verdict().ballot.attempt, 1u);
  EXPECT_EQ(t.held_results(), 0u);
}

TEST(Shards, AnAcknowledgementCountsThoughTheResultWasLost) {
  Sharded t;
  t.b.acks = t.b.stages = t.b.repushes = false;
  t.Begin();
  for (TestWorker* worker : {&t.a, &t.b}) worker->Push(0, 4, 4);
  t.LoseShard(t.one);
  t.b.Send(ResultAck{0, 1, Ballot{1, 1}, {{0, 4, 4}}});  // It was on its way.
  t.b.acks = t.b.stages = t.b.repushes = true;
  t.ClearLog();
  t.b.Push(0, 4, 4);
  EXPECT_THAT(t.Actions<Publish>(), IsEmpty()) << "both have it";
  EXPECT_EQ(t.held_results(), 0u);
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Push(0, 0, 4);
    worker->Commit();
  }
  t.ExpectSumOfBoth();
}

TEST(Shards, AContributorThatCannotPushAgainIsDroppedInTheNextAttempt) {
  Sharded t;
  t.a.Contribute();
  t.b.Begin();
  t.Step(WorkerExited{kJob, "a"});  // Its contribution is effective, and counts.
  t.LoseShard(t.one);
  EXPECT_EQ(t.b.Last<AttemptRestarted>().ballot.attempt, 2u);
  EXPECT_THAT(t.b.Last<AttemptRestarted>().reason, HasSubstr("shard one is lost"));
  t.b.PushTensor(0);
  t.b.Commit();
  EXPECT_EQ(t.Got(t.b, 0), (Reduced{t.b.value, 1}));
  EXPECT_EQ(t.Got(t.b, 7), (Reduced{t.b.value, 1}));
}

TEST(Shards, AContributorOfALostResultCannotBeLeftOutOfTheSameAttempt) {
  Sharded t;
  t.b.acks = false;
  t.Begin();
  for (TestWorker* worker : {&t.a, &t.b}) worker->Push(0, 4, 4);
  t.a.repushes = false;
  t.b.acks = true;
  t.LoseShard(t.one);
  EXPECT_EQ(t.b.Count<AttemptRestarted>(), 0u);
  EXPECT_EQ(t.b.lane().results.size(), 4u) << "with the part of a";
  t.Step(WorkerExited{kJob, "a"});
  ASSERT_EQ(t.b.Count<AttemptRestarted>(), 1u);
  t.b.Push(0, 0, 4);
  t.b.Commit();
  for (uint32_t chunk = 0; chunk < 8; ++chunk) {
    EXPECT_EQ(t.Got(t.b, chunk), (Reduced{t.b.value, 1})) << chunk;
  }
}

TEST(Shards, AfterPreparedAHolderSuppliesWhatALostOneHeld) {
  Sharded t;
  t.b.acks = t.b.stages = false;
  t.a.Contribute();
  t.b.Contribute();
  ASSERT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  ASSERT_EQ(t.held_results(t.one), 4u) << "for b";
  t.b.lane().results.clear();  // They never arrived.
  t.b.acks = t.b.stages = true;
  t.ClearLog();
  t.LoseShard(t.one);
  ASSERT_EQ(t.a.Count<Supply>(), 1u);
  EXPECT_EQ(t.a.Last<Supply>().ranges, (std::vector<ChunkRange>{{0, 4, 4}}));
  EXPECT_FALSE(t.Actions<RelayResult>().empty());
  EXPECT_EQ(t.b.lane().results.size(), 4u);
  EXPECT_EQ(t.a.Count<AttemptRestarted>(), 0u);
  // The rest is held by the coordinator.
  t.b.Send(Need{0, 1, Ballot{1, 1}, {{0, 0, 4}}});
  t.ExpectSumOfBoth();
}

TEST(Shards, AfterPreparedTheRoundRunsAgainIfNobodyCanHaveStagedIt) {
  Sharded t;
  for (TestWorker* worker : {&t.a, &t.b}) worker->acks = worker->stages = false;
  t.a.Contribute();
  t.b.Contribute();
  ASSERT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  t.LoseShard(t.one);
  EXPECT_EQ(t.round()->phase(), RoundPhase::kCollect);
  EXPECT_EQ(t.a.session, 0u) << "its client takes the round for prepared, so it starts over";
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->acks = worker->stages = true;
    worker->Connect();
  }
  t.ExpectSumOfBoth();
}

TEST(Shards, EachLacksAnotherChunkOfAValueThatNobodyHasStaged) {
  Sharded t;
  for (TestWorker* worker : {&t.a, &t.b}) worker->acks = worker->stages = false;
  t.a.Contribute();
  t.b.Contribute();
  ASSERT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  t.a.Send(ResultAck{0, 1, Ballot{1, 1}, {{0, 0, 6}}});
  t.b.Send(ResultAck{0, 1, Ballot{1, 1}, {{0, 0, 4}, {0, 6, 2}}});
  t.LoseShard(t.one);
  EXPECT_EQ(t.round()->phase(), RoundPhase::kCollect) << "nobody can supply what the other lacks";
}

// ---- one that drains

TEST(Shards, OneThatDrainsKeepsTheOpenRoundAndIsReleasedAtItsVerdict) {
  Sharded t;
  t.Begin();
  t.a.PushTensor(0);
  t.a.Commit();
  t.ClearLog();
  t.DrainShard(t.one);
  EXPECT_THAT(t.NoteText(NoteKind::kShardDraining), HasSubstr("Shard one drains"));
  EXPECT_EQ(t.kept_chunks(t.one), 4u) << "what was pushed stays";
  t.b.PushTensor(0);
  t.b.Commit();
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.a.Count<AttemptRestarted>(), 0u);
  EXPECT_THAT(t.Actions<DiscardChunks>(), IsEmpty()) << "nothing is pushed again";
  ASSERT_THAT(t.Actions<ReleaseShard>(), SizeIs(1));
  EXPECT_EQ(t.Actions<ReleaseShard>()[0].shard, t.one);
  EXPECT_THAT(t.NoteText(NoteKind::kShardDrained), HasSubstr("no round needed it any more"));
  EXPECT_EQ(t.Notes(NoteKind::kShardLost), 0u);
  EXPECT_EQ(t.a.lane().placement.number, 0u);
  t.a.Contribute();
  EXPECT_EQ(t.kept_chunks(), 8u);
  t.b.Contribute();
  t.ExpectSumOfBoth(2);
}

TEST(Shards, OneThatDrainsWithoutAJobIsReleasedAtOnce) {
  Cluster t(Settings(1, 2, 2), Spread());
  const ShardId one = t.AddShard("one");
  t.DrainShard(one);
  EXPECT_EQ(t.Notes(NoteKind::kShardDrained), 1u);
}

TEST(Shards, LanesThatRestLeaveOneThatDrainsAfterAMoment) {
  Sharded t;
  for (TestWorker* worker : {&t.a, &t.b}) worker->Register({Tensor("x", 8)}, "other");
  const Placement before = t.a.placements.at(t.a.lane("other").placement.number);
  t.DrainShard(t.one);
  EXPECT_EQ(t.Notes(NoteKind::kShardDrained), 0u) << "a worker may have begun a round";
  t.Sleep(absl::Seconds(2));
  EXPECT_EQ(t.Notes(NoteKind::kShardDrained), 1u);
  EXPECT_THAT(t.a.placements.at(before.number).lost, ElementsAre(t.one));
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  t.ExpectSumOfBoth();
}

// The round of another lane has the same placement.
TEST(Shards, OneThatDrainsWaitsForTheRoundsOfAllLanes) {
  Sharded t;
  for (TestWorker* worker : {&t.a, &t.b}) worker->Register({Tensor("x", 8)}, "other");
  t.a.Begin(Spec(ReduceOp::kAverage), "other");
  t.a.PushTensor(0, "other");
  t.DrainShard(t.one);
  t.Sleep(absl::Seconds(2));
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.Notes(NoteKind::kShardDrained), 0u);
  EXPECT_EQ(t.kept_chunks(t.one), 4u);
  t.a.Commit("other");
  t.b.Contribute(Spec(ReduceOp::kAverage), "other");
  EXPECT_EQ(t.Notes(NoteKind::kShardDrained), 1u);
  EXPECT_EQ(t.Notes(NoteKind::kShardLost), 0u);
}

TEST(Shards, OneWhoseDrainIsOverIsReplacedInTheOpenRound) {
  Sharded t;
  t.Begin();
  t.a.PushTensor(0);
  t.a.Commit();
  t.DrainShard(t.one);
  t.DrainShard(t.one);  // It says so once; nothing becomes of another one.
  EXPECT_EQ(t.Notes(NoteKind::kShardDraining), 1u);
  t.LoseShard(t.one);
  EXPECT_EQ(t.Notes(NoteKind::kShardLost), 0u);
  EXPECT_THAT(t.NoteText(NoteKind::kShardDrained), HasSubstr("while rounds needed it"));
  EXPECT_EQ(t.kept_chunks(), 8u) << "a has pushed its second half to the coordinator";
  t.b.Contribute();
  t.ExpectSumOfBoth();
}

TEST(Shards, OneThatComesWhileAnotherDrainsTakesItsPlace) {
  Sharded t;
  t.Begin();
  t.a.PushTensor(0);
  t.DrainShard(t.one);
  const ShardId two = t.AddShard("two");
  EXPECT_THAT(t.a.Last<Placement>().shards, SizeIs(2)) << "the coordinator's and the new one";
  t.a.Commit();
  t.b.Contribute();
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.Notes(NoteKind::kShardDrained), 1u);
  t.a.Contribute();
  EXPECT_EQ(t.kept_chunks(two), 4u);
  t.b.Contribute();
  t.ExpectSumOfBoth(2);
}

// ---- a coordinator that holds nothing

struct WithoutShare : Sharded {
  WithoutShare() : Sharded(kFeaturePlacement, OnOthers()) {}
  static Config OnOthers() {
    Config config = Spread();
    config.coordinator_share = false;
    return config;
  }
};

TEST(Shards, ACoordinatorThatIsToHoldNothingHoldsNothing) {
  WithoutShare t;
  t.a.Contribute();
  EXPECT_EQ(t.kept_chunks(t.one), 8u);
  EXPECT_EQ(t.kept_chunks(), 0u);
  t.b.Contribute();
  t.ExpectSumOfBoth();
  for (const Reduce& reduce : t.Actions<Reduce>()) EXPECT_EQ(reduce.shard, t.one);
  const ShardId two = t.AddShard("two");
  for (const RoundNumber round : {2, 3}) {
    t.a.Contribute();
    EXPECT_EQ(t.kept_chunks(), 0u);
    EXPECT_EQ(t.kept_chunks(two), round == 3 ? 5u : 0u) << "one chunk more than the mean";
    t.b.Contribute();
    t.ExpectSumOfBoth(round);
  }
}

TEST(Shards, ACoordinatorThatIsToHoldNothingIsTheLastResort) {
  WithoutShare t;
  t.a.Contribute();
  t.LoseShard(t.one);
  EXPECT_EQ(t.kept_chunks(), 8u) << "a has pushed all again";
  EXPECT_THAT(t.a.Last<Placement>().lost, ElementsAre(t.one));
  t.b.Contribute();
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.a.lane().placement.number, 0u);
  const ShardId two = t.AddShard("two");
  for (const RoundNumber round : {2, 3}) {
    t.a.Contribute();
    EXPECT_EQ(t.kept_chunks(two), round == 3 ? 8u : 0u) << "a placement is that of the verdict";
    t.b.Contribute();
    t.ExpectSumOfBoth(round);
  }
}

// ---- pull mode

// The front of a round moves back when results of its begin are lost, and what was requested beyond
// it would take its room.
TEST(Shards, InPullModeALossTakesBackWhatWasRequestedBeyondTheFront) {
  Config config = Spread();
  config.frame_bytes = kChunkBytes;
  config.window_bytes = 2 * kChunkBytes;
  Sharded t(kFeaturePlacement, config);
  t.b.acks = t.b.stages = false;
  t.a.repushes = t.b.repushes = false;
  t.Begin();
  for (TestWorker* worker : {&t.a, &t.b}) {
    for (uint32_t chunk = 0; chunk < 8; ++chunk) worker->lane().pushed.insert({0, chunk});
  }
  // Both begin at other ends of each shard, so the round enters pull mode; then its first four
  // chunks follow.
  for (const uint32_t chunk : {0u, 1u, 4u, 5u}) t.a.SendFrame(1, {0, chunk, 1});
  for (const uint32_t chunk : {7u, 6u, 3u}) t.b.SendFrame(1, {0, chunk, 1});
  ASSERT_EQ(t.Notes(NoteKind::kPullMode), 0u) << "b still has room at the first shard";
  t.b.SendFrame(1, {0, 2, 1});
  ASSERT_EQ(t.Notes(NoteKind::kPullMode), 1u);
  for (const uint32_t chunk : {0u, 1u}) t.b.SendFrame(1, {0, chunk, 1});
  for (uint32_t chunk = 2; chunk < 6; ++chunk) {
    for (TestWorker* worker : {&t.a, &t.b}) worker->SendFrame(1, {0, chunk, 1});
  }
  ASSERT_THAT(t.a.Last<Pull>().wanted, ElementsAre(ChunkRange{0, 7, 1})) << "as it was of chunk 6";
  t.LoseShard(t.one);
  EXPECT_THAT(t.a.Last<Credit>().refused, ElementsAre(ChunkRange{0, 4, 2})) << "the front";
  EXPECT_THAT(t.a.Last<Pull>().discarded, ElementsAre(ChunkRange{0, 6, 2}))
      << "they are on their way";
}

// ---- windows

struct NarrowShards : Sharded {
  // Frames of one chunk, and so many of them in a window.
  static Config Narrow(uint64_t chunks) {
    Config config = Spread();
    config.frame_bytes = kChunkBytes;
    config.window_bytes = chunks * kChunkBytes;
    return config;
  }
  explicit NarrowShards(uint64_t chunks = 2) : Sharded(kFeaturePlacement, Narrow(chunks)) {
    a.repushes = b.repushes = false;
    Begin();
    for (TestWorker* worker : {&a, &b}) {
      for (uint32_t chunk = 0; chunk < 8; ++chunk) worker->lane().pushed.insert({0, chunk});
    }
  }
  static void Send(TestWorker& worker, const std::vector<uint32_t>& chunks) {
    for (const uint32_t chunk : chunks) worker.SendFrame(1, {0, chunk, 1});
  }
};

TEST(Shards, EachHasAWindowOfItsOwn) {
  NarrowShards t;
  t.Send(t.a, {0, 1});
  EXPECT_EQ(t.a.Last<Credit>().window, 0u);
  EXPECT_EQ(t.a.Last<Credit>().shard, kCoordinatorShard);
  t.Send(t.a, {4});
  EXPECT_EQ(t.a.Last<Credit>().acked, (std::vector<ChunkRange>{{0, 4, 1}}));
  EXPECT_EQ(t.a.Last<Credit>().window, kChunkBytes);
  EXPECT_EQ(t.a.Last<Credit>().shard, t.one);
  t.Send(t.a, {2});
  EXPECT_EQ(t.a.Last<Credit>().refused, (std::vector<ChunkRange>{{0, 2, 1}}))
      << "its window is full";
  EXPECT_EQ(t.round()->WithoutCredit(), 0u);
  t.Send(t.a, {5});
  EXPECT_EQ(t.round()->WithoutCredit(), 1u) << "no shard has room for more";
  t.Send(t.b, {4});
  EXPECT_EQ(t.a.Last<Credit>().window, kChunkBytes);
  EXPECT_EQ(t.a.Last<Credit>().shard, t.one) << "where the chunk is reduced";
  EXPECT_EQ(t.round()->WithoutCredit(), 0u);
}

TEST(Shards, AMessageWithOneWindowHasTheLeastAndCreditsFollowForTheOthers) {
  NarrowShards t;
  t.Send(t.a, {0, 1, 4});
  t.a.Cut();
  t.a.Connect();
  ASSERT_EQ(t.a.Last<Welcome>().open.size(), 1u);
  EXPECT_EQ(t.a.Last<Welcome>().open[0].window, 0u);
  const auto credits = t.a.All<Credit>();
  ASSERT_FALSE(credits.empty());
  EXPECT_EQ(credits.back().shard, t.one);
  EXPECT_EQ(credits.back().window, kChunkBytes);
}

TEST(Shards, WhatALostOneHadParkedFillsNoWindowAnyMore) {
  NarrowShards t;
  t.Send(t.a, {0, 1, 4, 5});
  ASSERT_EQ(t.round()->WithoutCredit(), 1u);
  t.LoseShard(t.one);
  const Contribution& left = t.round()->members()[0].contribution;
  EXPECT_EQ(left.parked().total(), 2 * kChunkBytes);
  EXPECT_EQ(left.parked().At(t.one) + left.missing().At(t.one), 0u);
  EXPECT_EQ(left.missing().At(kCoordinatorShard), 6 * kChunkBytes);
  EXPECT_EQ(t.round()->WithoutCredit(), 1u) << "the window of the shard that is left is full";
  EXPECT_EQ(t.a.Last<Credit>().shard, std::nullopt) << "there is one shard";
  EXPECT_EQ(t.a.Last<Credit>().window, 0u);
  t.Send(t.b, {0, 1, 2, 3});
  t.Send(t.a, {2, 3, 4, 5});
  t.Send(t.b, {4, 5, 6, 7});
  t.Send(t.a, {6, 7});
  for (TestWorker* worker : {&t.a, &t.b}) worker->Commit();
  t.ExpectSumOfBoth();
}

// A window that had enough room for the rest at a shard is too small once another one's is added.
TEST(Shards, AWorkerHearsOfItsRoomForWhatALostOneLeavesToAnother) {
  Config config = NarrowShards::Narrow(2);
  config.frame_bytes = 2 * kChunkBytes;
  Sharded t(kFeaturePlacement, config);
  t.Begin();
  for (TestWorker* worker : {&t.a, &t.b}) worker->Push(0, 0, 2);
  t.a.Push(0, 2, 1);
  const auto blocked = [&] { return t.round()->members()[0].room.blocked; };
  ASSERT_FALSE(blocked()) << "it lacks one chunk there, for which there is room";
  t.LoseShard(t.one);
  EXPECT_TRUE(blocked()) << "now it lacks five";
  t.b.Push(0, 2, 1);
  EXPECT_FALSE(blocked());
  EXPECT_EQ(t.a.Last<Credit>().window, 2 * kChunkBytes);
}

TEST(Shards, AFrameAtAnotherShardIsRefused) {
  Sharded t;
  t.a.repushes = false;
  t.Begin();
  t.a.lane().pushed.insert({{0, 3}, {0, 4}});
  t.a.SendFrameTo(t.one, 1, {0, 3, 2});
  EXPECT_EQ(t.a.Last<Credit>().acked, (std::vector<ChunkRange>{{0, 4, 1}}));
  EXPECT_EQ(t.a.Last<Credit>().refused, (std::vector<ChunkRange>{{0, 3, 1}}));
  EXPECT_THAT(t.NoteText(NoteKind::kFrameRefused), HasSubstr("a shard that does not hold them"));
  t.a.SendFrameTo(kCoordinatorShard, 1, {0, 3, 1});
  t.a.SendFrameTo(t.one, 1, {0, 3, 1});
  EXPECT_EQ(t.a.Last<Credit>().acked, (std::vector<ChunkRange>{{0, 3, 1}})) << "it is here";
}

TEST(Shards, AWorkerThatDoesNotKnowThemKeepsTheJobOnTheCoordinator) {
  Sharded t(0);
  t.a.Contribute();
  EXPECT_EQ(t.kept_chunks(), 8u) << "b came after the lane had got its placement";
  t.b.Contribute();
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.a.lane().placement.number, 0u);
  EXPECT_EQ(t.kept_chunks(t.one), 0u);
}

TEST(Shards, WhenSuchAWorkerJoinsTheNextRoundIsOnTheCoordinator) {
  Sharded t;
  t.a.Contribute();
  TestWorker& old = t.Worker("old");
  old.Connect();
  old.Register({Tensor("w", 8)});
  old.Ready();
  EXPECT_EQ(t.kept_chunks(t.one), 4u) << "the open round stays";
  t.b.Contribute();
  t.ExpectSumOfBoth();
  ASSERT_EQ(old.role, Role::kMember);
  EXPECT_EQ(t.a.lane().placement.number, 0u);
  for (TestWorker* worker : {&t.a, &t.b, &old}) worker->Contribute();
  EXPECT_EQ(t.Got(old, 7, 2), (Reduced{t.a.value + t.b.value + old.value, 3}));
  old.Send(Leave{});
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  EXPECT_NE(t.a.lane().placement.number, 0u) << "it was the last of these";
}

// What a lane needs at least of four workers: a frame of each, one to add them up, and a result.
constexpr uint64_t kLaneBytes = (4 + kWidening + 1) * 8 * kChunkBytes;

// Room for four such lanes, and for what is known of their chunks.
Config RoomForFourLanes() {
  Config config = Spread();
  config.frame_bytes = config.window_bytes = config.result_window_bytes = 8 * kChunkBytes;
  config.memory_bytes = 4 * kLaneBytes + (uint64_t{1} << 20);
  return config;
}

TEST(Shards, OneWithLittleMemoryIsNotUsedAndItIsSaidWhy) {
  Sharded t(kFeaturePlacement, RoomForFourLanes());
  const ShardId small = t.AddShard("small", t.config.memory_bytes / 2 - 1);
  const std::string why = WhyWithout(t.job(), t.core->shards(), small);
  EXPECT_THAT(why, HasSubstr(absl::StrCat("its memory.budget has ", t.config.memory_bytes / 2 - 1,
                                          " bytes, less than half of the ", t.config.memory_bytes,
                                          " of the aggregator")));
  EXPECT_EQ(t.NoteText(NoteKind::kShardTooSmall),
            absl::StrCat("Jobs do without shard small: ", why, "."));
  EXPECT_EQ(WhyWithout(t.job(), t.core->shards(), t.one), "") << "it does not say what it has";
  for (int round = 0; round < 2; ++round) {
    t.a.Contribute();
    t.b.Contribute();
  }
  t.ExpectSumOfBoth(2);
  EXPECT_FALSE(Uses(t.job(), small));
}

TEST(Shards, TheSmallestOneBoundsWindowsThatAreLargerThanALaneNeeds) {
  Config config = RoomForFourLanes();
  config.frame_bytes = kChunkBytes;
  config.memory_bytes = 100 * kChunkBytes;  // One lane takes 48, and leaves the next less.
  const auto windows = [&config](uint64_t memory) {
    Sharded t(kFeaturePlacement, config);
    t.AddShard("two", memory);
    t.a.Register({Tensor("x", 8)}, "x");
    EXPECT_EQ(t.Notes(NoteKind::kShardTooSmall), 0u);
    return t.core->window_bytes();
  };
  const uint64_t wide = windows(config.memory_bytes);
  EXPECT_LT(wide, config.memory_bytes);
  EXPECT_GT(wide, config.memory_bytes / 2);
  EXPECT_LT(windows(wide - kChunkBytes), wide);
  EXPECT_EQ(windows(0), wide) << "one that does not say what it has bounds nothing";
}

TEST(Shards, ALaneThatNeedsMoreThanTheSmallestOneHasTakesTheLeast) {
  Config config = RoomForFourLanes();
  config.frame_bytes = kChunkBytes;
  config.memory_bytes = 100 * kChunkBytes;
  Sharded t(kFeaturePlacement, config);
  const uint64_t wide = t.core->window_bytes();
  const uint64_t least = (4 + kWidening + 1) * kChunkBytes;
  const ShardId small = t.AddShard("small", wide + least - 1);
  const ShardId large = t.AddShard("large", wide + least);
  t.a.Register({Tensor("x", 8)}, "x");
  EXPECT_EQ(t.core->window_bytes(), wide + least);
  EXPECT_NE(WhyWithout(t.job(), t.core->shards(), small), "");
  EXPECT_EQ(WhyWithout(t.job(), t.core->shards(), large), "");
}

TEST(Shards, JobsGoOnWithoutOneThatIsTooSmallForALaneThatCouldNotWorkOtherwise) {
  Sharded t(kFeaturePlacement, RoomForFourLanes());
  const uint64_t memory = 2 * kLaneBytes + (uint64_t{1} << 20);
  const ShardId two = t.AddShard("two", memory);
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  t.a.Contribute();  // It has chunks on all shards.
  EXPECT_TRUE(Uses(t.job(), two));
  EXPECT_GT(t.kept_chunks(two), 0u);
  TestWorker& other = t.Worker("c");
  other.job = "other";
  other.features = kFeaturePlacement;
  other.Connect();
  other.Register({Tensor("v", 8)}, "v");
  EXPECT_EQ(t.core->window_bytes(), 2 * kLaneBytes);
  EXPECT_TRUE(Uses(t.job(), two)) << "there is room for both";
  other.Register({Tensor("x", 8)}, "x");
  EXPECT_EQ(t.core->window_bytes(), 3 * kLaneBytes);
  EXPECT_FALSE(Uses(t.job(), two));
  EXPECT_THAT(
      t.NoteText(NoteKind::kShardTooSmall),
      HasSubstr(absl::StrCat("its memory.budget has ", memory,
                             " bytes, and the lanes of all jobs reserve ", 3 * kLaneBytes)));
  t.b.Contribute();
  t.ExpectSumOfBoth(2);
  EXPECT_EQ(t.Notes(NoteKind::kLaneWaitsForMemory), 0u);

  // The other job ends, and its lanes with it.
  other.Send(Leave{});
  t.Sleep(absl::Hours(2));
  ASSERT_EQ(t.core->window_bytes(), kLaneBytes);
  EXPECT_EQ(t.NoteText(NoteKind::kShardTooSmall), "Shard two has room for all lanes again.");
  for (int round = 0; round < 2; ++round) {
    t.a.Contribute();
    t.b.Contribute();
  }
  t.ExpectSumOfBoth(4);
  EXPECT_TRUE(Uses(t.job(), two));
}

TEST(Shards, AJobGoesOnWithoutOneThatAWorkerCannotReach) {
  Sharded t;
  t.a.Contribute();
  t.b.Begin();
  t.b.Send(ShardUnreachable{t.one, "connection refused"});
  EXPECT_THAT(t.NoteText(NoteKind::kShardUnreachable), HasSubstr("Worker b of job job cannot reach "
                                                                 "shard one at one:29600"));
  t.Sleep(t.config.late_warning + absl::Seconds(1));
  EXPECT_THAT(t.NoteText(NoteKind::kWorkerLate), HasSubstr("it cannot reach shard one"));
  t.Sleep(t.config.shard_grace);
  EXPECT_EQ(t.kept_chunks(), 8u) << "a has pushed again what was there";
  EXPECT_EQ(t.kept_chunks(t.one), 0u);
  t.b.PushTensor(0);
  t.b.Commit();
  t.ExpectSumOfBoth();
  EXPECT_EQ(t.a.lane().placement.number, 0u);
}

TEST(Shards, OneThatIsReachedAgainStays) {
  Sharded t;
  t.b.Send(ShardUnreachable{t.one, "connection refused"});
  t.Sleep(t.config.shard_grace / 2);
  t.b.Send(ShardUnreachable{t.one, ""});
  t.Sleep(t.config.shard_grace * 2);
  t.a.Contribute();
  EXPECT_EQ(t.kept_chunks(t.one), 4u);
}

TEST(Shards, ARecoveredJobUsesTheShardsOfTheNewAggregator) {
  Sharded t;
  t.a.Contribute();
  t.b.Contribute();
  t.ExpectSumOfBoth();
  t.Crash(2);
  const ShardId two = t.AddShard("two");
  for (TestWorker* worker : {&t.a, &t.b}) worker->Connect();
  EXPECT_NE(t.a.lane().placement.number, 0u);
  t.a.Contribute();
  EXPECT_EQ(t.kept_chunks(two), 4u);
  t.b.Contribute();
  t.ExpectSumOfBoth(2);
}

}  // namespace
}  // namespace basin::aggregator
