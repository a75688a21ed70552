// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A worker whose rounds are placed on several shards: its streams to them, which frames they get,
// and what it does when one is added, lost, slow or out of reach.
//
// Lane g has the tensor "big" of 12 chunks and the tensor "small" of one. Placement 1 has the
// shards 0, 1 and 2: chunks 0 to 3 of "big" are on the first, 4 to 7 on the second, the others and
// "small" on the third. Shard i has the streams 2 i and 2 i + 1; a frame has two chunks.

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TensorHandle kBig = 0;
constexpr TensorHandle kSmall = 1;

using Chunks = std::vector<ChunkRange>;

PlacedShard ShardNamed(ShardId shard) {
  if (shard == kCoordinatorShard) return {};
  return {shard, absl::StrCat("s-", shard), absl::StrCat("host-", shard, ":29700")};
}

Placement PlacedOn(PlacementNumber number, const std::vector<ShardId>& shards,
                   std::vector<ShardId> lost = {}) {
  Placement placement{number, kChunkBytes, {}, std::move(lost)};
  for (const ShardId shard : shards) placement.shards.push_back(ShardNamed(shard));
  return placement;
}

std::vector<TensorSpec> BigModel() { return {F32("big", 12 * kChunkBytes / 4), F32("small", 100)}; }

LaneLayout PlacedLayout(PlacementNumber number, RoundNumber round = 1) {
  LaneLayout layout;
  layout.lane = kLane;
  layout.name = "g";
  layout.kind = LaneKind::kGradient;
  layout.tensors = BigModel();
  layout.round = round;
  layout.window = kWindow;
  if (number != 0) layout.placement = {number, 2};
  return layout;
}

Welcome PlacedWelcome(const Harness& worker, std::vector<Placement> placements) {
  Welcome welcome = worker.MakeWelcome();
  welcome.features = kFeatureRuns | kFeaturePlacement;
  welcome.placements = std::move(placements);
  return welcome;
}

void AllStreamsUp(Harness& worker) {
  const Streams& streams = worker.client.session().streams();
  for (uint32_t i = 0; i < streams.size(); ++i) {
    if (streams.Names(i) && !streams.IsUp(i)) worker.Do(StreamUp{i});
  }
}

// A member from round 1 on, all of whose streams are up.
Harness MemberOn(const Placement& placement, Config config = TestConfig()) {
  Harness worker(std::move(config));
  worker.Connect(PlacedWelcome(worker, {placement}));
  AllStreamsUp(worker);
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, BigModel()});
  worker.Receive(PlacedLayout(placement.number));
  worker.Do(DeclareReady{});
  worker.Receive(MembershipChanged{worker.Members(),
                                   Role::kMember,
                                   std::nullopt,
                                   {{"g", kLane, 1, 0, {}, {placement.number, 2}}}});
  return worker;
}

Harness BegunOn(const Placement& placement, Config config = TestConfig()) {
  Harness worker = MemberOn(placement, std::move(config));
  worker.Begin();
  return worker;
}

// The ranges that go to each shard, in order.
std::map<ShardId, Chunks> ByShard(const Harness& worker, const Actions& actions) {
  std::map<ShardId, Chunks> by_shard;
  for (const SendContribution& send : actions.Of<SendContribution>()) {
    Chunks& chunks = by_shard[worker.client.session().streams().ShardOf(send.stream)];
    chunks.insert(chunks.end(), send.ranges.begin(), send.ranges.end());
  }
  return by_shard;
}

std::vector<uint32_t> Closed(const Actions& actions) {
  std::vector<uint32_t> streams;
  for (const CloseStream& close : actions.Of<CloseStream>()) streams.push_back(close.stream);
  return streams;
}

// The value of a round over both tensors, whose results have these digests.
RoundValue BigValue(const Harness& worker) {
  RoundValue value = worker.Value();
  value.layout_version = 2;
  value.digest = ResultDigest(kSmall, 0);
  for (uint32_t chunk = 0; chunk < 12; ++chunk) value.digest += ResultDigest(kBig, chunk);
  return value;
}

void StageAll(Harness& worker, RoundNumber round) {
  worker.Do(worker.Result({kBig, 0, 12}, 1, round));
  worker.Do(worker.Result({kSmall, 0, 1}, 1, round));
  worker.Receive(Prepared{kLane, round, {kTerm, 1}, {kTerm, 1}, BigValue(worker)});
}

// ---- streams

TEST(Shards, EachShardOfTheWelcomeGetsStreamsOfItsOwn) {
  Harness worker;
  const Actions actions = worker.Connect(PlacedWelcome(worker, {PlacedOn(1, {0, 1, 2})}));
  const std::vector<OpenStream> opened = actions.Of<OpenStream>();
  ASSERT_EQ(opened.size(), 6u);
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(opened[i].stream, i);
    EXPECT_EQ(opened[i].number, i % 2) << "which it presents at its shard";
    EXPECT_EQ(opened[i].token, 4711u);
    EXPECT_EQ(opened[i].shard, ShardNamed(i / 2));
    EXPECT_EQ(opened[i].delay, absl::ZeroDuration());
  }
}

TEST(Shards, AListWithoutTheCoordinatorKeepsItsStreams) {
  Harness worker = BegunOn(PlacedOn(1, {1, 2}));
  EXPECT_TRUE(worker.client.session().streams().IsUp(0)) << "values travel there";
  const auto frames = ByShard(worker, worker.PushOne(kBig));
  EXPECT_EQ(frames.count(0), 0u);
  EXPECT_EQ(frames.size(), 2u);
}

TEST(Shards, AStreamThatIsLostIsOpenedAgainToItsShard) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  const OpenStream again = worker.Do(StreamDown{3, "reset"}).One<OpenStream>();
  EXPECT_EQ(again.stream, 3u);
  EXPECT_EQ(again.number, 1u);
  EXPECT_EQ(again.shard, ShardNamed(1));
}

TEST(Shards, AShardThatIsAddedGetsStreamsAtOnceAndChunksFromTheNextRound) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1}));
  const Actions added = worker.Receive(PlacedOn(2, {0, 1, 2}));
  EXPECT_EQ(added.Of<OpenStream>().size(), 2u);
  AllStreamsUp(worker);
  EXPECT_EQ(ByShard(worker, worker.PushOne(kBig)).count(2), 0u) << "the round is placed already";
  worker.PushOne(kSmall);
  worker.Do(CommitRound{0});
  StageAll(worker, 1);
  Verdict verdict = worker.MakeVerdict(BigValue(worker));
  verdict.placement = {2, 2};
  ASSERT_TRUE(worker.Receive(verdict).Has<Deliver>());
  worker.Begin();
  EXPECT_EQ(ByShard(worker, worker.PushOne(kBig)),
            (std::map<ShardId, Chunks>{{0, {{kBig, 0, 2}, {kBig, 2, 2}}},
                                       {1, {{kBig, 4, 2}, {kBig, 6, 2}}},
                                       {2, {{kBig, 8, 2}, {kBig, 10, 2}}}}));
}

TEST(Shards, TheRowOfALostShardIsUsedAgain) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  EXPECT_THAT(Closed(worker.Receive(PlacedOn(1, {0, 1, 2}, {1}))), ElementsAre(2, 3));
  EXPECT_FALSE(worker.client.session().streams().Has(1));
  EXPECT_TRUE(worker.Do(StreamUp{2}).all.empty()) << "it was on its way";
  const auto opened = worker.Receive(PlacedOn(2, {0, 2, 3})).Of<OpenStream>();
  ASSERT_EQ(opened.size(), 2u);
  EXPECT_EQ(opened[0].stream, 2u);
  EXPECT_EQ(opened[0].shard, ShardNamed(3));
}

TEST(Shards, ShardsThatNoRoundUsesAnyMoreLoseTheirStreams) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.PushOne(kBig);
  worker.PushOne(kSmall);
  worker.Do(CommitRound{0});
  StageAll(worker, 1);
  // A worker that knows no shards has come.
  EXPECT_THAT(Closed(worker.Receive(worker.MakeVerdict(BigValue(worker)))),
              ElementsAre(2, 3, 4, 5));
  worker.Begin();
  EXPECT_EQ(ByShard(worker, worker.PushOne(kBig)).size(), 1u);
}

TEST(Shards, ANewSessionKnowsOnlyThePlacementsOfItsWelcome) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.PushOne(kBig);
  worker.Do(SessionDown{"lost"});
  worker.Pass(absl::Seconds(3));
  Welcome welcome = PlacedWelcome(worker, {PlacedOn(7, {0, 5})});
  welcome.role = Role::kMember;
  welcome.membership = worker.client.membership();
  welcome.layouts = {PlacedLayout(7)};
  worker.Do(SessionUp{});
  const auto opened = worker.Receive(welcome).Of<OpenStream>();
  ASSERT_EQ(opened.size(), 4u);
  EXPECT_EQ(opened[2].shard, ShardNamed(5));
  const auto to_5 = ByShard(worker, worker.Do(StreamUp{2}));
  EXPECT_EQ(to_5, (std::map<ShardId, Chunks>{{5, {{kBig, 6, 2}, {kBig, 8, 2}, {kBig, 10, 2}}}}));
}

TEST(Shards, WithoutAPlacementANewSessionSendsAllToTheCoordinator) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.PushOne(kBig);
  worker.Do(SessionDown{"lost"});
  worker.Pass(absl::Seconds(3));
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.membership = worker.client.membership();
  welcome.layouts = {PlacedLayout(0)};
  worker.Do(SessionUp{});
  EXPECT_EQ(worker.Receive(welcome).Of<OpenStream>().size(), 2u);
  EXPECT_EQ(Ranges(worker.Do(StreamUp{0})).size(), 6u);
}

TEST(Shards, APlacementThatWasNotSentEndsTheSession) {
  Harness worker = MemberOn(PlacedOn(1, {0, 1}));
  const Actions actions = worker.Receive(PlacedLayout(9));
  EXPECT_THAT(actions.One<CloseSession>().reason, HasSubstr("placement 9"));
}

// ---- frames

TEST(Shards, FramesAreCutAtTheBordersOfShards) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  const Actions pushed = worker.Do(PushTensors{0, {{0, kBig, 70, 1.0}, {0, kSmall, 71, 1.0}}});
  EXPECT_EQ(ByShard(worker, pushed),
            (std::map<ShardId, Chunks>{{0, {{kBig, 0, 2}, {kBig, 2, 2}}},
                                       {1, {{kBig, 4, 2}, {kBig, 6, 2}}},
                                       {2, {{kBig, 8, 2}, {kBig, 10, 2}, {kSmall, 0, 1}}}}));
  std::set<ShardId> first;
  for (size_t i = 0; i < 3; ++i) {
    const SendContribution frame = pushed.Of<SendContribution>()[i];
    first.insert(worker.client.session().streams().ShardOf(frame.stream));
  }
  EXPECT_EQ(first.size(), 3u) << "the shards take turns";
}

TEST(Shards, AFrameDoesNotWaitForChunksOfAnotherShard) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  EXPECT_EQ(Ranges(worker.Do(PushTensor{0, kBig, 0, std::nullopt, 3})), (Chunks{{kBig, 0, 2}}))
      << "chunk 3 is the first shard's, and fills the frame";
  const auto more = [&](uint32_t chunks) {
    return Ranges(worker.Do(PushMore{0, {{kBig, chunks, 70, 1.0}}}));
  };
  EXPECT_EQ(more(4), (Chunks{{kBig, 2, 2}}));
  EXPECT_THAT(more(5), IsEmpty());
  EXPECT_EQ(more(6), (Chunks{{kBig, 4, 2}}));
}

TEST(Shards, AFrameIsNotHeldBackAtABorderWhileTheTensorGrows) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2, 3}));  // Three chunks each.
  EXPECT_EQ(Ranges(worker.Do(PushTensor{0, kBig, 0, std::nullopt, 3})),
            (Chunks{{kBig, 0, 2}, {kBig, 2, 1}}))
      << "what follows is on another shard";
  EXPECT_THAT(Ranges(worker.Do(PushMore{0, {{kBig, 4, 70, 1.0}}})), IsEmpty());
}

TEST(Shards, AShardWithoutAStreamHoldsUpOnlyItsOwnChunks) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.Do(StreamDown{2, "reset"});
  worker.Do(StreamDown{3, "reset"});
  const auto frames = ByShard(worker, worker.PushOne(kBig));
  EXPECT_EQ(frames.count(1), 0u);
  EXPECT_EQ(frames.at(0).size(), 2u);
  EXPECT_EQ(frames.at(2).size(), 2u);
  worker.PushOne(kSmall);
  EXPECT_FALSE(worker.Do(CommitRound{0}).HasSent<Commit>()) << "not all was sent";
  const Actions up = worker.Do(StreamUp{3});
  EXPECT_EQ(ByShard(worker, up), (std::map<ShardId, Chunks>{{1, {{kBig, 4, 2}, {kBig, 6, 2}}}}));
  EXPECT_TRUE(up.HasSent<Commit>());
}

// What a credit for one shard says.
Credit CreditAt(ShardId shard, uint64_t window, Chunks acked = {}, Chunks refused = {}) {
  return Credit{kLane, 1, window, std::move(acked), std::move(refused), shard};
}

TEST(Shards, EachHasAWindowOfItsOwnSoThatASlowOneHoldsUpNoOther) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.Receive(Credit{kLane, 1, 2 * kChunkBytes, {}, {}});
  EXPECT_EQ(
      ByShard(worker, worker.PushOne(kBig)),
      (std::map<ShardId, Chunks>{{0, {{kBig, 0, 2}}}, {1, {{kBig, 4, 2}}}, {2, {{kBig, 8, 2}}}}));
  const auto acked = [&](ShardId shard, const ChunkRange& range) {
    return ByShard(worker, worker.Receive(CreditAt(shard, 2 * kChunkBytes, {range})));
  };
  EXPECT_EQ(acked(2, {kBig, 8, 2}), (std::map<ShardId, Chunks>{{2, {{kBig, 10, 2}}}}));
  EXPECT_EQ(acked(0, {kBig, 0, 2}), (std::map<ShardId, Chunks>{{0, {{kBig, 2, 2}}}}));
  EXPECT_THAT(acked(0, {kBig, 2, 2}), IsEmpty())
      << "the rest is the slow one's, whose window is full";
  EXPECT_EQ(acked(1, {kBig, 4, 2}), (std::map<ShardId, Chunks>{{1, {{kBig, 6, 2}}}}));
}

TEST(Shards, AWindowIsThatOfTheShardThatItNamesOrOfAll) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.Receive(Credit{kLane, 1, 2 * kChunkBytes, {}, {}});
  worker.Receive(CreditAt(1, 0));
  worker.Receive(CreditAt(9, 0));  // It is unknown.
  EXPECT_EQ(ByShard(worker, worker.PushOne(kBig)),
            (std::map<ShardId, Chunks>{{0, {{kBig, 0, 2}}}, {2, {{kBig, 8, 2}}}}));
  EXPECT_EQ(ByShard(worker, worker.Receive(CreditAt(1, 4 * kChunkBytes))),
            (std::map<ShardId, Chunks>{{1, {{kBig, 4, 2}, {kBig, 6, 2}}}}));
  EXPECT_EQ(ByShard(worker, worker.Receive(Credit{kLane, 1, 4 * kChunkBytes, {}, {}})),
            (std::map<ShardId, Chunks>{{0, {{kBig, 2, 2}}}, {2, {{kBig, 10, 2}}}}));
}

TEST(Shards, AFullWindowOfOneCutsNoFrameOfAnother) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.Receive(Credit{kLane, 1, 2 * kChunkBytes, {}, {}});
  worker.Receive(CreditAt(1, kChunkBytes));
  EXPECT_EQ(
      ByShard(worker, worker.PushOne(kBig)),
      (std::map<ShardId, Chunks>{{0, {{kBig, 0, 2}}}, {1, {{kBig, 4, 1}}}, {2, {{kBig, 8, 2}}}}))
      << "nothing else could open the window";
}

TEST(Shards, EachShardHasALinkOfItsOwnAndAllShareTheWorkersCable) {
  Config config = TestConfig();
  config.follows_link = true;
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}), config);
  // On an unknown link two chunks are on their way; to three shards, one to each.
  EXPECT_EQ(
      ByShard(worker, worker.PushOne(kBig)),
      (std::map<ShardId, Chunks>{{0, {{kBig, 0, 1}}}, {1, {{kBig, 4, 1}}}, {2, {{kBig, 8, 1}}}}));
  const Actions acked = worker.Receive(worker.Acked({{kBig, 4, 1}}));
  EXPECT_EQ(ByShard(worker, acked), (std::map<ShardId, Chunks>{{1, {{kBig, 5, 1}}}}));
  // One that is slow takes no more than its one.
  EXPECT_THAT(Ranges(worker.Receive(worker.Acked({{kBig, 8, 1}}))),
              ElementsAre(ChunkRange{kBig, 9, 1}));
  EXPECT_EQ(worker.client.session().streams().Of(0).in_flight(), kChunkBytes);
}

TEST(Shards, InPullModeWhatIsWantedGoesToItsShard) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.Receive(Pull{kLane, 1, {}, {}, kWindow});
  EXPECT_THAT(Ranges(worker.PushOne(kBig)), IsEmpty());
  EXPECT_EQ(ByShard(worker, worker.Receive(Pull{kLane, 1, {{kBig, 3, 3}}, {}, kWindow})),
            (std::map<ShardId, Chunks>{{0, {{kBig, 3, 1}}}, {1, {{kBig, 4, 2}}}}));
}

TEST(Shards, ALaneWhoseTensorsAreNotAllKnownWaitsForThem) {
  Harness worker;
  worker.Connect(PlacedWelcome(worker, {PlacedOn(1, {0, 1, 2})}));
  AllStreamsUp(worker);
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, BigModel()});
  LaneLayout first = PlacedLayout(1);
  LaneLayout second = first;
  first.tensors = std::vector<TensorSpec>{BigModel()[0]};
  second.first = 1;
  second.tensors = std::vector<TensorSpec>{BigModel()[1]};
  worker.Receive(first);
  worker.Do(DeclareReady{});
  worker.Receive(MembershipChanged{
      worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0, {}, {1, 2}}}});
  worker.Begin();
  EXPECT_THAT(Ranges(worker.PushOne(kBig)), IsEmpty()) << "where its chunks are is not known";
  EXPECT_EQ(ByShard(worker, worker.Receive(second)).size(), 3u);
}

TEST(Shards, TensorsThatAreRegisteredLaterGoWhereThePlacementSays) {
  Placement placement = PlacedOn(1, {0, 1, 2});
  placement.least_bytes = 1;  // Or they would be too small to be dealt.
  Harness worker = BegunOn(placement);
  const std::vector<TensorSpec> more = {F32("x", 10), F32("y", 10)};
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, more});
  LaneLayout layout = PlacedLayout(1);
  layout.first = 2;
  layout.tensors = more;
  worker.Receive(layout);
  EXPECT_EQ(ByShard(worker, worker.PushOne(2)), (std::map<ShardId, Chunks>{{0, {{2, 0, 1}}}}));
  EXPECT_EQ(ByShard(worker, worker.PushOne(3)), (std::map<ShardId, Chunks>{{1, {{3, 0, 1}}}}));
}

// ---- a shard is lost

TEST(Shards, WhatALostShardHadNotAcknowledgedIsPushedToTheOthers) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.PushOne(kBig);
  const Actions lost = worker.Receive(PlacedOn(1, {0, 1, 2}, {1}));
  EXPECT_THAT(Closed(lost), ElementsAre(2, 3));
  EXPECT_EQ(ByShard(worker, lost),
            (std::map<ShardId, Chunks>{{0, {{kBig, 4, 2}}}, {2, {{kBig, 6, 2}}}}))
      << "no other chunk moves";
}

TEST(Shards, WhatALostShardHadAcknowledgedIsPushedWhenTheAggregatorAsks) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.PushOne(kBig);
  worker.Receive(worker.Acked({{kBig, 0, 12}}));
  EXPECT_THAT(Ranges(worker.Receive(PlacedOn(1, {0, 1, 2}, {1}))), IsEmpty());
  const Actions refused = worker.Receive(Credit{kLane, 1, kWindow, {}, {{kBig, 4, 2}}});
  EXPECT_EQ(ByShard(worker, refused), (std::map<ShardId, Chunks>{{0, {{kBig, 4, 2}}}}));
  const Actions redo = worker.Receive(
      AttemptRestarted{kLane, 1, {kTerm, 2}, "shard s-1 was lost", {{kBig, 6, 2}}, kWindow});
  EXPECT_EQ(ByShard(worker, redo), (std::map<ShardId, Chunks>{{2, {{kBig, 6, 2}}}}));
}

TEST(Shards, WhatWaitsForALostShardGoesToTheOthers) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.Do(StreamDown{2, "reset"});
  worker.Do(StreamDown{3, "reset"});
  worker.PushOne(kBig);
  EXPECT_EQ(ByShard(worker, worker.Receive(PlacedOn(1, {0, 1, 2}, {1}))),
            (std::map<ShardId, Chunks>{{0, {{kBig, 4, 2}}}, {2, {{kBig, 6, 2}}}}));
}

TEST(Shards, WhenOneIsLostTheOthersKeepTheirWindows) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  worker.Receive(Credit{kLane, 1, 2 * kChunkBytes, {}, {}});
  worker.PushOne(kBig);
  EXPECT_THAT(Ranges(worker.Receive(PlacedOn(1, {0, 1, 2}, {1}))), IsEmpty())
      << "two chunks are on their way to each";
  EXPECT_EQ(ByShard(worker, worker.Receive(CreditAt(0, 4 * kChunkBytes, {{kBig, 0, 2}}))),
            (std::map<ShardId, Chunks>{{0, {{kBig, 2, 2}, {kBig, 4, 2}}}}))
      << "two of the lost one's are among them";
}

TEST(Shards, ACallThatIsPostponedIsPlacedAsTheNextRound) {
  Harness worker;
  worker.Connect(PlacedWelcome(worker, {PlacedOn(1, {0, 1, 2}), PlacedOn(2, {0, 2})}));
  AllStreamsUp(worker);
  worker.Do(RegisterTensors{"g", LaneKind::kCall, BigModel()});
  LaneLayout layout = PlacedLayout(1);
  layout.kind = LaneKind::kCall;
  worker.Receive(layout);
  worker.Do(DeclareReady{});
  worker.Receive(MembershipChanged{
      worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0, {}, {1, 2}}}});
  worker.Begin();
  worker.PushOne(kBig);
  RoundValue value = BigValue(worker);
  value.contributors.erase(value.contributors.begin());  // It was made without w-0.
  Verdict verdict = worker.MakeVerdict(value);
  verdict.placement = {2, 2};
  const Actions next = worker.Receive(verdict);
  EXPECT_EQ(next.OneSent<Begin>().round, 2u);
  EXPECT_EQ(ByShard(worker, next),
            (std::map<ShardId, Chunks>{{0, {{kBig, 0, 2}, {kBig, 2, 2}, {kBig, 4, 2}}},
                                       {2, {{kBig, 6, 2}, {kBig, 8, 2}, {kBig, 10, 2}}}}));
}

// ---- supplies

std::map<ShardId, Chunks> SuppliedTo(const Harness& worker, const Actions& actions) {
  std::map<ShardId, Chunks> by_shard;
  for (const SendSupply& send : actions.Of<SendSupply>()) {
    Chunks& chunks = by_shard[worker.client.session().streams().ShardOf(send.stream)];
    chunks.insert(chunks.end(), send.ranges.begin(), send.ranges.end());
  }
  return by_shard;
}

TEST(Shards, EachShardIsSuppliedWithWhatItHolds) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  StageAll(worker, 1);
  worker.Do(StreamDown{4, "reset"});
  worker.Do(StreamDown{5, "reset"});
  const Actions asked = worker.Receive(Supply{kLane, 1, {kTerm, 1}, {{kBig, 3, 6}}});
  EXPECT_EQ(SuppliedTo(worker, asked),
            (std::map<ShardId, Chunks>{{0, {{kBig, 3, 1}}}, {1, {{kBig, 4, 2}, {kBig, 6, 2}}}}));
  EXPECT_EQ(SuppliedTo(worker, worker.Do(StreamUp{4})),
            (std::map<ShardId, Chunks>{{2, {{kBig, 8, 1}}}}));
}

TEST(Shards, ASupplyThatWasLostWithItsShardIsSentToTheOthers) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  StageAll(worker, 1);
  worker.Receive(Supply{kLane, 1, {kTerm, 1}, {{kBig, 4, 4}}});
  EXPECT_EQ(SuppliedTo(worker, worker.Receive(PlacedOn(1, {0, 1, 2}, {1}))),
            (std::map<ShardId, Chunks>{{0, {{kBig, 4, 2}}}, {2, {{kBig, 6, 2}}}}));
}

// ---- out of reach

TEST(Shards, OneThatCannotBeReachedIsReportedOnceAndAgainWhenItCan) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  EXPECT_FALSE(worker.Do(StreamDown{2, "reset"}).HasSent<ShardUnreachable>());
  EXPECT_FALSE(worker.Do(StreamDown{2, "refused"}).HasSent<ShardUnreachable>())
      << "the other stream is up";
  const auto report = worker.Do(StreamDown{3, "refused"}).OneSent<ShardUnreachable>();
  EXPECT_EQ(report.shard, 1u);
  EXPECT_EQ(report.why, "refused");
  EXPECT_FALSE(worker.Do(StreamDown{3, "refused"}).HasSent<ShardUnreachable>());
  EXPECT_EQ(worker.Do(StreamUp{2}).OneSent<ShardUnreachable>(), (ShardUnreachable{1, ""}));
  EXPECT_FALSE(worker.Do(StreamUp{3}).HasSent<ShardUnreachable>());
}

TEST(Shards, AReasonThatNamesTheShardNamesItOnce) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  const std::string reason = "shard s-1 at host-1:29700 cannot be reached (refused)";
  for (const uint32_t stream : {2, 2}) worker.Do(StreamDown{stream, reason});
  const auto report = worker.Do(StreamDown{3, reason}).OneSent<ShardUnreachable>();
  EXPECT_EQ(report.why, "it cannot be reached (refused)");
  EXPECT_EQ(worker.client.session().streams().OutOfReach()->Trouble(),
            "no data stream to shard s-1 at host-1:29700 is open: it cannot be reached (refused)");
}

TEST(Shards, ANewSessionReportsItAgain) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  const auto fail = [&] {
    Actions last;
    for (int i = 0; i < 2; ++i) {
      for (const uint32_t stream : {2, 3}) last = worker.Do(StreamDown{stream, "refused"});
    }
    return last;
  };
  fail();
  worker.Do(SessionDown{"lost"});
  worker.Pass(absl::Seconds(3));
  Welcome welcome = PlacedWelcome(worker, {PlacedOn(1, {0, 1, 2})});
  worker.Do(SessionUp{});
  worker.Receive(welcome);
  EXPECT_FALSE(worker.Do(StreamDown{2, "refused"}).HasSent<ShardUnreachable>());
  EXPECT_TRUE(worker.Do(StreamDown{2, "refused"}).HasSent<ShardUnreachable>());
}

TEST(Shards, TheStreamsOfTheCoordinatorAreNotReported) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  for (int i = 0; i < 3; ++i) {
    for (const uint32_t stream : {0, 1}) {
      EXPECT_FALSE(worker.Do(StreamDown{stream, "refused"}).HasSent<ShardUnreachable>());
    }
  }
}

TEST(Shards, AWaitThatRunsOutNamesTheShard) {
  Harness worker = BegunOn(PlacedOn(1, {0, 1, 2}));
  for (const uint32_t stream : {2, 3}) worker.Do(StreamDown{stream, "connection refused"});
  worker.PushOne(kBig);
  worker.PushOne(kSmall);
  worker.Do(CommitRound{0});
  worker.Do(WaitRound{0, worker.now + absl::Seconds(1)});
  const Error error = worker.Pass(absl::Seconds(1)).One<FailRound>().error;
  EXPECT_EQ(error.code, ErrorCode::kOutcomeUnknown);
  EXPECT_THAT(error.text, HasSubstr("for worker w-0 of job train, no data stream to shard s-1 at "
                                    "host-1:29700 is open: connection refused"));
}

// ---- any order

// The shards' end of a worker's streams, whose frames arrive, are refused or are lost in any order.
class AnyOrder {
 public:
  explicit AnyOrder(uint64_t seed) : random_(seed), worker_(BegunOn(placement_)) {
    for (uint32_t i = 0; i < worker_.client.session().streams().size(); ++i) up_.insert(i);
  }

  // Pushes in parts, while things happen; then lets all arrive. Returns how many chunks were sent.
  uint32_t Run() {
    Take(worker_.Receive(Credit{kLane, 1, 12 * kChunkBytes, {}, {}}));
    Take(worker_.Do(PushTensor{0, kBig, 0, std::nullopt, 1}));
    Take(worker_.PushOne(kSmall));
    for (uint32_t chunks = 2; chunks <= 12; ++chunks) {
      Take(worker_.Do(PushMore{0, {{kBig, chunks, 70, 1.0}}}));
      for (uint32_t i = Pick(4); i > 0; --i) Happen();
    }
    Take(worker_.Do(CommitRound{0}));
    for (int i = 0; i < 30; ++i) Happen();
    for (int i = 0; i < 300 && (!opening_.empty() || !frames_.empty()); ++i) {
      while (!opening_.empty()) Open();
      if (!frames_.empty()) Arrive(false);
    }
    EXPECT_TRUE(committed_);
    EXPECT_EQ(held_.size(), 13u) << "every chunk is where the placement says";
    EXPECT_EQ(worker_.lane().round->push().unacked_bytes(), 0u);
    return sent_;
  }

 private:
  using Chunk = std::pair<TensorIndex, uint32_t>;
  struct Frame {
    uint32_t stream;
    Chunks ranges;
  };

  uint32_t Pick(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  Shares Where() const { return Shares(placement_, worker_.lane().layout, 2); }

  void Take(const Actions& actions) {
    const Streams& streams = worker_.client.session().streams();
    for (const Action& action : actions.all) {
      if (const auto* open = std::get_if<OpenStream>(&action)) opening_.insert(open->stream);
      if (const auto* close = std::get_if<CloseStream>(&action)) Drop(close->stream);
      if (const auto* send = std::get_if<Send>(&action)) {
        committed_ |= std::holds_alternative<Commit>(send->message);
      }
      const auto* send = std::get_if<SendContribution>(&action);
      if (send == nullptr) continue;
      EXPECT_EQ(up_.count(send->stream), 1u);
      const Chunks ranges(send->ranges.begin(), send->ranges.end());
      for (const ChunkRange& range : ranges) {
        EXPECT_EQ(Where().Head(worker_.lane().layout, range),
                  std::pair(streams.ShardOf(send->stream), range.count));
        sent_ += range.count;
      }
      frames_.push_back({send->stream, ranges});
    }
    for (const auto& [shard, window] : windows_) EXPECT_LE(InFlight(shard), window) << shard;
  }
  uint64_t InFlight(ShardId shard) const {
    return worker_.lane().round->push().unacked_bytes(shard);
  }
  void Drop(uint32_t stream) {
    up_.erase(stream);
    opening_.erase(stream);
    for (size_t i = frames_.size(); i-- > 0;) {
      if (frames_[i].stream == stream) frames_.erase(frames_.begin() + static_cast<int64_t>(i));
    }
  }
  void Open() {
    const uint32_t stream = *opening_.begin();
    opening_.erase(stream);
    up_.insert(stream);
    Take(worker_.Do(StreamUp{stream}));
  }
  void Arrive(bool may_refuse) {
    const size_t at = Pick(static_cast<uint32_t>(frames_.size()));
    const Frame frame = frames_[at];
    frames_.erase(frames_.begin() + static_cast<int64_t>(at));
    const ShardId shard = worker_.client.session().streams().ShardOf(frame.stream);
    if (may_refuse && Pick(4) == 0) {
      Take(worker_.Receive(CreditAt(shard, windows_.at(shard), {}, frame.ranges)));
      return;
    }
    for (const ChunkRange& range : frame.ranges) {
      for (uint32_t i = 0; i < range.count; ++i) held_.insert({range.tensor, range.first + i});
    }
    Take(worker_.Receive(CreditAt(shard, windows_.at(shard), frame.ranges)));
  }
  void LoseShard() {
    if (placement_.lost.size() + 1 == placement_.shards.size()) return;
    ShardId shard = Pick(4);
    while (!placement_.Has(shard)) shard = (shard + 1) % 4;
    const Shares before = Where();
    placement_.lost.push_back(shard);
    Chunks gone;
    for (auto it = held_.begin(); it != held_.end();) {
      const ChunkRange chunk{it->first, it->second, 1};
      const bool lost = before.Head(worker_.lane().layout, chunk).first == shard;
      if (lost) gone.push_back(chunk);
      it = lost ? held_.erase(it) : std::next(it);
    }
    // What is on its way to the coordinator's own shard arrives there, and is refused.
    for (size_t i = frames_.size(); i-- > 0;) {
      if (worker_.client.session().streams().ShardOf(frames_[i].stream) != shard) continue;
      gone.insert(gone.end(), frames_[i].ranges.begin(), frames_[i].ranges.end());
      frames_.erase(frames_.begin() + static_cast<int64_t>(i));
    }
    Take(worker_.Receive(placement_));
    const ShardId first = Where().First();
    Take(worker_.Receive(CreditAt(first, windows_.at(first), {}, gone)));
  }
  void Happen() {
    switch (Pick(8)) {
      case 0:
        return LoseShard();
      case 1: {
        if (up_.empty()) return;
        const uint32_t stream = *std::next(up_.begin(), Pick(static_cast<uint32_t>(up_.size())));
        Drop(stream);
        return Take(worker_.Do(StreamDown{stream, "reset"}));
      }
      case 2: {
        const ShardId shard = Pick(4);
        uint64_t& window = windows_.at(shard);
        window = (1 + Pick(6)) * kChunkBytes;
        if (InFlight(shard) > window) window = 12 * kChunkBytes;
        return Take(worker_.Receive(CreditAt(shard, window)));
      }
      case 3:
        return opening_.empty() ? void() : Open();
      default:
        if (!frames_.empty()) Arrive(true);
    }
  }

  std::mt19937_64 random_;
  Placement placement_ = PlacedOn(1, {0, 1, 2, 3});
  Harness worker_;
  std::map<ShardId, uint64_t> windows_{
      {0, 12 * kChunkBytes}, {1, 12 * kChunkBytes}, {2, 12 * kChunkBytes}, {3, 12 * kChunkBytes}};
  std::set<uint32_t> up_;
  std::set<uint32_t> opening_;
  std::vector<Frame> frames_;
  std::set<Chunk> held_;
  bool committed_ = false;
  uint32_t sent_ = 0;
};

TEST(Shards, EveryChunkGetsToItsShardWhateverIsLost) {
  uint32_t most = 0;
  for (uint64_t seed = 0; seed < 2000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    most = std::max(most, AnyOrder(seed).Run());
  }
  EXPECT_GT(most, 26u) << "much is sent again";
}

}  // namespace
}  // namespace basin::client
