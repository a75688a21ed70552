// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Verdicts: delivery, aborts, the chain, repetition, gaps, and verdicts that arrive before the
// trainer or the results are ready.

#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

Harness StagedRound() {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Stage();
  return worker;
}

TEST(VerdictTest, CommittedIsDeliveredWithItsRecord) {
  Harness worker = StagedRound();
  const Verdict verdict = worker.MakeVerdict(worker.Value());
  const Actions actions = worker.Receive(verdict);
  EXPECT_EQ(actions.One<Deliver>().lane, 0u);
  EXPECT_EQ(actions.One<Deliver>().record, verdict.record);
  EXPECT_EQ(actions.all.size(), 1u);
  EXPECT_EQ(worker.lane().last_verdict, 1u);
  EXPECT_EQ(worker.lane().chain, verdict.record.chain);
  EXPECT_EQ(worker.lane().settlement.staged(), std::nullopt);
  EXPECT_FALSE(worker.lane().round.has_value());
}

TEST(VerdictTest, AbortedFailsTheRoundAndTheNextOneMayBegin) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  Prepared prepared = worker.MakePrepared();
  prepared.value = worker.AbortedValue();
  prepared.value.abort_cause = AbortCause::kNoContributor;
  worker.Receive(prepared);
  const FailRound fail = worker.Receive(worker.MakeVerdict(prepared.value)).One<FailRound>();
  EXPECT_EQ(fail.error.code, ErrorCode::kRoundAborted);
  EXPECT_EQ(fail.error.abort_cause, AbortCause::kNoContributor);
  EXPECT_EQ(fail.round, 1u);
  EXPECT_NE(fail.error.text.find("w-2 was lost"), std::string::npos);
  EXPECT_NE(fail.error.text.find("retry to send them"), std::string::npos);
  EXPECT_TRUE(worker.FinishRound().Has<Deliver>());
  EXPECT_EQ(worker.lane().last_verdict, 2u);
}

TEST(VerdictTest, DifferentUnnamedCallsAreAMismatchForEachWorker) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  Prepared prepared = worker.MakePrepared();
  prepared.value = worker.AbortedValue();
  prepared.value.abort_cause = AbortCause::kMismatch;
  prepared.value.reason = "worker w-0 calls this, but worker w-1 calls that";
  worker.Receive(prepared);
  const FailRound fail = worker.Receive(worker.MakeVerdict(prepared.value)).One<FailRound>();
  EXPECT_EQ(fail.error.code, ErrorCode::kMismatch);
  EXPECT_EQ(
      fail.error.text,
      "Job train, lane g, round 1: worker w-0 calls this, but worker w-1 calls that. No worker "
      "has a result; the next calls are matched as before.");
  EXPECT_TRUE(worker.FinishRound().Has<Deliver>());
}

TEST(VerdictTest, AbortedAfterARefusalSaysWhatIsToBeDoneFirst) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  const std::string refusal = "worker w-1 pushed integers. Use SUM.";
  worker.Receive(Rejected{{ErrorCode::kInvalidArgument, refusal}, worker.lane().index, 1});
  Prepared prepared = worker.MakePrepared();
  prepared.value = worker.AbortedValue();
  worker.Receive(prepared);
  const FailRound fail = worker.Receive(worker.MakeVerdict(prepared.value)).One<FailRound>();
  EXPECT_EQ(fail.error.code, ErrorCode::kRoundAborted);
  EXPECT_EQ(fail.error.text.substr(fail.error.text.find("The gradients")),
            "The gradients are kept; before a retry, correct what was refused: " + refusal);
  EXPECT_TRUE(worker.FinishRound().Has<Deliver>()) << "and it is forgotten with its round";
}

TEST(VerdictTest, TheLastTwoAreRemembered) {
  Harness worker;
  worker.BecomeMember();
  for (int i = 0; i < 3; ++i) worker.FinishRound();
  ASSERT_EQ(worker.lane().verdicts.size(), 2u);
  EXPECT_EQ(worker.lane().verdicts[0].round, 2u);
  EXPECT_EQ(worker.lane().verdicts[1].round, 3u);
}

TEST(VerdictTest, ToldAgainItIsIgnored) {
  Harness worker = StagedRound();
  const Verdict verdict = worker.MakeVerdict(worker.Value());
  worker.Receive(verdict);
  EXPECT_TRUE(worker.Receive(verdict).all.empty());
  worker.FinishRound();
  worker.FinishRound();
  EXPECT_TRUE(worker.Receive(verdict).all.empty()) << "older than is remembered";
}

TEST(VerdictTest, AnotherChainIsFatal) {
  Harness worker = StagedRound();
  Verdict verdict = worker.MakeVerdict(worker.Value());
  ++verdict.record.chain;
  const Actions actions = worker.Receive(verdict);
  EXPECT_EQ(actions.One<Fatal>().error.code, ErrorCode::kLineageConflict);
  EXPECT_EQ(actions.One<FailRound>().error.code, ErrorCode::kLineageConflict);
  EXPECT_FALSE(actions.Has<Deliver>());
  EXPECT_TRUE(actions.Has<CloseSession>());
}

TEST(VerdictTest, AnotherVersionOfAToldVerdictIsFatal) {
  Harness worker;
  worker.BecomeMember();
  worker.FinishRound();
  Verdict other;
  other.lane = kLane;
  other.record = worker.lane().verdicts[0];
  ++other.record.chain;
  EXPECT_TRUE(worker.Receive(other).Has<Fatal>());
}

TEST(VerdictTest, AGapEndsTheSessionAndInTheNextOneTheIncarnation) {
  Harness worker = StagedRound();
  Verdict verdict = worker.MakeVerdict(worker.Value());
  verdict.record.round = 3;
  const Actions live = worker.Receive(verdict);
  EXPECT_TRUE(live.Has<CloseSession>());
  EXPECT_FALSE(live.HasSent<Abandon>());
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.layouts = {worker.MakeLayout(0, 4)};
  welcome.verdicts = {{kLane, {verdict.record}}};
  const Actions late = worker.Connect(welcome);
  EXPECT_TRUE(late.HasSent<Abandon>());
  EXPECT_EQ(late.One<FailRound>().error.code, ErrorCode::kEvicted);
}

TEST(VerdictTest, ACommittedRoundThatIsNotHeldAndLongOverIsAnEviction) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Do(SessionDown{""});
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.layouts = {worker.MakeLayout(0, 2)};
  welcome.verdicts = {{kLane, {worker.MakeVerdict(worker.Value()).record}}};
  const Actions actions = worker.Connect(welcome);
  EXPECT_TRUE(actions.HasSent<Abandon>());
  EXPECT_EQ(actions.One<FailRound>().error.code, ErrorCode::kEvicted);
  EXPECT_FALSE(actions.Has<Deliver>());
}

// With one phase, which the explorer tries, the verdict overtakes the results.
TEST(VerdictTest, AVerdictThatComesBeforeTheResultsWaitsForThem) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  EXPECT_FALSE(worker.Receive(worker.MakeVerdict(worker.Value())).Has<Deliver>());
  worker.Do(worker.Result({0, 0, 3}));
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1})).Has<Deliver>());
  EXPECT_EQ(worker.lane().last_verdict, 1u);
}

// The others go on without a member that is slow or whose contribution was rejected.
TEST(VerdictTest, DeliveryWaitsForTheTrainer) {
  for (const Event& call : {Event(CommitRound{0}), Event(WithdrawRound{0, ""})}) {
    Harness worker;
    worker.BecomeMember();
    worker.Begin();
    worker.PushOne(kA);
    worker.Stage();
    EXPECT_FALSE(worker.Receive(worker.MakeVerdict(worker.Value())).Has<Deliver>());
    EXPECT_EQ(worker.lane().round->state(), RoundState::kDecided);
    EXPECT_TRUE(worker.PushOne(kB).all.empty());
    EXPECT_TRUE(worker.Do(SkipTensor{0, kC}).all.empty());
    EXPECT_TRUE(worker.Do(WaitRound{0, worker.now}).Has<Refused>());
    const Actions actions = worker.Do(call);
    EXPECT_EQ(actions.One<Deliver>().record.round, 1u);
    EXPECT_EQ(actions.all.size(), 1u) << "nothing is sent";
    EXPECT_FALSE(worker.lane().undelivered.has_value());
    EXPECT_TRUE(worker.FinishRound().Has<Deliver>());
  }
}

// A joiner that was admitted in a pause stages a round that it has not begun.
TEST(VerdictTest, ARoundThatWasNotBegunIsDeliveredToItsBegin) {
  Harness worker;
  worker.BecomeMember();
  worker.Stage();
  EXPECT_TRUE(worker.Receive(worker.MakeVerdict(worker.Value())).all.empty());
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1}, 1, 1)).all.empty());
  EXPECT_TRUE(worker.Do(BeginRound{0, Harness::Average(), {}, 0, {}}).all.empty());
  EXPECT_EQ(worker.lane().round->number(), 1u);
  EXPECT_TRUE(worker.PushOne(kA).all.empty());
  EXPECT_EQ(worker.Do(CommitRound{0}).One<Deliver>().record.round, 1u);
  worker.Begin();
  EXPECT_EQ(worker.lane().round->number(), 2u);
}

TEST(VerdictTest, AnAbortedRoundThatWasNotBegunIsNothing) {
  Harness worker;
  worker.BecomeMember();
  Prepared prepared = worker.MakePrepared();
  prepared.value = worker.AbortedValue();
  worker.Receive(prepared);
  EXPECT_TRUE(worker.Receive(worker.MakeVerdict(prepared.value)).all.empty());
  worker.Begin();
  EXPECT_EQ(worker.lane().round->number(), 2u);
}

TEST(VerdictTest, ResultsOfTheNextRoundCannotPrecedeTheHandOver) {
  Harness worker;
  worker.BecomeMember();
  worker.Stage();
  worker.Receive(worker.MakeVerdict(worker.Value()));
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1}, 1, 2)).Has<CloseSession>());
}

TEST(VerdictTest, AnEvictionTakesAnUndeliveredRoundWithIt) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  worker.Stage();
  worker.Receive(worker.MakeVerdict(worker.Value()));
  EXPECT_EQ(worker.Receive(Ended{{ErrorCode::kEvicted, ""}}).One<FailRound>().error.code,
            ErrorCode::kEvicted);
  EXPECT_FALSE(worker.lane().undelivered.has_value());
}

TEST(VerdictTest, BeginOfARoundThatIsPreparedPushesNothing) {
  Harness worker;
  worker.BecomeMember();
  worker.Receive(worker.MakePrepared());
  worker.Begin();
  EXPECT_TRUE(worker.PushOne(kA).all.empty());
  EXPECT_FALSE(worker.Do(CommitRound{0}).HasSent<Commit>());
  worker.ReceiveAllResults();
  EXPECT_TRUE(worker.Receive(worker.MakeVerdict(worker.Value())).Has<Deliver>());
}

TEST(VerdictTest, AFinishedWorkerDoesNotNeedTheResultsOfOthers) {
  Harness worker;
  worker.BecomeMember();
  worker.Do(Finish{});
  const Actions actions = worker.Receive(worker.MakeVerdict(worker.Value()));
  EXPECT_FALSE(actions.HasSent<Abandon>());
  EXPECT_FALSE(actions.Has<Deliver>());
  EXPECT_EQ(worker.lane().last_verdict, 1u);
  EXPECT_FALSE(worker.lane().undelivered.has_value());
}

TEST(VerdictTest, AFinishedWorkerTakesNoVerdictThatItHadNotBegunToAskFor) {
  Harness worker;
  worker.BecomeMember();
  worker.Stage();
  worker.Receive(worker.MakeVerdict(worker.Value()));
  worker.Do(Finish{});
  const Actions actions = worker.Do(worker.Result({1, 0, 1}, 1, 2));
  EXPECT_FALSE(actions.Has<CloseSession>());
  EXPECT_TRUE(actions.HasSent<ResultAck>());
}

TEST(VerdictTest, AFinishedWorkerStillGetsTheRoundItHasBegun) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Do(Finish{});
  worker.Stage();
  EXPECT_TRUE(worker.Receive(worker.MakeVerdict(worker.Value())).Has<Deliver>());
}

TEST(VerdictTest, OfALaneThatIsNotRegisteredHereIsIgnored) {
  Harness worker = StagedRound();
  Verdict verdict = worker.MakeVerdict(worker.Value());
  verdict.lane = 77;
  EXPECT_TRUE(worker.Receive(verdict).all.empty());
}

TEST(VerdictTest, TheStateIsAValue) {
  Harness worker = StagedRound();
  Client copy = worker.client;
  EXPECT_EQ(copy, worker.client);
  EXPECT_EQ(Fingerprint::Of(copy), Fingerprint::Of(worker.client));
  std::vector<Action> actions;
  copy.Step(MessageReceived{worker.MakeVerdict(worker.Value())}, worker.now, actions);
  EXPECT_NE(copy, worker.client);
  EXPECT_FALSE(Fingerprint::Of(copy) == Fingerprint::Of(worker.client));
  worker.Receive(worker.MakeVerdict(worker.Value()));
  EXPECT_EQ(copy, worker.client);
}

}  // namespace
}  // namespace basin::client
