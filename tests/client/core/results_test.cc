// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Result frames, ballots, staging, digests, need and supply.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

Harness Contributed() {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  return worker;
}

TEST(ResultsTest, FramesAreKeptAndAcknowledged) {
  Harness worker = Contributed();
  const Actions actions = worker.Do(worker.Result({0, 0, 2}));
  const KeepResult keep = actions.One<KeepResult>();
  EXPECT_EQ(keep.lane, 0u);
  EXPECT_EQ(keep.round, 1u);
  EXPECT_EQ(keep.range, (ChunkRange{0, 0, 2}));
  EXPECT_EQ(actions.OneSent<ResultAck>(), (ResultAck{kLane, 1, {kTerm, 1}, {{0, 0, 2}}}));
}

TEST(ResultsTest, WhatIsHeldIsAcknowledgedAgainAndNotKeptAgain) {
  Harness worker = Contributed();
  worker.Do(worker.Result({0, 1, 1}));
  const Actions actions = worker.Do(worker.Result({0, 0, 3}));
  const std::vector<KeepResult> keeps = actions.Of<KeepResult>();
  ASSERT_EQ(keeps.size(), 2u);
  EXPECT_EQ(keeps[0].range, (ChunkRange{0, 0, 1}));
  EXPECT_EQ(keeps[1].range, (ChunkRange{0, 2, 1}));
  EXPECT_EQ(actions.OneSent<ResultAck>().ranges, (std::vector<ChunkRange>{{0, 0, 3}}));
  const Actions again = worker.Do(worker.Result({0, 0, 3}));
  EXPECT_FALSE(again.Has<KeepResult>());
  EXPECT_TRUE(again.HasSent<ResultAck>());
}

TEST(ResultsTest, MayPrecedeTheBegin) {
  Harness worker;
  worker.BecomeMember();
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1})).Has<KeepResult>());
}

TEST(ResultsTest, OtherRoundsLanesAndBallotsAreIgnored) {
  Harness worker = Contributed();
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1}, 1, 0)).all.empty());
  ResultReceived other = worker.Result({1, 0, 1});
  other.lane = 77;
  EXPECT_TRUE(worker.Do(other).all.empty());
  worker.Do(worker.Result({1, 0, 1}, 2));
  EXPECT_TRUE(worker.Do(worker.Result({0, 0, 2}, 1)).all.empty()) << "a lower ballot";
}

// The next round may go on before this worker begins it. Its results may overtake the verdict.
TEST(ResultsTest, ThoseOfTheNextRoundAreRequestedAgain) {
  Harness worker = Contributed();
  worker.Stage();
  const Actions actions = worker.Do(worker.Result({1, 0, 1}, 1, 2));
  EXPECT_FALSE(actions.Has<KeepResult>());
  EXPECT_EQ(actions.OneSent<ResultAck>().round, 2u) << "the aggregator need not hold it";
  worker.Receive(worker.MakeVerdict(worker.Value()));
  EXPECT_EQ(worker.Receive(worker.MakePrepared(1, 2)).OneSent<Need>().ranges.size(), 2u);
}

TEST(ResultsTest, AFrameOfSeveralTensorsIsOneAcknowledgement) {
  Harness worker;
  Welcome welcome = worker.MakeWelcome();
  welcome.features = kFeatureRuns;
  worker.Connect(welcome);
  worker.RegisterModel();
  worker.Receive(
      MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
  worker.Contribute();
  ResultReceived both = worker.Result({0, 1, 2});
  both.ranges.push_back({1, 0, 1});
  both.digests.push_back(worker.Result({1, 0, 1}).digests[0]);
  const Actions actions = worker.Do(both);
  EXPECT_EQ(actions.Of<KeepResult>().size(), 2u);
  EXPECT_EQ(actions.OneSent<ResultAck>().ranges, (std::vector<ChunkRange>{{0, 1, 2}, {1, 0, 1}}));
  worker.Receive(worker.MakePrepared());
  EXPECT_TRUE(worker.Do(worker.Result({0, 0, 1})).HasSent<Staged>());
}

TEST(ResultsTest, Fault_N10_AListThatIsOutOfOrderOrNotInUseEndsTheSession) {
  for (const uint64_t features : {uint64_t{0}, kFeatureRuns}) {
    Harness worker;
    Welcome welcome = worker.MakeWelcome();
    welcome.features = features;
    worker.Connect(welcome);
    worker.RegisterModel();
    worker.Receive(
        MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
    worker.Contribute();
    ResultReceived wrong = worker.Result({1, 0, 1});
    wrong.ranges.push_back({features == 0 ? 2u : 0u, 0, 1});
    wrong.digests.push_back(1);
    EXPECT_TRUE(worker.Do(wrong).Has<CloseSession>());
  }
}

TEST(ResultsTest, AHigherBallotReplacesEverything) {
  Harness worker = Contributed();
  worker.ReceiveAllResults(1);
  const Actions higher = worker.Do(worker.Result({1, 0, 1}, 2));
  EXPECT_TRUE(higher.Has<KeepResult>());
  EXPECT_EQ(higher.OneSent<ResultAck>().ballot, (Ballot{kTerm, 2}));
  EXPECT_FALSE(worker.Receive(worker.MakePrepared(2)).HasSent<Staged>())
      << "tensor a is of ballot 1";
  worker.Do(worker.Result({0, 0, 2}, 2));
  EXPECT_TRUE(worker.Do(worker.Result({0, 2, 1}, 2)).HasSent<Staged>());
}

TEST(ResultsTest, FramesThatCannotBeEndTheSession) {
  for (const ChunkRange& range : {ChunkRange{0, 2, 2}, {2, 0, 1}, {9, 0, 1}, {0, 0, 0}}) {
    Harness worker = Contributed();
    EXPECT_TRUE(worker.Do(worker.Result(range)).Has<CloseSession>());
  }
  Harness worker = Contributed();
  ResultReceived wrong = worker.Result({0, 0, 2});
  wrong.digests.pop_back();
  EXPECT_TRUE(worker.Do(wrong).Has<CloseSession>());
  EXPECT_TRUE(worker.client.has_history());
}

TEST(StagingTest, PreparedBeforeAndAfterTheLastResult) {
  Harness before = Contributed();
  before.Do(before.Result({0, 0, 3}));
  EXPECT_TRUE(before.Receive(before.MakePrepared()).all.empty()) << "results are on their way";
  EXPECT_EQ(before.lane().settlement.phase(), SettlePhase::kPrepared);
  const Actions last = before.Do(before.Result({1, 0, 1}));
  EXPECT_EQ(last.OneSent<Staged>(), (Staged{kLane, 1, {kTerm, 1}}));
  EXPECT_EQ(last.MessageNames(), "ResultAck Staged");
  EXPECT_EQ(before.lane().settlement.phase(), SettlePhase::kStaged);

  Harness after = Contributed();
  after.ReceiveAllResults();
  EXPECT_EQ(after.lane().settlement.phase(), SettlePhase::kCollecting);
  EXPECT_EQ(after.Receive(after.MakePrepared()).OneSent<Staged>(), (Staged{kLane, 1, {kTerm, 1}}));
  const StagedValue& staged = *after.lane().settlement.staged();
  EXPECT_EQ(staged.round, 1u);
  EXPECT_EQ(staged.value, after.Value());
}

TEST(StagingTest, AMemberThatSkippedEverythingOrWithdrewStagesToo) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  worker.Do(CommitRound{0});
  EXPECT_TRUE(worker.Stage().HasSent<Staged>());

  Harness other;
  other.BecomeMember();
  other.Begin();
  // Without a reason it would say that another worker contributes its gradients.
  EXPECT_EQ(other.Do(WithdrawRound{0, ""}).OneSent<Withdraw>().reason, "it gave no reason");
  EXPECT_TRUE(other.Stage().HasSent<Staged>());
}

// The trainer has withdrawn because its gradients are in the contribution of another worker, which
// also brings it the results.
Harness WithoutResults() {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  const Actions actions = worker.Do(WithdrawRound{0, "", true});
  EXPECT_EQ(actions.OneSent<Withdraw>(), (Withdraw{kLane, 1, "", true}));
  return worker;
}

TEST(StagingTest, ResultsThatComeAnotherWayAreStagedAndNotRequested) {
  Harness worker = WithoutResults();
  EXPECT_TRUE(worker.Receive(worker.MakePrepared()).all.empty());
  worker.Do(worker.Result({0, 0, 3}));
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1})).HasSent<Staged>());
  EXPECT_TRUE(worker.Do(RequestResults{0}).all.empty()) << "nothing is missing";
}

TEST(StagingTest, WhatDidNotComeAnotherWayIsRequested) {
  Harness prepared = WithoutResults();
  prepared.Do(prepared.Result({0, 0, 3}));
  prepared.Receive(prepared.MakePrepared());
  EXPECT_EQ(prepared.Do(RequestResults{0}).OneSent<Need>(),
            (Need{kLane, 1, {kTerm, 1}, {{1, 0, 1}}}));
  EXPECT_TRUE(prepared.Do(prepared.Result({1, 0, 1})).HasSent<Staged>());

  Harness early = WithoutResults();
  const Actions actions = early.Do(RequestResults{0});
  EXPECT_FALSE(actions.OneSent<Withdraw>().without_results);
  EXPECT_FALSE(actions.HasSent<Need>()) << "there is no value yet";
  EXPECT_EQ(early.Receive(early.MakePrepared()).OneSent<Need>().ranges.size(), 2u);
}

// Whoever brings them may hang.
TEST(StagingTest, ResultsThatDoNotComeAnotherWayInTimeAreRequested) {
  Harness worker = WithoutResults();
  worker.Receive(worker.MakePrepared());
  worker.now += absl::Seconds(2);
  EXPECT_LE(worker.client.NextDeadline(), worker.now);
  const Actions actions = worker.Do(Tick{});
  EXPECT_FALSE(actions.OneSent<Withdraw>().without_results);
  EXPECT_EQ(actions.OneSent<Need>().ranges.size(), 2u);
}

// An EMPTY tensor is reduced and published, but is no part of the value. Its frame may come last.
TEST(StagingTest, WhatComesAfterTheValueIsCompleteIsNotKept) {
  Harness worker = Contributed();
  Prepared prepared = worker.MakePrepared();
  prepared.value.tensor_divisors = {{0, 0}};
  prepared.value.digest = ResultDigest(1, 0);
  worker.Receive(prepared);
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1})).HasSent<Staged>());
  const Actions late = worker.Do(worker.Result({0, 0, 1}));
  EXPECT_FALSE(late.Has<KeepResult>());
  EXPECT_TRUE(late.HasSent<ResultAck>());
}

// The value that another worker had was lost, and so was the attempt.
TEST(StagingTest, AnAttemptAfterTheResultsThatCameAnotherWayIsRequested) {
  Harness worker = WithoutResults();
  worker.ReceiveAllResults(1);
  worker.Do(RequestResults{0});
  worker.Receive(AttemptRestarted{kLane, 1, {kTerm, 2}, "lost", {}, kWindow});
  EXPECT_EQ(worker.Receive(worker.MakePrepared(2)).OneSent<Need>().ranges.size(), 2u);
}

TEST(StagingTest, ResultsAreRequestedAfterAWithdrawalOnly) {
  Harness worker = Contributed();
  const Error error = worker.Do(RequestResults{0}).One<Refused>().error;
  EXPECT_EQ(error.code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(error.text, testing::HasSubstr("it is not withdrawn"));
  Harness idle;
  idle.BecomeMember();
  EXPECT_TRUE(idle.Do(RequestResults{0}).all.empty()) << "its outcome was delivered";
}

TEST(StagingTest, AWithdrawalIsRepeatedAsItWas) {
  Harness worker = WithoutResults();
  worker.Do(SessionDown{"cut"});
  worker.Do(SessionUp{});
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.layouts = {worker.MakeLayout()};
  welcome.open = {OpenRound{kLane, 1, RoundPhase::kCollect, {kTerm, 1}, {}, kWindow}};
  EXPECT_TRUE(worker.Receive(welcome).OneSent<Withdraw>().without_results);
}

TEST(StagingTest, AbortedIsStagedWithoutBytes) {
  Harness worker = Contributed();
  worker.Do(worker.Result({0, 0, 3}));
  Prepared prepared = worker.MakePrepared();
  prepared.value = worker.AbortedValue();
  EXPECT_TRUE(worker.Receive(prepared).HasSent<Staged>());
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1})).all.empty()) << "of no use";
}

TEST(StagingTest, TensorsWithoutAResultAreNotWaitedFor) {
  Harness worker = Contributed();
  Prepared prepared = worker.MakePrepared();
  prepared.value.tensor_divisors = {{0, 0}, {9, 1}};  // a was skipped; 9 is beyond the layout.
  prepared.value.digest = ResultDigest(1, 0);
  worker.Receive(prepared);
  // The aggregator reduces and publishes an EMPTY tensor, but the digest leaves it out.
  EXPECT_FALSE(worker.Do(worker.Result({0, 0, 1})).HasSent<Staged>());
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1})).HasSent<Staged>());
}

TEST(StagingTest, TheRoundMayBeEmptyButForOneTensor) {
  Harness worker = Contributed();
  Prepared prepared = worker.MakePrepared();
  prepared.value.divisor = 0;
  prepared.value.tensor_divisors = {{1, 2}};
  prepared.value.digest = ResultDigest(1, 0);
  worker.Receive(prepared);
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1})).HasSent<Staged>());
}

TEST(StagingTest, ARepeatedPreparedIsStagedAgainWithoutBytes) {
  Harness worker = Contributed();
  worker.Stage();
  Prepared again = worker.MakePrepared();
  again.ballot = {kTerm + 1, 1};
  const Actions actions = worker.Receive(again);
  EXPECT_EQ(actions.OneSent<Staged>().ballot, again.ballot);
  EXPECT_FALSE(actions.HasSent<Need>());
  EXPECT_EQ(worker.lane().settlement.staged()->ballot, again.ballot);
  EXPECT_TRUE(worker.Receive(worker.MakePrepared()).all.empty()) << "a lower ballot came late";
  Prepared old = worker.MakePrepared();
  old.round = 0;
  EXPECT_TRUE(worker.Receive(old).all.empty());
}

TEST(StagingTest, PreparedOfALaterRoundEndsTheSession) {
  Harness worker = Contributed();
  EXPECT_TRUE(worker.Receive(worker.MakePrepared(1, 2)).Has<CloseSession>());
}

TEST(StagingTest, APreparedValueMayBeAheadOfTheLayout) {
  Harness worker = Contributed();
  worker.ReceiveAllResults();
  Prepared prepared = worker.MakePrepared();
  prepared.value.layout_version = 4;
  prepared.value.tensor_divisors = {{3, 0}};
  EXPECT_TRUE(worker.Receive(prepared).all.empty());
  LaneLayout layout = worker.MakeLayout();
  layout.first = 3;
  layout.tensors = {F32("d", 5)};
  EXPECT_EQ(worker.Receive(layout).MessageNames(), "LayoutSeen Staged");
}

// A worker that lacks bytes of an adopted value requests exactly these.
TEST(NeedTest, AnAdoptedValueIsAskedFor) {
  Harness worker = Contributed();
  worker.Do(worker.Result({0, 1, 1}));
  Prepared adopted = worker.MakePrepared();
  adopted.ballot = {kTerm + 1, 1};
  EXPECT_EQ(worker.Receive(adopted).OneSent<Need>(),
            (Need{kLane, 1, {kTerm, 1}, {{0, 0, 1}, {0, 2, 1}, {1, 0, 1}}}));
  worker.Do(worker.Result({0, 0, 3}));
  EXPECT_EQ(worker.Do(worker.Result({1, 0, 1})).OneSent<Staged>().ballot, adopted.ballot);
}

TEST(NeedTest, BytesOfAnotherBallotAreOfNoUseForAnAdoptedValue) {
  Harness worker = Contributed();
  worker.ReceiveAllResults(4);
  Prepared adopted = worker.MakePrepared(2);
  adopted.ballot = {kTerm + 1, 1};
  EXPECT_EQ(worker.Receive(adopted).OneSent<Need>().ranges,
            (std::vector<ChunkRange>{{0, 0, 3}, {1, 0, 1}}));
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1}, 4)).all.empty());
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1}, 2)).Has<KeepResult>()) << "lower than was held";
}

TEST(DigestTest, Fault_N8_AMismatchIsFetchedAgainOnceThenGivenUp) {
  Harness worker = Contributed();
  const auto corrupt = [&] {
    worker.Do(worker.Result({0, 0, 3}));
    ResultReceived wrong = worker.Result({1, 0, 1});
    ++wrong.digests[0];
    return worker.Do(wrong);
  };
  worker.Receive(worker.MakePrepared());
  const Actions first = corrupt();
  EXPECT_EQ(first.OneSent<Need>(), (Need{kLane, 1, {kTerm, 1}, {{0, 0, 3}, {1, 0, 1}}}));
  EXPECT_FALSE(first.HasSent<Staged>());
  const Actions second = corrupt();
  EXPECT_EQ(second.One<FailRound>().error.code, ErrorCode::kDataCorrupt);
  EXPECT_TRUE(second.HasSent<Abandon>());
  EXPECT_TRUE(second.Has<OpenSession>());
  EXPECT_FALSE(worker.client.has_history());
}

TEST(DigestTest, TheSecondFetchMayBeRightAndTheNextRoundHasItsOwn) {
  Harness worker = Contributed();
  worker.Receive(worker.MakePrepared());
  worker.Do(worker.Result({0, 0, 3}));
  ResultReceived wrong = worker.Result({1, 0, 1});
  ++wrong.digests[0];
  worker.Do(wrong);
  worker.Do(worker.Result({0, 0, 3}));
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1})).HasSent<Staged>());
  worker.Receive(worker.MakeVerdict(worker.Value()));
  worker.Contribute();
  worker.Receive(worker.MakePrepared(1, 2));
  worker.Do(worker.Result({0, 0, 3}, 1, 2));
  wrong.round = 2;
  EXPECT_TRUE(worker.Do(wrong).HasSent<Need>());
}

TEST(DigestTest, AWrongDigestOverNothingIsGivenUp) {
  Harness worker = Contributed();
  Prepared prepared = worker.MakePrepared();
  prepared.value.divisor = 0;
  EXPECT_EQ(worker.Receive(prepared).One<FailRound>().error.code, ErrorCode::kDataCorrupt);
}

TEST(RestartResultsTest, TheNoticeAndTheFramesMayComeInEitherOrder) {
  Harness notice_first = Contributed();
  notice_first.ReceiveAllResults(1);
  notice_first.Receive(AttemptRestarted{kLane, 1, {kTerm, 2}, "", {}, kWindow});
  EXPECT_TRUE(notice_first.Do(notice_first.Result({0, 0, 3}, 1)).all.empty()) << "late";
  notice_first.ReceiveAllResults(2);
  EXPECT_TRUE(notice_first.Receive(notice_first.MakePrepared(2)).HasSent<Staged>());

  Harness frames_first = Contributed();
  frames_first.ReceiveAllResults(1);
  frames_first.ReceiveAllResults(2);
  frames_first.Receive(AttemptRestarted{kLane, 1, {kTerm, 2}, "", {}, kWindow});
  EXPECT_TRUE(frames_first.Receive(frames_first.MakePrepared(2)).HasSent<Staged>());
}

TEST(RestartResultsTest, APreparedValueIsDroppedByARestart) {
  Harness worker = Contributed();
  worker.Stage();
  worker.Receive(AttemptRestarted{kLane, 1, {kTerm, 2}, "nobody holds it", {}, kWindow});
  EXPECT_EQ(worker.lane().settlement.phase(), SettlePhase::kCollecting);
  EXPECT_EQ(worker.lane().settlement.staged(), std::nullopt);
  worker.ReceiveAllResults(2);
  EXPECT_TRUE(worker.Receive(worker.MakePrepared(2)).HasSent<Staged>());
  // The notice is older than the value that was prepared after it.
  worker.Receive(AttemptRestarted{kLane, 1, {kTerm, 1}, "", {}, kWindow});
  EXPECT_EQ(worker.lane().settlement.phase(), SettlePhase::kStaged);
}

TEST(RestartResultsTest, AFrameOfAHigherBallotThanWasPreparedIsARestart) {
  Harness worker = Contributed();
  worker.Receive(worker.MakePrepared(1));
  EXPECT_TRUE(worker.Do(worker.Result({0, 0, 3}, 2)).Has<KeepResult>());
  EXPECT_EQ(worker.lane().settlement.phase(), SettlePhase::kCollecting);
}

TEST(SupplyTest, AHolderSendsWhatItStaged) {
  Harness worker = Contributed();
  worker.Stage();
  const Supply supply{kLane, 1, {kTerm, 1}, {{0, 0, 3}, {1, 0, 1}, {9, 0, 1}}};
  const std::vector<SendSupply> frames = worker.Receive(supply).Of<SendSupply>();
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].ranges, (ChunkRanges{{0, 0, 2}}));
  EXPECT_EQ(frames[1].ranges, (ChunkRanges{{0, 2, 1}}));
  EXPECT_EQ(frames[2].ranges, (ChunkRanges{{1, 0, 1}}));
  for (const SendSupply& frame : frames) {
    EXPECT_EQ(frame.lane, 0u);
    EXPECT_EQ(frame.lane_index, kLane);
    EXPECT_EQ(frame.round, 1u);
    EXPECT_EQ(frame.ballot, (Ballot{kTerm, 1}));
  }
  // The client sends the chunks that were lost with a stream again.
  const uint32_t first = frames[0].stream;
  EXPECT_EQ(worker.Do(StreamDown{first}).Of<SendSupply>().size(), 3u);
  EXPECT_TRUE(worker.Do(StreamDown{1 - first}).Of<SendSupply>().empty());
  EXPECT_EQ(worker.Do(StreamUp{first}).Of<SendSupply>().size(), 3u);
}

TEST(SupplyTest, OnlyWhatIsHeldIsSupplied) {
  Harness worker = Contributed();
  worker.Do(worker.Result({0, 1, 1}));
  const Supply supply{kLane, 1, {kTerm, 1}, {{0, 0, 3}}};
  EXPECT_EQ(worker.Receive(supply).One<SendSupply>().ranges, (ChunkRanges{{0, 1, 1}}));
  EXPECT_TRUE(worker.Receive(Supply{kLane, 1, {kTerm, 2}, {{0, 0, 3}}}).all.empty());
  EXPECT_TRUE(worker.Receive(Supply{kLane, 2, {kTerm, 1}, {{0, 0, 3}}}).all.empty());
  EXPECT_TRUE(worker.Receive(Supply{77, 1, {kTerm, 1}, {{0, 0, 3}}}).all.empty());
}

TEST(SupplyTest, TheLastVerdictsBytesStayUntilTheNextResult) {
  Harness worker;
  worker.BecomeMember();
  worker.FinishRound();
  worker.Contribute();
  const Supply supply{kLane, 1, {kTerm, 1}, {{1, 0, 1}}};
  EXPECT_TRUE(worker.Receive(supply).Has<SendSupply>());
  worker.Do(worker.Result({0, 0, 1}, 1, 2));
  EXPECT_FALSE(worker.Receive(supply).Has<SendSupply>());
}

}  // namespace
}  // namespace basin::client
