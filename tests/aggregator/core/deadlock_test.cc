// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Workers that wait for each other in different rounds: the job aborts these rounds, with an error
// that names all of the workers, and no others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Minutes(1);
constexpr char kMetric[] = "call/metric";

Config WithTimeout(absl::Duration timeout) {
  Config config;
  config.deadlock_timeout = timeout;
  return config;
}

// Worker a has finished its batches and computes a metric; b has one more batch.
struct UnevenBatches : Cluster {
  explicit UnevenBatches(absl::Duration timeout = kTimeout)
      : Cluster(Settings(2, 3, 2), WithTimeout(timeout)), a(Join("a")), b(Join("b")) {
    for (TestWorker* worker : {&a, &b}) worker->Register({Tensor("x")}, kMetric, LaneKind::kCall);
    for (TestWorker* worker : {&a, &b}) worker->Contribute();
  }
  void Diverge() {
    Contribute(a, kMetric);
    Contribute(b, kLane);
  }
  // The trainer contributes and waits for the outcome.
  static void Contribute(TestWorker& worker, const std::string& lane) {
    const bool call = worker.lane(lane).kind == LaneKind::kCall;
    worker.Contribute(Spec(call ? ReduceOp::kSum : ReduceOp::kAverage), lane);
    worker.waits.push_back({worker.lane(lane).index, worker.lane(lane).next()});
  }
  bool Ended() const { return Notes(NoteKind::kRoundAborted) > 0; }
  TestWorker& a;
  TestWorker& b;
};

TEST(Deadlock, Fault_W5_RoundsOfWorkersThatWaitForEachOtherAreAbortedWithBothNames) {
  UnevenBatches c;
  c.Diverge();
  c.Sleep(kTimeout - absl::Seconds(1));
  EXPECT_FALSE(c.Ended());
  c.Sleep(absl::Seconds(2));
  for (const char* lane : {kMetric, kLane}) {
    const VerdictRecord& record = c.a.verdict(lane);
    EXPECT_EQ(record.value.outcome, Outcome::kAborted) << lane;
    EXPECT_EQ(record.value.abort_cause, AbortCause::kDeadlock) << lane;
    EXPECT_THAT(record.value.reason,
                AllOf(HasSubstr("worker b waits in round 2 of lane model"),
                      HasSubstr("worker a waits in round 1 of lane call/metric")));
    EXPECT_EQ(c.b.verdict(lane).chain, record.chain);
  }
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 0u);

  // The job goes on as if neither round had existed.
  for (TestWorker* worker : {&c.a, &c.b}) {
    worker->waits.clear();
    worker->Contribute();
    worker->Contribute(Spec(ReduceOp::kSum), kMetric);
  }
  EXPECT_EQ(c.a.lane().delivered[3].at({0, 0}), (Reduced{3, 2}));
  EXPECT_EQ(c.b.lane(kMetric).delivered[2].at({0, 0}), (Reduced{3, 1}));
}

// A client ignores a lane that its trainer has not registered, so it could not stage anything
// there.
TEST(Deadlock, CallsThatOnlyOneSideKnowsEndToo) {
  UnevenBatches c;
  c.a.Register({Tensor("x")}, "call/left", LaneKind::kCall);
  c.b.Register({Tensor("x")}, "call/right", LaneKind::kCall);
  UnevenBatches::Contribute(c.a, "call/left");
  UnevenBatches::Contribute(c.b, "call/right");
  c.Sleep(kTimeout + absl::Seconds(1));
  EXPECT_EQ(c.a.verdict("call/left").value.outcome, Outcome::kAborted);
  EXPECT_EQ(c.b.verdict("call/right").value.outcome, Outcome::kAborted);
}

TEST(Deadlock, NothingEndsWhileATrainerDoesSomethingElse) {
  UnevenBatches c;
  c.Diverge();
  c.b.waits.clear();  // It may be evaluating while its round is open.
  c.Sleep(10 * kTimeout);
  EXPECT_FALSE(c.Ended());
}

TEST(Deadlock, NothingEndsWhileAThirdWorkerComputes) {
  UnevenBatches c;
  TestWorker& j = c.Join("j");
  for (TestWorker* worker : {&c.a, &c.b}) worker->Contribute();
  ASSERT_EQ(j.role, Role::kMember);
  c.Diverge();
  c.Sleep(10 * kTimeout);
  EXPECT_FALSE(c.Ended());
  j.Register({Tensor("x")}, kMetric, LaneKind::kCall);
  UnevenBatches::Contribute(j, kMetric);
  c.Sleep(kTimeout + absl::Seconds(1));
  EXPECT_THAT(j.verdict(kMetric).value.reason,
              HasSubstr("workers a, j wait in round 1 of lane call/metric"));
}

// Only the time in which no wait changes counts.
TEST(Deadlock, ANewWaitBeginsAnew) {
  UnevenBatches c;
  UnevenBatches::Contribute(c.a, kMetric);
  c.Sleep(10 * kTimeout);
  UnevenBatches::Contribute(c.b, kLane);
  c.Sleep(kTimeout - absl::Seconds(1));
  EXPECT_FALSE(c.Ended());
  c.Sleep(absl::Seconds(2));
  EXPECT_TRUE(c.Ended());
}

// All workers have begun this round, and its results are on their way.
TEST(Deadlock, NothingEndsWhileSomebodyWaitsInARoundThatAllHaveBegun) {
  UnevenBatches c;
  c.reduces = false;
  for (TestWorker* worker : {&c.a, &c.b}) UnevenBatches::Contribute(*worker, kLane);
  UnevenBatches::Contribute(c.a, kMetric);
  c.Sleep(10 * kTimeout);
  EXPECT_FALSE(c.Ended());
}

TEST(Deadlock, NothingEndsWhileAWorkerIsCutOff) {
  UnevenBatches c;
  c.Diverge();
  c.Sleep(kTimeout - absl::Seconds(1));
  c.b.Cut();
  c.Sleep(absl::Seconds(3));
  EXPECT_FALSE(c.Ended()) << "it may come back with the call that a waits for";
}

TEST(Deadlock, AStopOfTheAggregatorIsNoWait) {
  UnevenBatches c;
  c.Diverge();
  c.Sleep(absl::Seconds(2));
  c.Stall(10 * kTimeout);
  c.Sleep(kTimeout / 2);
  EXPECT_FALSE(c.Ended());
}

TEST(Deadlock, NothingEndsWithoutATimeout) {
  UnevenBatches c(absl::InfiniteDuration());
  c.Diverge();
  c.Sleep(absl::Hours(1));
  EXPECT_FALSE(c.Ended());
}

// There are two lanes, so the core ignores such a list.
TEST(Deadlock, AHeartbeatThatNamesMoreWaitsThanThereAreLanesIsNone) {
  UnevenBatches c;
  c.Diverge();
  c.b.waits.assign(3, c.b.waits.front());
  c.Sleep(10 * kTimeout);
  EXPECT_FALSE(c.Ended());
}

}  // namespace
}  // namespace basin::aggregator
