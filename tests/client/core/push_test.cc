// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// When the client pushes chunks: order, frames, the window, streams, refusals, pull mode, restarts.

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

constexpr uint64_t kShort = 40;  // The bytes of the last chunk of tensor a.

// A member that has begun round 1 with a window of this many bytes.
Harness Begun(uint64_t window) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  worker.Receive(Credit{kLane, 1, window, {}, {}});
  return worker;
}

using Chunks = std::vector<ChunkRange>;

// A worker whose frames may have chunks of several tensors, in a round of a lane of this `model`.
Harness BegunWithLists(const std::vector<TensorSpec>& model) {
  Harness worker;
  Welcome welcome = worker.MakeWelcome();
  welcome.features = kFeatureRuns;
  worker.Connect(welcome);
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, model});
  LaneLayout layout = worker.MakeLayout();
  layout.tensors = model;
  worker.Receive(layout);
  worker.Receive(
      MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
  worker.Begin();
  return worker;
}

TEST(PushTest, FramesAreCutAndSpreadOverTheStreams) {
  Harness worker = Begun(kWindow);
  const std::vector<SendContribution> frames = worker.PushOne(kA).Of<SendContribution>();
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[0].ranges, (ChunkRanges{{0, 0, 2}}));
  EXPECT_EQ(frames[0].stream, 0u);
  EXPECT_EQ(frames[0].lane, 0u);
  EXPECT_EQ(frames[0].tensors[0], kA);
  EXPECT_EQ(frames[0].lane_index, kLane);
  EXPECT_EQ(frames[0].round, 1u);
  EXPECT_EQ(frames[1].ranges, (ChunkRanges{{0, 2, 1}}));
  EXPECT_EQ(frames[1].stream, 1u) << "the least loaded";
  EXPECT_EQ(worker.PushOne(kB).One<SendContribution>().stream, 1u);
  EXPECT_EQ(worker.lane().round->push().unacked_bytes(), 2 * kChunkBytes + kShort + 400);
  EXPECT_EQ(worker.client.session().streams().unacked(1), kShort + 400);
  EXPECT_TRUE(worker.PushOne(kC).all.empty()) << "an empty tensor has no frame";
}

// ---- the link

// A worker that follows its link, of which nothing is known yet, in a round of each of the lanes g
// and h.
Harness BegunOnTwoLanes(bool in_place = false) {
  Config config = TestConfig();
  config.follows_link = true;
  Harness worker(config);
  worker.Connect();
  worker.RegisterModel();
  worker.Do(RegisterTensors{"h", LaneKind::kGradient, {F32("d", 100)}});
  LaneLayout other = worker.MakeLayout();
  other.lane = kLane + 1;
  other.name = "h";
  other.tensors = std::vector<TensorSpec>{F32("d", 100)};
  worker.Receive(other);
  worker.Do(DeclareReady{});
  worker.Receive(MembershipChanged{
      worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}, {"h", kLane + 1, 1, 0}}});
  for (const LaneHandle lane : {0, 1}) {
    BeginRound begin{lane, Harness::Average(), {}, 17, {}};
    begin.in_place = in_place;
    worker.Do(begin);
  }
  return worker;
}

TEST(PushTest, OnAnUnknownLinkTwoChunksAreOnTheirWayOverOneStream) {
  Harness worker = BegunOnTwoLanes();
  const Actions first = worker.PushOne(kA);
  EXPECT_EQ(Ranges(first), (Chunks{{0, 0, 1}, {0, 1, 1}}));
  for (const auto& frame : first.Of<SendContribution>()) EXPECT_EQ(frame.stream, 0u);
  EXPECT_EQ(Ranges(worker.Receive(worker.Acked({{0, 0, 1}}))), (Chunks{{0, 2, 1}}));
}

TEST(PushTest, WhatOneLaneHasOnItsWayHoldsTheFramesOfAnotherBack) {
  Harness worker = BegunOnTwoLanes();
  worker.PushOne(kA);
  EXPECT_TRUE(Ranges(worker.Do(PushTensor{1, 0, PushDigest(0), 1.0})).empty());
  worker.Receive(worker.Acked({{0, 0, 1}}));
  const auto frame = worker.Receive(worker.Acked({{0, 1, 1}})).One<SendContribution>();
  EXPECT_EQ(frame.lane, 1u);
}

TEST(PushTest, TheEndOfARoundLetsTheFramesOfAnotherLaneGo) {
  Harness worker = BegunOnTwoLanes();
  worker.PushOne(kA);
  EXPECT_TRUE(Ranges(worker.Do(PushTensor{1, 0, PushDigest(0), 1.0})).empty());
  WithdrawRound withdraw;
  withdraw.lane = 0;
  EXPECT_EQ(worker.Do(withdraw).One<SendContribution>().lane, 1u);
}

TEST(PushTest, PayloadsInPlaceHaveNoLinkToFollow) {
  Harness worker = BegunOnTwoLanes(true);
  EXPECT_EQ(Ranges(worker.PushOne(kA)), (Chunks{{0, 0, 2}, {0, 2, 1}}));
}

// A worker that follows its link gets no more than some windows ahead of its results.
TEST(PushTest, AWorkerWaitsForResultsButNotForever) {
  Config config = TestConfig();
  config.follows_link = true;
  Harness worker(config);
  worker.Connect();
  const TensorSpec large = F32("large", uint64_t{64} * kChunkBytes / 4);
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, {large}});
  LaneLayout layout = worker.MakeLayout();
  layout.tensors = {large};
  worker.Receive(layout);
  worker.Receive(
      MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
  worker.Begin();
  uint32_t sent = 0;
  // Acknowledges each frame in turn, on a link of 25 MiB/s, until none is sent.
  const auto acknowledge = [&](Actions actions) {
    const uint32_t before = sent;
    for (uint32_t acked = sent;; ++acked) {
      for (const ChunkRange& range : Ranges(actions)) sent += range.count;
      if (acked == sent) return sent - before;
      worker.now += absl::Milliseconds(10);
      actions = worker.Receive(worker.Acked({{0, acked, 1}}));
    }
  };
  EXPECT_LT(acknowledge(worker.PushOne(0)), 32u);
  EXPECT_GE(sent, 6u);
  const auto resume_at = [&] { return worker.lane().round->push().resume_at(); };
  ASSERT_LT(resume_at(), worker.now + absl::Seconds(10));
  EXPECT_LE(worker.client.NextDeadline(), resume_at());
  const ResultReceived result{kLane, 1, {kTerm, 1}, {{0, 0, 3}}, {0, 0, 0}};
  EXPECT_EQ(acknowledge(worker.Do(result)), 3u);
  EXPECT_EQ(acknowledge(worker.Do(result)), 0u) << "it is the same one again";
  EXPECT_GT(acknowledge(worker.Pass(resume_at() - worker.now)), 8u) << "no more results came";
}

// ---- tensors that are pushed in part

PushMore More(TensorHandle tensor, uint32_t chunks) {
  return {0, {{tensor, chunks, PushDigest(tensor), 1.0}}};
}

TEST(PushTest, AGrowingTensorIsSentInWholeFramesAndCommittedWhenItIsComplete) {
  Harness worker = Begun(kWindow);
  EXPECT_TRUE(Ranges(worker.Do(PushTensor{0, kA, 0, std::nullopt, 1})).empty())
      << "half of a frame waits for the rest";
  EXPECT_EQ(Ranges(worker.Do(More(kA, 2))), (Chunks{{0, 0, 2}}));
  EXPECT_TRUE(Ranges(worker.PushOne(kB)).size() == 1) << "others go ahead";
  EXPECT_FALSE(worker.Do(CommitRound{0}).HasSent<Commit>());
  const Actions last = worker.Do(More(kA, 3));
  EXPECT_EQ(Ranges(last), (Chunks{{0, 2, 1}}));
  const Commit commit = last.OneSent<Commit>();
  EXPECT_EQ(commit.digest, PushDigest(kA) + PushDigest(kB));
  EXPECT_EQ(commit.squared_norm, 2.0);
  EXPECT_EQ(commit.chunks, 4u);
  EXPECT_TRUE(worker.Do(More(kA, 3)).all.empty()) << "that is known";
}

TEST(PushTest, ATensorThatWasNotPushedDoesNotGrow) {
  Harness worker = Begun(kWindow);
  EXPECT_TRUE(worker.Do(More(kA, 3)).all.empty());
  worker.PushOne(kB);
  EXPECT_TRUE(worker.Do(More(kB, 1)).all.empty());
  worker.Do(PushTensor{0, kA, 0, std::nullopt, 1});
  EXPECT_TRUE(worker.Do(More(kA, 99)).all.empty()) << "it has three chunks";
  EXPECT_EQ(Ranges(worker.Do(More(kA, 3))), (Chunks{{0, 0, 2}, {0, 2, 1}}));
}

TEST(PushTest, WhateverTheAggregatorNamesOnlyWhatIsHereIsSent) {
  Harness worker = Begun(kWindow);
  worker.Do(PushTensor{0, kA, 0, std::nullopt, 2});
  EXPECT_TRUE(Ranges(worker.Receive(Credit{kLane, 1, kWindow, {}, {{0, 2, 1}}})).empty());
  EXPECT_TRUE(Ranges(worker.Do(StreamDown{1})).empty());
  EXPECT_EQ(Ranges(worker.Do(StreamDown{0})), (Chunks{}));
  EXPECT_EQ(Ranges(worker.Do(StreamUp{0})), (Chunks{{0, 0, 2}}));
  worker.Receive(Pull{kLane, 1, {{0, 0, 3}}, {{0, 0, 3}}, kWindow});
  // The session is lost and the next one knows nothing.
  worker.Do(SessionDown{"lost"});
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.membership = worker.Members();
  welcome.layouts = {worker.MakeLayout()};
  welcome.open = {{kLane, 1, RoundPhase::kCollect, {}, {}, kWindow}};
  worker.Pass(absl::Seconds(60));
  const Actions again = worker.Connect(welcome);
  EXPECT_FALSE(worker.Do(CommitRound{0}).HasSent<Commit>());
  const Actions last = worker.Do(More(kA, 3));
  EXPECT_EQ(Ranges(last), (Chunks{{0, 2, 1}}));
  EXPECT_TRUE(last.HasSent<Commit>());
}

TEST(PushTest, OfAWithdrawnRoundNothingMoreIsSent) {
  Harness worker = Begun(kWindow);
  worker.Do(PushTensor{0, kA, 0, std::nullopt, 2});
  worker.Do(WithdrawRound{0, "no"});
  EXPECT_TRUE(worker.Do(More(kA, 3)).all.empty());
}

TEST(PushTest, AFrameOfManyWaitsForTheNextOfThemThatGrows) {
  Harness worker = BegunWithLists({F32("a", 10), F32("b", 20), F32("c", 30)});
  PushTensors push{0, {{0, 0, 7, 1.0}, {0, 1, 0, std::nullopt, 0}, {0, 2, 0, std::nullopt, 0}}};
  EXPECT_TRUE(Ranges(worker.Do(push)).empty());
  PushMore more = More(1, 1);
  more.parts.push_back(More(2, 1).parts[0]);
  const std::vector<SendContribution> frames = worker.Do(more).Of<SendContribution>();
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].ranges, (ChunkRanges{{0, 0, 1}, {1, 0, 1}, {2, 0, 1}}));
}

// ---- frames of several tensors

TEST(PushTest, SmallTensorsShareAFrameInTheOrderOfTheLayout) {
  Harness worker =
      BegunWithLists({F32("a", 10), F32("b", 2 * kChunkBytes / 4 + 5), F32("c", 20), F32("d", 30)});
  PushTensors push{0, {}};
  for (const TensorHandle tensor : {3u, 2u, 1u, 0u}) push.tensors.push_back({0, tensor, tensor, 1});
  const std::vector<SendContribution> frames = worker.Do(push).Of<SendContribution>();
  ASSERT_EQ(frames.size(), 2u) << "a frame has two chunks of bytes";
  EXPECT_EQ(frames[0].ranges, (ChunkRanges{{1, 0, 1}, {2, 0, 1}, {3, 0, 1}}));
  EXPECT_THAT(frames[0].tensors, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(frames[1].ranges, (ChunkRanges{{0, 0, 1}, {1, 1, 2}}));
  const uint64_t all = 40 + 2 * kChunkBytes + 20 + 80 + 120;
  EXPECT_EQ(worker.lane().round->push().unacked_bytes(), all);
  worker.Receive(Credit{kLane, 1, kWindow, {{1, 0, 1}, {2, 0, 1}, {3, 0, 1}}, {}});
  EXPECT_EQ(worker.lane().round->push().unacked_bytes(), 40 + kChunkBytes + 20);
  // The client sends the chunks of a lost stream again, together.
  const Actions lost = worker.Do(StreamDown{frames[1].stream});
  EXPECT_EQ(Ranges(lost), (Chunks{{0, 0, 1}, {1, 1, 2}}));
  EXPECT_EQ(lost.Of<SendContribution>().size(), 1u);
}

TEST(PushTest, OfManyNoneIsPushedWhenOneCannotBe) {
  Harness worker = Begun(kWindow);
  worker.PushOne(kB);
  for (const std::vector<TensorHandle>& wrong :
       {std::vector<TensorHandle>{kA, kB}, {kA, kA}, {kA, 99}}) {
    PushTensors push{0, {}};
    for (const TensorHandle tensor : wrong) push.tensors.push_back({0, tensor, 1, 1});
    const Actions refused = worker.Do(push);
    EXPECT_TRUE(refused.Has<Refused>());
    EXPECT_FALSE(refused.Has<SendContribution>());
  }
  EXPECT_EQ(Ranges(worker.PushOne(kA)), (Chunks{{0, 0, 2}, {0, 2, 1}}));
}

TEST(PushTest, OrderIsThatOfThePushes) {
  Harness worker = Begun(0);
  EXPECT_TRUE(Ranges(worker.PushOne(kB)).empty());
  worker.PushOne(kA);
  EXPECT_EQ(Ranges(worker.Receive(Credit{kLane, 1, kWindow, {}, {}})),
            (Chunks{{1, 0, 1}, {0, 0, 2}, {0, 2, 1}}));
}

TEST(PushTest, TheWindowBoundsWhatIsUnacknowledged) {
  Harness worker = Begun(2 * kChunkBytes);
  EXPECT_EQ(Ranges(worker.PushOne(kA)), (Chunks{{0, 0, 2}}));
  EXPECT_TRUE(Ranges(worker.PushOne(kB)).empty());
  EXPECT_EQ(Ranges(worker.Receive(Credit{kLane, 1, 2 * kChunkBytes, {{0, 0, 1}}, {}})),
            (Chunks{{0, 2, 1}, {1, 0, 1}}));
  EXPECT_EQ(worker.lane().round->push().unacked_bytes(), kChunkBytes + kShort + 400);
  // A repeated acknowledgement changes nothing.
  const uint64_t before = worker.lane().round->push().unacked_bytes();
  worker.Receive(Credit{kLane, 1, 0, {{0, 0, 1}, {9, 0, 1}, {0, 0, 99}}, {}});
  EXPECT_EQ(worker.lane().round->push().unacked_bytes(), before);
}

TEST(PushTest, AFrameIsCutToASmallWindowOnlyWhenNothingIsOnItsWay) {
  Harness worker = Begun(kChunkBytes);
  EXPECT_EQ(Ranges(worker.PushOne(kA)), (Chunks{{0, 0, 1}}));
  EXPECT_TRUE(Ranges(worker.Receive(Credit{kLane, 1, 2 * kChunkBytes - 1, {}, {}})).empty());
  EXPECT_EQ(Ranges(worker.Receive(Credit{kLane, 1, kChunkBytes, {{0, 0, 1}}, {}})),
            (Chunks{{0, 1, 1}}));
  EXPECT_TRUE(Ranges(worker.Receive(Credit{kLane, 1, kChunkBytes - 1, {}, {}})).empty());
  EXPECT_EQ(Ranges(worker.Receive(Credit{kLane, 1, kShort, {{0, 1, 1}}, {}})), (Chunks{{0, 2, 1}}))
      << "the last chunk is short";
}

TEST(PushTest, NothingIsSentWithoutAStream) {
  Harness worker = Begun(kWindow);
  worker.Do(StreamDown{0});
  worker.Do(StreamDown{1});
  EXPECT_TRUE(Ranges(worker.PushOne(kA)).empty());
  const Actions up = worker.Do(StreamUp{1});
  EXPECT_EQ(Ranges(up), (Chunks{{0, 0, 2}, {0, 2, 1}}));
  for (const SendContribution& send : up.Of<SendContribution>()) EXPECT_EQ(send.stream, 1u);
}

TEST(PushTest, WhatALostStreamHadNotDeliveredIsSentAgain) {
  Harness worker = Begun(kWindow);
  worker.PushOne(kA);  // Chunks 0 and 1 use stream 0, chunk 2 uses stream 1.
  worker.PushOne(kB);  // It uses stream 1.
  worker.Receive(worker.Acked({{0, 0, 1}}));
  const Actions lost = worker.Do(StreamDown{0});
  EXPECT_EQ(Ranges(lost), (Chunks{{0, 1, 1}}));
  EXPECT_EQ(lost.Of<SendContribution>()[0].stream, 1u);
  EXPECT_EQ(worker.client.session().streams().unacked(0), 0u);
  // The lost chunks of two tensors wait for a stream.
  EXPECT_TRUE(Ranges(worker.Do(StreamDown{1})).empty());
  EXPECT_EQ(worker.lane().round->push().unacked_bytes(), 0u);
  // The frame had arrived nevertheless, so it is not sent again.
  worker.Receive(worker.Acked({{0, 1, 1}}));
  EXPECT_EQ(Ranges(worker.Do(StreamUp{0})), (Chunks{{0, 2, 1}, {1, 0, 1}}));
}

TEST(PushTest, RefusedChunksAreSentAgainWhenThereIsRoom) {
  Harness worker = Begun(kWindow);
  worker.PushOne(kA);
  const Credit refusing{kLane, 1, 0, {{0, 0, 1}}, {{0, 1, 1}, {9, 0, 1}}};
  EXPECT_TRUE(Ranges(worker.Receive(refusing)).empty());
  EXPECT_EQ(worker.lane().round->push().unacked_bytes(), kShort);
  EXPECT_EQ(Ranges(worker.Receive(Credit{kLane, 1, kWindow, {}, {}})), (Chunks{{0, 1, 1}}));
}

TEST(PushTest, CreditOfOtherRoundsDoesNotCount) {
  Harness worker = Begun(0);
  worker.PushOne(kA);
  EXPECT_TRUE(Ranges(worker.Receive(Credit{kLane, 9, kWindow, {{0, 0, 3}}, {}})).empty());
  EXPECT_TRUE(worker.Receive(Credit{77, 1, kWindow, {}, {}}).all.empty());
}

TEST(PushTest, AWindowThatComesBeforeTheBeginIsKept) {
  Harness worker;
  worker.Connect();
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, Model()});
  LaneLayout layout = worker.MakeLayout();
  layout.window = 0;  // The lane waits for memory.
  worker.Receive(layout);
  worker.Receive(
      MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
  worker.Receive(Credit{kLane, 1, kWindow, {}, {}});
  worker.Begin();
  EXPECT_EQ(Ranges(worker.PushOne(kB)), (Chunks{{1, 0, 1}}));
}

TEST(PushTest, ATensorWaitsForItsIndex) {
  Harness worker = Begun(kWindow);
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("d", 5), F32("e", 5)}});
  EXPECT_TRUE(worker.Do(PushTensor{0, 3, 1}).all.empty());
  EXPECT_TRUE(worker.Do(SkipTensor{0, 4}).all.empty());
  EXPECT_EQ(Ranges(worker.PushOne(kB)), (Chunks{{1, 0, 1}})) << "others go ahead";
  EXPECT_FALSE(worker.Do(CommitRound{0}).HasSent<Commit>());
  LaneLayout layout = worker.MakeLayout();
  layout.first = 3;
  layout.tensors = {F32("e", 5), F32("d", 5)};
  const Actions actions = worker.Receive(layout);
  EXPECT_EQ(Ranges(actions), (Chunks{{4, 0, 1}}));
  EXPECT_EQ(actions.One<SendContribution>().tensors[0], 3u);
  const Commit commit = actions.OneSent<Commit>();
  EXPECT_EQ(commit.layout_version, 5u);
  EXPECT_TRUE(commit.present.Test(4));
  EXPECT_FALSE(commit.present.Test(3));
}

TEST(PushTest, ASkippedTensorIsNamedOnceItHasAnIndex) {
  Harness worker = Begun(kWindow);
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, {F32("d", 5)}});
  EXPECT_TRUE(worker.Do(SkipTensor{0, 3}).all.empty());
  LaneLayout layout = worker.MakeLayout();
  layout.first = 3;
  layout.tensors = {F32("d", 5)};
  EXPECT_EQ(worker.Receive(layout).OneSent<Skip>(), (Skip{kLane, 1, {3}}));
}

TEST(PushTest, CommitFollowsTheLastFrameNotItsAcknowledgement) {
  Harness worker = Begun(2 * kChunkBytes);
  worker.PushOne(kA);
  worker.PushOne(kB);
  EXPECT_FALSE(worker.Do(CommitRound{0}).HasSent<Commit>()) << "the window is full";
  const Actions actions = worker.Receive(worker.Acked({{0, 0, 2}}));
  EXPECT_EQ(Ranges(actions), (Chunks{{0, 2, 1}, {1, 0, 1}}));
  const Commit commit = actions.OneSent<Commit>();
  EXPECT_EQ(commit.chunks, 4u);
  EXPECT_EQ(commit.bytes, 2 * kChunkBytes + kShort + 400);
  EXPECT_EQ(commit.digest, PushDigest(kA) + PushDigest(kB));
  EXPECT_EQ(worker.lane().round->state(), RoundState::kCommitted);
}

TEST(PushTest, ARefusedChunkDoesNotHoldTheCommitBack) {
  Harness worker = Begun(kWindow);
  worker.PushOne(kA);
  worker.Receive(Credit{kLane, 1, 0, {}, {{0, 0, 1}}});
  EXPECT_TRUE(worker.Do(CommitRound{0}).HasSent<Commit>());
}

TEST(PushTest, ACommitThatWaitsNamesWhatItLeavesOut) {
  Harness worker = Begun(0);
  worker.PushOne(kA);
  const Actions actions = worker.Do(CommitRound{0});
  EXPECT_FALSE(actions.HasSent<Commit>()) << "no window";
  EXPECT_EQ(actions.OneSent<Skip>().tensors, (std::vector<TensorIndex>{1, 2}))
      << "others may wait for these";
}

TEST(PushTest, ARefusalThatIsRepeatedIsToldOnce) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  const Rejected refusal{{ErrorCode::kMismatch, "op SUM against AVERAGE"}, kLane, 1};
  EXPECT_EQ(worker.Receive(refusal).One<RoundRejected>().error.code, ErrorCode::kMismatch);
  EXPECT_TRUE(worker.Receive(refusal).all.empty());
}

TEST(PullTest, OnlyWhatIsWantedIsSent) {
  Harness worker = Begun(0);
  worker.PushOne(kA);
  worker.PushOne(kB);
  EXPECT_EQ(Ranges(worker.Receive(Pull{kLane, 1, {{1, 0, 1}}, {}, kWindow})), (Chunks{{1, 0, 1}}));
  EXPECT_TRUE(worker.lane().round->push().pull());
  EXPECT_TRUE(Ranges(worker.Receive(Credit{kLane, 1, kWindow, {{1, 0, 1}}, {}})).empty());
  EXPECT_EQ(Ranges(worker.Receive(Pull{kLane, 1, {{0, 1, 1}}, {}, kWindow})), (Chunks{{0, 1, 1}}));
  EXPECT_EQ(Ranges(worker.Receive(Pull{kLane, 1, {{0, 0, 1}, {0, 2, 1}, {9, 0, 1}}, {}, kWindow})),
            (Chunks{{0, 0, 1}, {0, 2, 1}}));
}

TEST(PullTest, WhatIsWantedBeforeItIsPushedIsSentWhenItIs) {
  Harness worker = Begun(kWindow);
  worker.Receive(Pull{kLane, 1, {{0, 1, 2}}, {}, kWindow});
  EXPECT_EQ(Ranges(worker.PushOne(kA)), (Chunks{{0, 1, 2}}));
  EXPECT_TRUE(Ranges(worker.PushOne(kB)).empty());
}

TEST(PullTest, DiscardedChunksWaitUntilTheyAreWantedAgain) {
  Harness worker = Begun(kWindow);
  worker.PushOne(kA);
  worker.Receive(worker.Acked({{0, 0, 3}}));
  EXPECT_TRUE(Ranges(worker.Receive(Pull{kLane, 1, {}, {{0, 1, 2}}, kWindow})).empty());
  EXPECT_EQ(Ranges(worker.Receive(Pull{kLane, 1, {{0, 1, 1}}, {}, kWindow})), (Chunks{{0, 1, 1}}));
  // A wanted chunk is discarded once more.
  worker.Receive(worker.Acked({{0, 1, 1}}));
  EXPECT_TRUE(Ranges(worker.Receive(Pull{kLane, 1, {}, {{0, 1, 1}}, kWindow})).empty());
  // One message discards and wants chunks.
  EXPECT_EQ(Ranges(worker.Receive(Pull{kLane, 1, {{0, 2, 1}}, {{0, 1, 1}}, kWindow})),
            (Chunks{{0, 2, 1}}));
}

TEST(PullTest, RefusedAndLostChunksStayWanted) {
  Harness worker = Begun(0);
  worker.PushOne(kA);
  worker.Receive(Pull{kLane, 1, {{0, 0, 2}}, {}, kWindow});
  EXPECT_EQ(Ranges(worker.Receive(Credit{kLane, 1, kWindow, {}, {{0, 0, 1}}})),
            (Chunks{{0, 0, 1}}));
  // A chunk that was sent before pull mode and lost in it is not wanted.
  Harness other = Begun(kWindow);
  other.PushOne(kA);
  other.Receive(Pull{kLane, 1, {{0, 0, 1}}, {}, kWindow});
  EXPECT_EQ(Ranges(other.Do(StreamDown{0})), (Chunks{{0, 0, 1}}));
}

TEST(PullTest, OfAnotherRoundIsIgnored) {
  Harness worker = Begun(kWindow);
  EXPECT_TRUE(worker.Receive(Pull{kLane, 2, {}, {}, 0}).all.empty());
  EXPECT_FALSE(worker.lane().round->push().pull());
}

TEST(RestartTest, ChunksAreRedone) {
  Harness worker = Begun(kWindow);
  worker.PushOne(kA);
  worker.PushOne(kB);
  worker.Do(CommitRound{0});
  worker.Receive(worker.Acked({{0, 0, 3}, {1, 0, 1}}));
  const Actions actions = worker.Receive(
      AttemptRestarted{kLane, 1, {kTerm, 2}, "w-2 was lost", {{0, 0, 1}, {1, 0, 1}}, kWindow});
  EXPECT_EQ(Ranges(actions), (Chunks{{0, 0, 1}, {1, 0, 1}}));
  EXPECT_FALSE(actions.HasSent<Commit>()) << "the commit is for the round, not the attempt";
  EXPECT_FALSE(actions.HasSent<basin::Begin>());
  EXPECT_TRUE(
      worker.Receive(AttemptRestarted{kLane, 2, {kTerm, 3}, "", {{0, 0, 1}}, 0}).all.empty());
}

TEST(RestartTest, InPullModeRedoneChunksWaitUntilTheyAreWanted) {
  Harness worker = Begun(0);
  worker.PushOne(kA);
  worker.Receive(Pull{kLane, 1, {{0, 0, 3}}, {}, kWindow});
  worker.Receive(worker.Acked({{0, 0, 3}}));
  EXPECT_TRUE(
      Ranges(worker.Receive(AttemptRestarted{kLane, 1, {kTerm, 2}, "", {{0, 0, 2}}, kWindow}))
          .empty());
  EXPECT_EQ(Ranges(worker.Receive(Pull{kLane, 1, {{0, 1, 1}}, {}, kWindow})), (Chunks{{0, 1, 1}}));
}

// The adopted value was lost with all its holders, so the aggregator may know nothing of the round.
TEST(RestartTest, AfterPreparedEverythingIsSaidAgain) {
  Harness worker = Begun(kWindow);
  worker.PushOne(kA);
  worker.Do(SkipTensor{0, kB});
  worker.Do(CommitRound{0});
  worker.Receive(worker.Acked({{0, 0, 3}}));
  worker.Receive(worker.MakePrepared());
  const Actions actions = worker.Receive(
      AttemptRestarted{kLane, 1, {kTerm, 2}, "nobody holds it", {{0, 0, 3}}, kWindow});
  EXPECT_EQ(actions.MessageNames(), "Begin Skip Commit");
  EXPECT_EQ(Ranges(actions), (Chunks{{0, 0, 2}, {0, 2, 1}}));
}

TEST(RestartTest, NothingIsPushedWhilePrepared) {
  Harness worker = Begun(0);
  worker.PushOne(kA);
  worker.Receive(worker.MakePrepared());
  EXPECT_TRUE(Ranges(worker.Receive(Credit{kLane, 1, kWindow, {}, {}})).empty());
}

// The model has 1 GiB. An event costs only what it names, so a round of 4096 chunks takes no time.
// The loose bound catches work for all chunks in every step.
TEST(PushTest, AFullRoundOfALargeModelKeepsItsBooks) {
  Config config = TestConfig();
  Harness worker(config);
  worker.Connect();
  const TensorSpec large = F32("large", uint64_t{4096} * kChunkBytes / 4);
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, {large}});
  LaneLayout layout = worker.MakeLayout();
  layout.tensors = {large};
  worker.Receive(layout);
  worker.Receive(
      MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
  worker.Begin();
  std::vector<SendContribution> frames = worker.PushOne(0).Of<SendContribution>();
  worker.Do(CommitRound{0});
  uint64_t sent = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    sent += frames[i].ranges[0].count;
    const Actions more = worker.Receive(worker.Acked({frames[i].ranges[0]}));
    for (const SendContribution& send : more.Of<SendContribution>()) frames.push_back(send);
  }
  EXPECT_EQ(sent, 4096u);
  EXPECT_EQ(worker.lane().round->state(), RoundState::kCommitted);
  EXPECT_EQ(worker.lane().round->push().unacked_bytes(), 0u);
  for (uint32_t i = 0; i < 2; ++i) EXPECT_EQ(worker.client.session().streams().unacked(i), 0u);
}

// The norm of the commit after these pushes.
std::optional<double> CommittedNorm(const std::vector<std::optional<double>>& pushed) {
  Harness worker = Begun(kWindow);
  for (TensorHandle tensor = 0; tensor < pushed.size(); ++tensor) {
    worker.Do(PushTensor{0, tensor, PushDigest(tensor), pushed[tensor]});
  }
  return worker.Do(CommitRound{0}).OneSent<basin::Commit>().squared_norm;
}

TEST(PushTest, Criterion_3_8_TheNormIsOfWhatHasOne) {
  EXPECT_EQ(CommittedNorm({9.0, 16.0, 0.0}), 25.0);
  EXPECT_EQ(CommittedNorm({std::nullopt, 16.0}), 16.0);
  EXPECT_EQ(CommittedNorm({0.0}), 0.0);
  EXPECT_EQ(CommittedNorm({std::nullopt, std::nullopt}), std::nullopt);
  EXPECT_EQ(CommittedNorm({}), std::nullopt);
}

TEST(PushTest, Fault_W11_ACountThatCouldWrapTheSumIsRefusedBeforeTheRound) {
  Harness worker;
  worker.BecomeMember();
  for (const Counts& counts : {Counts{kMaxCount + 1, {}, {}}, Counts{1, ~uint64_t{0}, {}},
                               Counts{1, 1, uint64_t{1} << 63}}) {
    const Actions actions = worker.Do(BeginRound{0, Harness::Average(), counts, 17, {}});
    const Error error = actions.One<Refused>().error;
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.text, testing::HasSubstr("worker w-0"));
    EXPECT_THAT(error.text, testing::HasSubstr("of job "));
    EXPECT_THAT(error.text, testing::HasSubstr("2^48"));
    EXPECT_FALSE(actions.HasSent<basin::Begin>());
  }
  const Counts most{kMaxCount, kMaxCount, kMaxCount};
  EXPECT_TRUE(worker.Do(BeginRound{0, Harness::Average(), most, 17, {}}).HasSent<basin::Begin>())
      << "the round is as before";
}

}  // namespace
}  // namespace basin::client
