// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a call lane goes, and how its name is used again.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/core/unnamed.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

using testing::HasSubstr;

constexpr LaneIndex kCall = 4;

// A member that has registered the call x.
struct LetGoTest : testing::Test {
  LetGoTest() {
    worker.BecomeMember();
    Register();
    worker.Receive(Layout(kCall));
  }
  Actions Register() {
    return worker.Do(RegisterTensors{"call/x", LaneKind::kCall, {F32("x", 5)}});
  }
  static LaneLayout Layout(LaneIndex index, RoundNumber round = 1) {
    return {index, "call/x", LaneKind::kCall, 0, {F32("x", 5)}, round, kWindow};
  }
  Actions Begin() { return worker.Do(BeginRound{1, Harness::Average(), {}, 0, {}}); }
  // The round that the trainer has begun and committed ends without a result.
  Actions Abort(LaneIndex lane = kCall) {
    RoundValue value = worker.AbortedValue();
    value.layout_version = 1;
    const Ballot ballot{kTerm, 1};
    worker.Receive(Prepared{lane, 1, ballot, ballot, value});
    Verdict verdict{lane, {}, std::nullopt};
    verdict.record.round = 1;
    verdict.record.ballot = verdict.record.value_ballot = ballot;
    verdict.record.value = value;
    verdict.record.next = worker.client.membership();
    verdict.record.chain = ExtendChain(0, 1, value);
    return worker.Receive(verdict);
  }
  // The verdict of a round that counted this worker, whose results have not come.
  Verdict MadeWithoutResults() const {
    RoundValue value;
    value.outcome = Outcome::kCommitted;
    value.spec = Harness::Average();
    value.contributors.push_back({"w-0", {kTerm, 1}, 1});
    value.divisor = 1;
    value.layout_version = 1;
    value.digest = ResultDigest(0, 0);
    Verdict verdict{kCall, {}, std::nullopt};
    verdict.record.round = 1;
    verdict.record.ballot = verdict.record.value_ballot = {kTerm, 1};
    verdict.record.value = value;
    verdict.record.next = worker.Members();
    verdict.record.chain = ExtendChain(0, 1, value);
    return verdict;
  }
  // Makes a call, after which the lane is idle.
  void MakeCall() {
    Begin();
    worker.Do(PushTensor{1, 0, 5, 1.0});
    worker.Do(CommitRound{1});
    Abort();
  }
  const Lane& lane() const { return worker.client.lanes()[1]; }
  Harness worker;
};

TEST_F(LetGoTest, AnIdleCallIsLetGoAndForgotten) {
  MakeCall();
  EXPECT_EQ(worker.Receive(LetGo{kCall, 1}).OneSent<LetGo>(), (LetGo{kCall, 1}));
  const Actions gone = worker.Receive(LaneGone{kCall});
  EXPECT_EQ(gone.One<ForgetLane>().lane, 1u);
  EXPECT_EQ(worker.client.FindLane("call/x"), nullptr);
  EXPECT_THAT(Begin().One<Refused>().error.text, HasSubstr("Register its name again"));
  // The name gets another handle, so that the old one reaches no other lane.
  Register();
  ASSERT_NE(worker.client.FindLane("call/x"), nullptr);
  EXPECT_EQ(worker.client.FindLane("call/x")->handle, 2u);
  worker.Receive(Layout(kCall + 1));
  EXPECT_EQ(worker.client.lanes()[2].next(), 1u) << "its rounds begin anew";
}

TEST_F(LetGoTest, ACallThatTheTrainerIsAboutToMakeStays) {
  EXPECT_FALSE(worker.Receive(LetGo{kCall, 0}).HasSent<LetGo>()) << "it was registered just now";
  MakeCall();
  Begin();
  EXPECT_FALSE(worker.Receive(LetGo{kCall, 1}).HasSent<LetGo>()) << "its round is in flight";
}

TEST_F(LetGoTest, TheQuestionIsAnsweredWhenTheRoundHasEnded) {
  Begin();
  worker.Do(CommitRound{1});
  // It was on its way when this worker began the round.
  EXPECT_FALSE(worker.Receive(LetGo{kCall, 0}).HasSent<LetGo>());
  EXPECT_FALSE(Abort().HasSent<LetGo>()) << "it was about the round before";
  EXPECT_TRUE(worker.Receive(LetGo{kCall, 1}).HasSent<LetGo>());
  EXPECT_FALSE(worker.Receive(LetGo{kCall, 7}).HasSent<LetGo>()) << "it has no such verdict";
}

TEST_F(LetGoTest, ARoundThatWasBegunMeanwhileIsTheFirstOfTheNewLane) {
  MakeCall();
  worker.Receive(LetGo{kCall, 1});
  EXPECT_EQ(Begin().OneSent<basin::Begin>().round, 2u);
  worker.Do(PushTensor{1, 0, 5, 1.0});
  const Actions gone = worker.Receive(LaneGone{kCall});
  EXPECT_FALSE(gone.Has<ForgetLane>());
  EXPECT_EQ(gone.OneSent<basin::Register>(),
            (basin::Register{"call/x", LaneKind::kCall, {F32("x", 5)}}));
  const Actions again = worker.Receive(Layout(kCall + 3));
  const auto begin = again.OneSent<basin::Begin>();
  EXPECT_EQ(begin.lane, kCall + 3);
  EXPECT_EQ(begin.round, 1u);
  EXPECT_EQ(again.One<SendContribution>().ranges, (ChunkRanges{{0, 0, 1}}));
  EXPECT_EQ(worker.Do(CommitRound{1}).OneSent<Commit>().lane, kCall + 3) << "by the same handle";
}

TEST_F(LetGoTest, ACallThatWasRegisteredMeanwhileIsRegisteredAgain) {
  MakeCall();
  worker.Receive(LetGo{kCall, 1});
  Register();
  EXPECT_TRUE(worker.Receive(LaneGone{kCall}).HasSent<basin::Register>());
  worker.Receive(Layout(kCall + 1));
  EXPECT_EQ(Begin().OneSent<basin::Begin>().round, 1u);
}

TEST_F(LetGoTest, AVerdictCountsWhenItsResultsAreHere) {
  worker.Receive(MadeWithoutResults());
  ASSERT_EQ(lane().last_verdict, 0u);
  EXPECT_FALSE(worker.Receive(LetGo{kCall, 1}).HasSent<LetGo>()) << "the results are on their way";
  worker.Do(ResultReceived{kCall, 1, {kTerm, 1}, {{0, 0, 1}}, {ResultDigest(0, 0)}});
  ASSERT_EQ(lane().last_verdict, 1u);
  Begin();
  worker.Do(PushTensor{1, 0, 5, 1.0});
  EXPECT_EQ(worker.Do(CommitRound{1}).OneSent<LetGo>(), (LetGo{kCall, 1}));
}

TEST_F(LetGoTest, AWorkerThatHasFinishedMakesNoCall) {
  worker.Receive(MadeWithoutResults());
  worker.Do(ResultReceived{kCall, 1, {kTerm, 1}, {{0, 0, 1}}, {ResultDigest(0, 0)}});
  EXPECT_FALSE(worker.Receive(LetGo{kCall, 1}).HasSent<LetGo>()) << "the trainer may take it";
  EXPECT_EQ(worker.Do(Finish{}).OneSent<LetGo>(), (LetGo{kCall, 1}));
}

// The registration was on its way when the lane that had the name before was gone, so the
// aggregator believes that this worker knows the new one.
TEST_F(LetGoTest, ALaneThatThisWorkerDoesNotKnowIsLetGoAtOnce) {
  MakeCall();
  worker.Receive(LetGo{kCall, 1});
  worker.Receive(LaneGone{kCall});
  worker.Receive(Layout(kCall + 1));
  ASSERT_EQ(worker.client.FindLane("call/x"), nullptr);
  EXPECT_EQ(worker.Receive(LetGo{kCall + 1, 3}).OneSent<LetGo>(), (LetGo{kCall + 1, 3}));
}

TEST_F(LetGoTest, TheHelloSaysWhatMayBeGone) {
  MakeCall();
  worker.Receive(LetGo{kCall, 1});
  worker.Do(SessionDown{"the network"});
  worker.Pass(absl::Seconds(1));
  const Actions up = worker.Do(SessionUp{});
  const Hello hello = up.OneSent<Hello>();
  ASSERT_EQ(hello.lanes.size(), 2u);
  EXPECT_FALSE(hello.lanes[0].let_go);
  EXPECT_TRUE(hello.lanes[1].let_go);
  // The welcome does not name it: it is gone.
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.membership = worker.client.membership();
  welcome.layouts = {worker.MakeLayout()};
  EXPECT_EQ(worker.Receive(welcome).One<ForgetLane>().lane, 1u);
}

TEST_F(LetGoTest, ALaneThatIsStillHereAfterAReconnectStays) {
  MakeCall();
  worker.Receive(LetGo{kCall, 1});
  worker.Do(SessionDown{"the network"});
  worker.Pass(absl::Seconds(1));
  worker.Do(SessionUp{});
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.membership = worker.client.membership();
  welcome.layouts = {worker.MakeLayout(), Layout(kCall, 2)};
  EXPECT_FALSE(worker.Receive(welcome).Has<ForgetLane>());
  EXPECT_EQ(lane().last_verdict, 1u);
}

TEST_F(LetGoTest, ToBecomeAMemberVoidsNoAnswer) {
  MakeCall();
  worker.Receive(Ended{{ErrorCode::kEvicted, "It was silent."}});
  worker.Pass(absl::Seconds(1));
  Welcome welcome = worker.MakeWelcome();
  welcome.incarnation = {kTerm, 2};
  welcome.layouts = {worker.MakeLayout(), Layout(kCall, 6)};
  worker.Connect(welcome);
  ASSERT_TRUE(worker.Receive(LetGo{kCall, 5}).HasSent<LetGo>());
  worker.Do(DeclareReady{});
  worker.Receive(MembershipChanged{worker.Members(2),
                                   Role::kMember,
                                   std::nullopt,
                                   {{"g", kLane, 1, 0}, {"call/x", kCall, 6, 77}}});
  ASSERT_EQ(lane().last_verdict, 5u);
  worker.Do(SessionDown{"the network"});
  worker.Pass(absl::Seconds(1));
  const Hello hello = worker.Do(SessionUp{}).OneSent<Hello>();
  ASSERT_EQ(hello.lanes.size(), 2u);
  EXPECT_TRUE(hello.lanes[1].let_go) << "a worker without the lane would be behind otherwise";
}

TEST_F(LetGoTest, ALaneThatIsBeingRegisteredIsNotForgotten) {
  MakeCall();
  worker.Do(SessionDown{"the network"});
  worker.Pass(absl::Seconds(1));
  worker.Do(SessionUp{});
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.membership = worker.client.membership();
  welcome.layouts = {worker.MakeLayout(), Layout(kCall, 2)};
  ASSERT_EQ(worker.Receive(welcome).Sent<basin::Register>().size(), 2u);
  // The lane went before the aggregator read that. Then it has made another one, of which it sends
  // this worker the whole layout only once.
  EXPECT_FALSE(worker.Receive(LaneGone{kCall}).Has<ForgetLane>());
  worker.Receive(Layout(kCall + 1));
  Register();
  EXPECT_EQ(Begin().OneSent<basin::Begin>().lane, kCall + 1);
}

TEST(LetGo, TheStartOfALaneThatIsGoneIsForgotten) {
  Harness worker;
  worker.Connect();
  worker.RegisterModel();
  worker.Do(DeclareReady{});
  worker.Receive(MembershipChanged{
      worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}, {"call/y", 9, 6, 77}}});
  worker.Do(SessionDown{"the network"});
  worker.Pass(absl::Seconds(1));
  worker.Do(SessionUp{});
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.membership = worker.client.membership();
  welcome.layouts = {worker.MakeLayout()};
  worker.Receive(welcome);
  worker.Do(RegisterTensors{"call/y", LaneKind::kCall, {F32("y", 5)}});
  worker.Receive(LaneLayout{12, "call/y", LaneKind::kCall, 0, {F32("y", 5)}, 6, kWindow});
  ASSERT_NE(worker.client.FindLane("call/y"), nullptr);
  EXPECT_EQ(worker.client.FindLane("call/y")->chain, std::nullopt)
      << "another lane has the name, and by chance as many rounds";
}

TEST_F(LetGoTest, GradientLanesAndUnnamedCallsStay) {
  EXPECT_FALSE(worker.Receive(LetGo{kLane, 0}).HasSent<LetGo>());
  const std::string name = UnnamedLane(3);
  worker.Do(RegisterTensors{name, LaneKind::kCall, {FirstUnnamedTensor()}});
  worker.Receive(LaneLayout{9, name, LaneKind::kCall, 0, {FirstUnnamedTensor()}, 1, kWindow});
  worker.Do(BeginRound{2, Harness::Average(), {}, 0, {}});
  worker.Do(CommitRound{2});
  Abort(9);
  ASSERT_FALSE(worker.client.lanes()[2].round.has_value());
  EXPECT_FALSE(worker.Receive(LetGo{9, 1}).HasSent<LetGo>())
      << "the order of such calls follows from the rounds of all their lanes";
}

}  // namespace
}  // namespace basin::client
