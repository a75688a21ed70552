// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A new session in each phase of a round, with an aggregator that remembers the round and with one
// that does not.

#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

// The welcome of an aggregator that remembers the lane, with its round 1 in `phase`.
Welcome Back(const Harness& worker, RoundPhase phase, std::vector<ChunkRange> have = {},
             Ballot ballot = {kTerm, 1}) {
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.membership = worker.client.membership();
  welcome.layouts = {worker.MakeLayout()};
  welcome.open = {{kLane, 1, phase, ballot, std::move(have), kWindow}};
  return welcome;
}

// Reconnects; returns the actions of the welcome and of the streams.
Actions Reconnect(Harness& worker, const Welcome& welcome) {
  worker.Do(SessionDown{"reset"});
  worker.Do(SessionUp{});
  Actions actions = worker.Receive(welcome);
  for (uint32_t i = 0; i < 2; ++i) {
    for (Action& action : worker.Do(StreamUp{i}).all) actions.all.push_back(std::move(action));
  }
  return actions;
}

using Chunks = std::vector<ChunkRange>;

TEST(ResumeTest, HelloTellsTheHistory) {
  Harness worker;
  worker.BecomeMember();
  for (int i = 0; i < 3; ++i) worker.FinishRound();
  worker.Contribute();
  worker.Do(worker.Result({0, 1, 2}, 2, 4));
  worker.Do(SessionDown{""});
  const Hello hello = worker.Do(SessionUp{}).OneSent<Hello>();
  EXPECT_EQ(hello.incarnation, (Incarnation{kTerm, 1}));
  EXPECT_EQ(hello.membership, worker.Members());
  ASSERT_EQ(hello.lanes.size(), 1u);
  const LaneHistory& lane = hello.lanes[0];
  EXPECT_EQ(lane.name, "g");
  EXPECT_EQ(lane.lane, kLane);
  EXPECT_EQ(lane.layout, Model());
  ASSERT_EQ(lane.verdicts.size(), 2u);
  EXPECT_EQ(lane.verdicts[1].round, 3u);
  EXPECT_EQ(lane.last_verdict, 3u);
  EXPECT_EQ(lane.chain, lane.verdicts[1].chain);
  EXPECT_EQ(lane.staged, std::nullopt);
  EXPECT_EQ(lane.begun, 4u);
  EXPECT_EQ(lane.held_ballot, (Ballot{kTerm, 2}));
  EXPECT_EQ(lane.held, (Chunks{{0, 1, 2}}));
}

TEST(ResumeTest, HelloTellsWhatIsStaged) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Stage();
  worker.Do(SessionDown{""});
  const LaneHistory lane = worker.Do(SessionUp{}).OneSent<Hello>().lanes.at(0);
  ASSERT_TRUE(lane.staged.has_value());
  EXPECT_EQ(lane.staged->round, 1u);
  EXPECT_EQ(lane.staged->value, worker.Value());
  EXPECT_EQ(lane.held, (Chunks{{0, 0, 3}, {1, 0, 1}}));
}

TEST(ResumeTest, WhatHappensWhileAwayIsSaidAfterwards) {
  Harness worker;
  worker.BecomeMember();
  worker.Do(SessionDown{""});
  EXPECT_TRUE(worker.Do(BeginRound{0, Harness::Average(), {}, 0, {}}).all.empty());
  EXPECT_TRUE(worker.PushOne(kB).all.empty());
  EXPECT_TRUE(worker.Do(SkipTensor{0, kA}).all.empty());
  EXPECT_TRUE(worker.Do(CommitRound{0}).all.empty());
  EXPECT_TRUE(worker.Do(RegisterTensors{"h", LaneKind::kGradient, {}}).all.empty());
  worker.Do(SessionUp{});
  worker.Receive(Back(worker, RoundPhase::kIdle));
  EXPECT_EQ(worker.Do(StreamUp{0}).MessageNames(), "Commit");
  EXPECT_EQ(worker.lane().round->state(), RoundState::kCommitted);
}

TEST(ResumeTest, WhilePushing) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  worker.PushOne(kA);
  worker.Do(SkipTensor{0, kB});
  worker.Receive(worker.Acked({{0, 0, 1}}));
  const Actions actions = Reconnect(worker, Back(worker, RoundPhase::kCollect, {{0, 0, 1}}));
  EXPECT_EQ(actions.MessageNames(), "LayoutSeen Register Begin Skip");
  EXPECT_EQ(Ranges(actions), (Chunks{{0, 1, 2}})) << "what the aggregator has is not sent again";
  EXPECT_EQ(worker.lane().round->push().unacked_bytes(), kChunkBytes + 40);
}

TEST(ResumeTest, WhatWasAcknowledgedAndIsGoneIsSentAgain) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Receive(worker.Acked({{0, 0, 3}, {1, 0, 1}}));
  const Actions actions = Reconnect(worker, Back(worker, RoundPhase::kCollect, {{0, 0, 2}}));
  EXPECT_EQ(Ranges(actions), (Chunks{{0, 2, 1}, {1, 0, 1}}));
  EXPECT_EQ(actions.MessageNames(), "LayoutSeen Register Begin Commit");
}

TEST(ResumeTest, WhenTheAggregatorHasEverythingTheCommitIsRepeated) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  const Actions actions =
      Reconnect(worker, Back(worker, RoundPhase::kCollect, {{0, 0, 3}, {1, 0, 1}}));
  EXPECT_TRUE(Ranges(actions).empty());
  EXPECT_EQ(actions.MessageNames(), "LayoutSeen Register Begin Commit");
}

// The aggregator has lost its memory, so the round runs again from the clients' own buffers.
TEST(ResumeTest, Fault_A1_AnAggregatorThatForgotTheRoundGetsAllOfIt) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Receive(worker.Acked({{0, 0, 3}, {1, 0, 1}}));
  worker.ReceiveAllResults();
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.term = kTerm + 1;
  welcome.membership = {{kTerm + 1, 1}, {{"w-0", "w-1", "w-2"}}};
  welcome.layouts = {worker.MakeLayout()};
  const Actions actions = Reconnect(worker, welcome);
  EXPECT_EQ(Ranges(actions), (Chunks{{0, 0, 2}, {0, 2, 1}, {1, 0, 1}}));
  EXPECT_EQ(actions.MessageNames(), "LayoutSeen Register Begin Commit");
  EXPECT_EQ(actions.One<MembershipNow>().membership.generation, (Generation{kTerm + 1, 1}));
  // Results of the new term replace those of the old one.
  ResultReceived result = worker.Result({1, 0, 1});
  result.ballot = {kTerm + 1, 1};
  EXPECT_TRUE(worker.Do(result).Has<KeepResult>());
}

TEST(ResumeTest, ALaneThatTheWelcomeDoesNotNameWaitsForItsLayout) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  const Actions actions = Reconnect(worker, welcome);
  EXPECT_EQ(actions.MessageNames(), "Register");
  EXPECT_TRUE(Ranges(actions).empty());
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1})).all.empty());
  EXPECT_TRUE(worker.Receive(worker.MakePrepared()).all.empty());
  const Actions layout = worker.Receive(worker.MakeLayout());
  EXPECT_EQ(layout.MessageNames(), "LayoutSeen Begin Commit");
  EXPECT_EQ(Ranges(layout).size(), 3u);
}

TEST(ResumeTest, WhilePrepared) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Do(worker.Result({0, 0, 3}));
  worker.Receive(worker.MakePrepared());
  const Actions actions = Reconnect(worker, Back(worker, RoundPhase::kPrepared));
  EXPECT_EQ(actions.MessageNames(), "LayoutSeen Register Begin");
  EXPECT_TRUE(Ranges(actions).empty()) << "the value is fixed";
  EXPECT_EQ(worker.Receive(worker.MakePrepared()).OneSent<Need>(),
            (Need{kLane, 1, {kTerm, 1}, {{1, 0, 1}}}));
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1})).HasSent<Staged>());
}

TEST(ResumeTest, WhilePreparedAndTheValueIsLostAfterwards) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  Reconnect(worker, Back(worker, RoundPhase::kPrepared));
  const Actions actions =
      worker.Receive(AttemptRestarted{kLane, 1, {kTerm + 1, 2}, "nobody holds it", {}, kWindow});
  EXPECT_EQ(actions.MessageNames(), "Begin Commit");
  EXPECT_EQ(Ranges(actions), (Chunks{{0, 0, 2}, {0, 2, 1}, {1, 0, 1}}));
}

TEST(ResumeTest, WhileStaged) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Stage();
  Reconnect(worker, Back(worker, RoundPhase::kPrepared));
  EXPECT_TRUE(worker.lane().settlement.staged().has_value());
  Prepared again = worker.MakePrepared();
  again.ballot = {kTerm + 1, 1};
  const Actions actions = worker.Receive(again);
  EXPECT_EQ(actions.MessageNames(), "Staged");
  EXPECT_TRUE(worker.Receive(worker.MakeVerdict(worker.Value())).Has<Deliver>());
}

// Some workers received the verdict before the aggregator died; the others staged the value.
TEST(ResumeTest, Fault_A2_AMissedVerdictComesWithTheWelcome) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Stage();
  Welcome welcome = Back(worker, RoundPhase::kIdle);
  VerdictRecord record = worker.MakeVerdict(worker.Value()).record;
  record.next = {{kTerm, 2}, {{"w-0", "w-1"}}};
  welcome.open.clear();
  welcome.layouts = {worker.MakeLayout(0, 2)};
  welcome.verdicts = {{kLane, {record}}, {77, {record}}};
  welcome.membership = record.next;
  const Actions actions = Reconnect(worker, welcome);
  EXPECT_EQ(actions.One<Deliver>().record, record);
  EXPECT_EQ(actions.One<MembershipNow>().membership, record.next);
  EXPECT_FALSE(actions.HasSent<basin::Begin>());
  EXPECT_EQ(worker.lane().last_verdict, 1u);
}

TEST(ResumeTest, VerdictsThatAreKnownComeAgainWithTheWelcome) {
  Harness worker;
  worker.BecomeMember();
  for (int i = 0; i < 3; ++i) worker.FinishRound();
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.membership = worker.client.membership();
  welcome.layouts = {worker.MakeLayout(0, 4)};
  welcome.verdicts = {{kLane, worker.lane().verdicts}};
  const Actions actions = Reconnect(worker, welcome);
  EXPECT_EQ(actions.MessageNames(), "LayoutSeen Register");
  EXPECT_FALSE(actions.Has<Deliver>());
  EXPECT_FALSE(actions.Has<MembershipNow>());
}

TEST(ResumeTest, ANewerAttemptIsNotedEvenIfItsNoticeWasMissed) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.ReceiveAllResults(1);
  Reconnect(worker, Back(worker, RoundPhase::kCollect, {{1, 0, 1}}, {kTerm, 2}));
  EXPECT_EQ(worker.lane().settlement.held().count(), 0u);
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1}, 1)).all.empty());
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1}, 2)).Has<KeepResult>());
}

TEST(ResumeTest, WhileWithdrawn) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  worker.PushOne(kA);
  worker.Do(WithdrawRound{0, "NaN"});
  const Actions actions = Reconnect(worker, Back(worker, RoundPhase::kCollect, {{0, 0, 1}}));
  EXPECT_EQ(actions.MessageNames(), "LayoutSeen Register Begin Withdraw");
  EXPECT_EQ(actions.OneSent<Withdraw>().reason, "NaN");
  EXPECT_TRUE(Ranges(actions).empty());
}

TEST(ResumeTest, WithdrawnWhileAway) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  worker.Do(SessionDown{""});
  EXPECT_TRUE(worker.Do(WithdrawRound{0, "NaN"}).all.empty());
  worker.Do(SessionUp{});
  EXPECT_EQ(worker.Receive(Back(worker, RoundPhase::kCollect)).MessageNames(),
            "LayoutSeen Register Begin Withdraw");
}

TEST(ResumeTest, WhileDecided) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  worker.Stage();
  worker.Receive(worker.MakeVerdict(worker.Value()));
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.layouts = {worker.MakeLayout(0, 2)};
  EXPECT_EQ(Reconnect(worker, welcome).MessageNames(), "LayoutSeen Register");
  EXPECT_TRUE(worker.Do(CommitRound{0}).Has<Deliver>());
}

TEST(ResumeTest, PullModeIsOverUntilItIsToldAgain) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  worker.Receive(Credit{kLane, 1, 0, {}, {}});
  worker.PushOne(kA);
  worker.Receive(Pull{kLane, 1, {{0, 2, 1}}, {}, kWindow});
  const Actions actions = Reconnect(worker, Back(worker, RoundPhase::kCollect));
  EXPECT_EQ(Ranges(actions), (Chunks{{0, 0, 2}, {0, 2, 1}}));
}

TEST(ResumeTest, WaitsGoOnWhileAway) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Do(WaitRound{0, worker.now + absl::Seconds(1)});
  worker.Do(SessionDown{"reset"});
  const Error error = worker.Pass(absl::Seconds(1)).One<FailRound>().error;
  EXPECT_EQ(error.code, ErrorCode::kOutcomeUnknown);
  EXPECT_NE(error.text.find("not connected"), std::string::npos);
}

TEST(ResumeTest, AVerdictThatWaitedForResultsDiesWithTheSession) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  const Verdict verdict = worker.MakeVerdict(worker.Value());
  worker.Receive(verdict);
  Welcome welcome = Back(worker, RoundPhase::kIdle);
  welcome.open.clear();
  welcome.verdicts = {{kLane, {verdict.record}}};
  EXPECT_TRUE(Reconnect(worker, welcome).HasSent<Abandon>());
}

TEST(ResumeTest, ALaneThatIsNumberedAnewKeepsItsRound) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.layouts = {worker.MakeLayout()};
  welcome.layouts[0].lane = kLane + 8;
  const Actions actions = Reconnect(worker, welcome);
  EXPECT_FALSE(actions.Has<CloseSession>());
  EXPECT_EQ(worker.lane().index, LaneIndex{kLane + 8});
  EXPECT_EQ(actions.OneSent<basin::Begin>().lane, kLane + 8);
}

TEST(ResumeTest, AWelcomeWithAContradictoryLayoutEndsTheSession) {
  Harness worker;
  worker.BecomeMember();
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.layouts = {worker.MakeLayout()};
  welcome.layouts[0].tensors.Own()[0] = F32("z", 1);
  const Actions actions = Reconnect(worker, welcome);
  EXPECT_TRUE(actions.Has<CloseSession>());
  EXPECT_FALSE(actions.HasSent<Register>());
  EXPECT_FALSE(worker.client.connected());
}

}  // namespace
}  // namespace basin::client
