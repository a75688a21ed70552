// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Rounds that wait for a number of samples of all workers together.

#include "aggregator/core/target_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::HasSubstr;

constexpr RoundNumber kNext = 7;

struct Batch : TargetBatch {
  bool begun = false;
  BatchReported Tell(uint32_t who, uint64_t samples, uint64_t target = 100,
                     RoundNumber round = kNext) {
    return Report({1, who}, absl::StrCat("w", who), {0, round, samples, target}, kNext, begun);
  }
};

TEST(TargetBatch, Criterion_4_7_ClosesWhenAllTogetherHaveTheTarget) {
  Batch t;
  EXPECT_FALSE(t.Tell(1, 40).closed);
  EXPECT_FALSE(t.Tell(2, 59).closed);
  EXPECT_EQ(t.Tell(3, 0).samples, 99u);
  const BatchReported last = t.Tell(1, 48);  // All that it has, not what was added.
  EXPECT_TRUE(last.closed);
  EXPECT_EQ(last.samples, 107u);
  EXPECT_TRUE(t.Tell(3, 0).closed) << "it may contribute nothing";
  EXPECT_TRUE(t.Tell(1, 8).closed) << "what is closed stays closed";
  t.EndRound();
  EXPECT_FALSE(t.Tell(1, 40).closed);
}

TEST(TargetBatch, TheSamplesOfAWorkerThatHasGoneDoNotCount) {
  Batch t;
  t.Tell(1, 60);
  t.Leave({1, 1});
  EXPECT_EQ(t.Tell(2, 60).samples, 60u);
  EXPECT_TRUE(t.Tell(3, 40).closed);
}

TEST(TargetBatch, TheTargetOfTheOnlyWorkerGoesWithIt) {
  Batch t;
  t.Tell(1, 10, 50);
  t.Leave({1, 1});
  EXPECT_EQ(t.Tell(2, 10, 100).error.code, ErrorCode::kOk);
}

TEST(TargetBatch, ARoundThatSomebodyHasBegunIsClosed) {
  Batch t;
  t.begun = true;
  EXPECT_TRUE(t.Tell(1, 1).closed);
}

TEST(TargetBatch, AnotherTargetIsRefusedAndNamesBoth) {
  Batch t;
  t.Tell(1, 10);
  const BatchReported refused = t.Tell(2, 10, 200);
  EXPECT_EQ(refused.error.code, ErrorCode::kMismatch);
  EXPECT_THAT(refused.error.text, HasSubstr("200 samples, but worker w1 for one of 100"));
  EXPECT_EQ(t.Tell(1, 10).samples, 10u) << "a refused report counts for nothing";
}

TEST(TargetBatch, AReportCountsForItsRoundOnly) {
  Batch t;
  EXPECT_TRUE(t.Tell(1, 5, 100, kNext - 1).closed) << "it has ended";
  EXPECT_FALSE(t.Tell(1, 500, 100, kNext + 1).closed) << "this aggregator is recovering";
  EXPECT_EQ(t.Tell(2, 5).samples, 5u);
}

// Three workers of a job.
struct Accumulating : Cluster {
  Accumulating() : Cluster(Settings(1, 4, 3)) {
    for (const char* id : {"a", "b", "c"}) Worker(id).features = kFeatureSamples;
    for (const char* id : {"a", "b", "c"}) Join(id);
  }
  TestWorker& a = Worker("a");
  TestWorker& b = Worker("b");
  TestWorker& c = Worker("c");

  BatchReported Tell(TestWorker& worker, uint64_t samples, uint64_t target = 100) {
    const TestWorker::LaneView& lane = worker.lane();
    worker.Send(ReportBatch{lane.index, lane.next(), samples, target});
    return worker.Last<BatchReported>();
  }
};

TEST(TargetBatchOfAJob, Criterion_4_7_TheNextRoundHasABatchOfItsOwn) {
  Accumulating t;
  EXPECT_FALSE(t.Tell(t.a, 60).closed);
  EXPECT_TRUE(t.Tell(t.b, 50).closed);
  t.a.Contribute();
  EXPECT_TRUE(t.Tell(t.c, 0).closed);
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.a.lane().next(), 2u);
  const BatchReported next = t.Tell(t.c, 30);
  EXPECT_EQ(next.samples, 30u);
  EXPECT_FALSE(next.closed);
}

TEST(TargetBatchOfAJob, ALostWorkersSamplesAreAccumulatedByOthers) {
  Accumulating t;
  t.Tell(t.a, 60);
  t.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(t.Tell(t.b, 50).samples, 50u);
  EXPECT_FALSE(t.Tell(t.c, 49).closed);
  EXPECT_TRUE(t.Tell(t.c, 50).closed);
}

TEST(TargetBatchOfAJob, ARefusalNamesTheJobAndTheWorker) {
  Accumulating t;
  t.Tell(t.a, 60);
  EXPECT_THAT(t.Tell(t.b, 60, 50).error.text,
              HasSubstr("worker b accumulates for a target batch of 50 samples, but worker a for "
                        "one of 100. Use the same target on every worker."));
}

}  // namespace
}  // namespace basin::aggregator
