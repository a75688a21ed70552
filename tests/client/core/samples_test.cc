// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Samples that the trainer leases: the request, what the worker holds, and what its hello reports.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/version.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

using testing::HasSubstr;

constexpr SampleEpoch kEpochOne{1, 100, 7};
constexpr SampleEpoch kEpochTwo{2, 100, 7};

using Positions = std::vector<SampleRange>;

struct SamplesTest : testing::Test {
  SamplesTest() {
    worker.Connect(Known());
    worker.RegisterModel();
    worker.Do(DeclareReady{});
    worker.Receive(
        MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
  }
  Harness worker;

  Welcome Known(Role role = Role::kJoiner) const {
    Welcome welcome = worker.MakeWelcome(role);
    welcome.features = kFeatureSamples | kFeatureGlobalBatch;
    return welcome;
  }
  const Samples& samples() const { return worker.client.lanes()[0].samples; }
  LeaseSamples Ask(uint64_t count, const SampleEpoch& epoch = kEpochOne) {
    return worker.Do(TakeSamples{0, epoch, count}).OneSent<LeaseSamples>();
  }
  Actions Answer(const Positions& ranges, LeaseOutcome outcome = LeaseOutcome::kLeased,
                 const Positions& resumed = {}) {
    return worker.Receive(
        SamplesLeased{kLane, samples().requests, samples().asked.number, outcome, ranges, resumed});
  }
  void Lease(const Positions& ranges) {
    Ask(IntervalSet(ranges).count());
    Answer(ranges);
  }
  Actions Begin(const Positions& ranges, uint64_t epoch = 1) {
    BeginRound begin{0, Harness::Average(), {}, 17, ranges};
    begin.sample_epoch = epoch;
    return worker.Do(begin);
  }
  // The round is committed, and all of the worker's results are here.
  void Verdict(const std::optional<RoundSamples>& samples) {
    RoundValue value = worker.Value();
    value.samples = samples;
    value.decision = 0;
    Prepared prepared = worker.MakePrepared();
    prepared.value = value;
    worker.Receive(prepared);
    worker.ReceiveAllResults();
    worker.Receive(worker.MakeVerdict(value));
  }
  LaneHistory Reconnect() {
    worker.Do(SessionDown{"the network"});
    worker.Pass(absl::Seconds(3));
    const Hello hello = worker.Do(SessionUp{}).OneSent<Hello>();
    return hello.lanes.empty() ? LaneHistory{} : hello.lanes[0];
  }
};

TEST_F(SamplesTest, AreLeasedNamedAndCommitted) {
  const LeaseSamples ask = Ask(10);
  EXPECT_EQ(ask.lane, kLane);
  EXPECT_EQ(ask.epoch, kEpochOne);
  EXPECT_EQ(ask.count, 10u);
  const auto answered = Answer({{0, 4}, {8, 10}}).One<SamplesAnswered>();
  EXPECT_EQ(answered.ranges, (Positions{{0, 4}, {8, 10}}));
  const auto begin = Begin({{0, 2}, {8, 9}}).OneSent<basin::Begin>();
  EXPECT_EQ(begin.samples, (Positions{{0, 2}, {8, 9}}));
  EXPECT_EQ(begin.sample_epoch, 1u);
  worker.Do(CommitRound{0});
  Verdict(RoundSamples{kEpochOne, {{0, 2}, {8, 9}, {20, 30}}, {}, 13});
  EXPECT_EQ(samples().held.Runs(), (Positions{{2, 4}, {9, 10}}));
  EXPECT_EQ(samples().progress(), (SampleProgress{kEpochOne, {{0, 2}, {8, 9}, {20, 30}}}));
  const LaneHistory history = Reconnect();
  EXPECT_EQ(history.committed, samples().progress());
  EXPECT_EQ(history.leased, (SampleProgress{kEpochOne, {{2, 4}, {9, 10}}}));
}

TEST_F(SamplesTest, ThatItDoesNotHoldAreRefusedAtOnce) {
  Lease({{0, 4}});
  EXPECT_THAT(Begin({{3, 5}}).One<Refused>().error.text, HasSubstr("sample 4 of epoch 1"));
  EXPECT_THAT(Begin({{0, 1}}, 2).One<Refused>().error.text, HasSubstr("sample 0 of epoch 2"));
  EXPECT_FALSE(Begin({{0, 4}}).Has<Refused>());
}

TEST_F(SamplesTest, ARequestIsRepeatedInTheNextSession) {
  Ask(10);
  worker.Do(SessionDown{"the network"});
  worker.Pass(absl::Seconds(3));
  worker.Do(SessionUp{});
  worker.Receive(Known(Role::kMember));
  const auto again = worker.Receive(worker.MakeLayout()).OneSent<LeaseSamples>();
  EXPECT_EQ(again.request, samples().requests);
  EXPECT_EQ(Answer({}, LeaseOutcome::kNoneNow).One<SamplesAnswered>().outcome,
            LeaseOutcome::kNoneNow);
}

// Otherwise its script would make the same step again, for ever.
TEST_F(SamplesTest, ARefusedContributionIsNoReasonToMakeTheStepAgain) {
  Begin({});
  worker.Do(CommitRound{0});
  worker.Receive(Rejected{{ErrorCode::kMismatch, "has another layout"}, kLane, 1});
  RoundValue aborted = worker.Value();
  aborted.outcome = Outcome::kAborted;
  aborted.abort_cause = AbortCause::kStepAgain;
  const Error error = worker.Receive(worker.MakeVerdict(aborted)).One<FailRound>().error;
  EXPECT_EQ(error.abort_cause, AbortCause::kUnspecified);
  EXPECT_THAT(error.text, HasSubstr("correct what was refused: has another layout"));
}

TEST_F(SamplesTest, ARefusedEpochMayBeCorrected) {
  Ask(1, {1, 99, 7});
  worker.Receive(SamplesLeased{kLane,
                               samples().requests,
                               1,
                               LeaseOutcome::kRefused,
                               {},
                               {},
                               {ErrorCode::kMismatch, "gives epoch 1 99 samples"}});
  Lease({{0, 4}});
  EXPECT_EQ(worker.Do(TakeSamples{0, {1, 99, 7}, 1}).One<Refused>().error.code,
            ErrorCode::kMismatch);
}

TEST_F(SamplesTest, OneRequestAtATime) {
  Ask(10);
  EXPECT_EQ(worker.Do(TakeSamples{0, kEpochOne, 1}).One<Refused>().error.code,
            ErrorCode::kFailedPrecondition);
}

TEST_F(SamplesTest, AreReturned) {
  Lease({{0, 10}});
  const auto returned =
      worker.Do(GiveBackSamples{0, 1, {{2, 4}, {50, 60}}}).OneSent<ReturnSamples>();
  EXPECT_EQ(returned.ranges, (Positions{{2, 4}})) << "it does not hold the others";
  EXPECT_EQ(samples().held.Runs(), (Positions{{0, 2}, {4, 10}}));
  Begin({{0, 2}});
  EXPECT_EQ(worker.Do(GiveBackSamples{0, 1, {{1, 5}}}).One<Refused>().error.code,
            ErrorCode::kFailedPrecondition);
}

TEST_F(SamplesTest, ALaterEpochGivesUpAllButTheRoundInFlight) {
  Lease({{0, 10}});
  Begin({{0, 2}});
  Ask(5, kEpochTwo);
  EXPECT_EQ(samples().held.Runs(), (Positions{{0, 2}}));
  EXPECT_EQ(Reconnect().leased, (SampleProgress{kEpochOne, {{0, 2}}}));
}

TEST_F(SamplesTest, ACheckpointIsReportedUntilAVerdict) {
  const Positions done{{0, 40}};
  worker.Do(ResumeSamples{0, {kEpochOne, done}});
  EXPECT_EQ(samples().progress(), (SampleProgress{kEpochOne, done}));
  EXPECT_EQ(Ask(2).resumed, done);
  Answer({{40, 42}}, LeaseOutcome::kLeased, done);
  EXPECT_EQ(Reconnect().resumed, done);
  worker.Receive(Known(Role::kMember));
  worker.Receive(worker.MakeLayout());
  Begin({{40, 42}});
  worker.Do(CommitRound{0});
  Verdict(RoundSamples{kEpochOne, {{40, 42}}, done, 42});
  EXPECT_EQ(samples().progress(), (SampleProgress{kEpochOne, {{0, 42}}}));
  EXPECT_TRUE(Ask(2).resumed.empty());
  Answer({}, LeaseOutcome::kNoneNow);
  EXPECT_FALSE(worker.Do(ResumeSamples{0, {kEpochOne, done}}).Has<Refused>()) << "it is older";
  EXPECT_EQ(worker.Do(ResumeSamples{0, {kEpochOne, {{90, 91}}}}).One<Refused>().error.code,
            ErrorCode::kFailedPrecondition);
}

TEST_F(SamplesTest, AJoinerStartsWithWhatIsCommitted) {
  Harness joiner;
  joiner.Connect(Known());
  joiner.RegisterModel();
  joiner.Do(DeclareReady{});
  const SampleProgress committed{kEpochOne, {{0, 4}}};
  joiner.Receive(
      MembershipChanged{joiner.Members(), Role::kMember, "w-1", {{"g", kLane, 7, 99, committed}}});
  EXPECT_EQ(joiner.client.lanes()[0].samples.progress(), committed);
}

TEST_F(SamplesTest, AnEvictionEndsLeasesAndTheRequest) {
  Lease({{0, 10}});
  Ask(5);
  const Actions evicted = worker.Receive(Ended{{ErrorCode::kEvicted, "an operator said so"}});
  EXPECT_EQ(evicted.One<SamplesAnswered>().error.code, ErrorCode::kEvicted);
  EXPECT_TRUE(samples().held.empty());
  EXPECT_EQ(worker.Do(TakeSamples{0, kEpochOne, 1}).One<Refused>().error.code, ErrorCode::kEvicted);
}

TEST_F(SamplesTest, TheAggregatorCorrectsTheHello) {
  Lease({{0, 10}});
  worker.Receive(SamplesLeased{kLane, 0, 1, LeaseOutcome::kLeased, {{0, 4}, {20, 30}}, {}});
  EXPECT_EQ(samples().held.Runs(), (Positions{{0, 4}}));
  worker.Receive(SamplesLeased{kLane, 0, 2, LeaseOutcome::kLeased, {{0, 4}}, {}});
  EXPECT_TRUE(samples().held.empty()) << "of an earlier epoch";
}

// Its trainer would go to the next epoch, and take the result of the last round there.
TEST_F(SamplesTest, TheEpochGoesOnUntilTheTrainerHasTheResultOfARoundWithoutIt) {
  Ask(10);
  worker.Stage();
  RoundValue value = worker.Value();
  value.samples = RoundSamples{kEpochOne, {{0, 100}}, {}, 100};
  value.decision = 0;
  worker.Receive(worker.MakeVerdict(value));
  EXPECT_EQ(Answer({}, LeaseOutcome::kEnded).One<SamplesAnswered>().outcome,
            LeaseOutcome::kNoneNow);
  Begin({});
  EXPECT_EQ(worker.Do(CommitRound{0}).One<Deliver>().record.round, 1u);
  Ask(10);
  EXPECT_EQ(Answer({}, LeaseOutcome::kEnded).One<SamplesAnswered>().outcome, LeaseOutcome::kEnded);
}

TEST_F(SamplesTest, ARequestForAStepSaysWhatItHas) {
  const SampleEpoch steps{1, 50, 7, 12};
  EXPECT_EQ(Ask(1, steps).after, 0u);
  Answer({{0, 4}});
  EXPECT_EQ(Ask(1, steps).after, 4u);
  Answer({{12, 16}});
  EXPECT_EQ(Ask(1, steps).after, 16u);
  Answer({}, LeaseOutcome::kNoneNow);
  worker.Do(GiveBackSamples{0, 1, {{0, 4}, {12, 16}}});
  EXPECT_EQ(Ask(1, steps).after, 0u) << "the next lease is of the lowest step";
}

TEST_F(SamplesTest, AnOldAggregatorIsNamed) {
  worker.Do(SessionDown{"the network"});
  worker.Pass(absl::Seconds(3));
  worker.Do(SessionUp{});
  worker.Receive(worker.MakeWelcome(Role::kMember));
  worker.Receive(worker.MakeLayout());
  const auto answered = worker.Do(TakeSamples{0, kEpochOne, 1}).One<SamplesAnswered>();
  EXPECT_EQ(answered.error.code, ErrorCode::kVersionMismatch);
}

}  // namespace
}  // namespace basin::client
