// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The report of a trainer that accumulates for a target batch.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/version.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

struct TargetBatchTest : testing::Test {
  explicit TargetBatchTest(uint64_t features = kFeatureSamples) {
    worker.Connect(Known(features, Role::kJoiner));
    worker.RegisterModel();
    worker.Do(DeclareReady{});
    worker.Receive(
        MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
  }
  Harness worker;

  Welcome Known(uint64_t features, Role role) const {
    Welcome welcome = worker.MakeWelcome(role);
    welcome.features = features;
    return welcome;
  }
};

TEST_F(TargetBatchTest, Criterion_4_7_IsReportedForTheNextRound) {
  const auto report = worker.Do(AccumulateBatch{0, 32, 100}).OneSent<ReportBatch>();
  EXPECT_EQ(report, (ReportBatch{kLane, 1, 32, 100}));
  const auto answered = worker.Receive(BatchReported{kLane, 1, 96, false, {}}).One<BatchAnswered>();
  EXPECT_EQ(answered.samples, 96u);
  EXPECT_FALSE(answered.closed);
  worker.Do(AccumulateBatch{0, 40, 100});
  EXPECT_TRUE(worker.Receive(BatchReported{kLane, 1, 104, true, {}}).One<BatchAnswered>().closed);
}

TEST_F(TargetBatchTest, IsReportedAgainInTheNextSession) {
  worker.Do(AccumulateBatch{0, 32, 100});
  worker.Do(SessionDown{"the network"});
  worker.Pass(absl::Seconds(3));
  worker.Do(SessionUp{});
  worker.Receive(Known(kFeatureSamples, Role::kMember));
  EXPECT_EQ(worker.Receive(worker.MakeLayout()).OneSent<ReportBatch>().samples, 32u);
}

TEST_F(TargetBatchTest, IsReportedAgainForTheRoundAfterOneThatHasEndedMeanwhile) {
  worker.Do(AccumulateBatch{0, 32, 100});
  RoundValue aborted = worker.Value();
  aborted.outcome = Outcome::kAborted;
  worker.Receive(worker.MakeVerdict(aborted));
  const auto again = worker.Receive(BatchReported{kLane, 1, 32, true, {}}).OneSent<ReportBatch>();
  EXPECT_EQ(again, (ReportBatch{kLane, 2, 32, 100}));
}

// The trainer takes the result of that round before it accumulates for another one.
TEST_F(TargetBatchTest, IsClosedForARoundThatHasGoneOnWithoutThisWorker) {
  worker.Do(AccumulateBatch{0, 32, 100});
  worker.Stage();
  worker.Receive(worker.MakeVerdict(worker.Value()));
  const auto late = worker.Receive(BatchReported{kLane, 1, 32, true, {}}).One<BatchAnswered>();
  EXPECT_TRUE(late.closed);
  EXPECT_TRUE(worker.Do(AccumulateBatch{0, 48, 100}).One<BatchAnswered>().closed);
  worker.Do(BeginRound{0, Harness::Average(), {}, 17, {}});
  EXPECT_EQ(worker.Do(CommitRound{0}).One<Deliver>().record.round, 1u);
  const auto next = worker.Do(AccumulateBatch{0, 16, 100}).OneSent<ReportBatch>();
  EXPECT_EQ(next, (ReportBatch{kLane, 2, 16, 100}));
}

TEST_F(TargetBatchTest, ARefusalEndsTheReport) {
  worker.Do(AccumulateBatch{0, 32, 100});
  const Error error{ErrorCode::kMismatch, "worker w0 accumulates for another target"};
  EXPECT_EQ(worker.Receive(BatchReported{kLane, 1, 0, false, error}).One<BatchAnswered>().error,
            error);
  worker.Do(AccumulateBatch{0, 32, 100}).OneSent<ReportBatch>();
}

TEST_F(TargetBatchTest, OneReportAtATimeAndNoneInARound) {
  worker.Do(AccumulateBatch{0, 32, 100});
  EXPECT_EQ(worker.Do(AccumulateBatch{0, 33, 100}).One<Refused>().error.code,
            ErrorCode::kFailedPrecondition);
  worker.Receive(BatchReported{kLane, 1, 96, true, {}});
  worker.Do(BeginRound{0, Harness::Average(), {}, 17, {}});
  EXPECT_EQ(worker.Do(AccumulateBatch{0, 33, 100}).One<Refused>().error.code,
            ErrorCode::kFailedPrecondition);
}

TEST_F(TargetBatchTest, AWorkerThatFinishesGetsAnAnswer) {
  worker.Do(AccumulateBatch{0, 32, 100});
  EXPECT_EQ(worker.Do(Finish{}).One<BatchAnswered>().error.code, ErrorCode::kFailedPrecondition);
}

struct OldAggregatorTest : TargetBatchTest {
  OldAggregatorTest() : TargetBatchTest(0) {}
};

TEST_F(OldAggregatorTest, IsToldInWords) {
  EXPECT_EQ(worker.Do(AccumulateBatch{0, 32, 100}).One<BatchAnswered>().error.code,
            ErrorCode::kVersionMismatch);
}

}  // namespace
}  // namespace basin::client
