// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Rounds that go on without those who are late.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "aggregator/core/grace.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr absl::Duration kGrace = absl::Milliseconds(100);
constexpr absl::Duration kTooEarly = absl::Milliseconds(99);
constexpr absl::Duration kLateEnough = absl::Milliseconds(2);

Config LeavesOut() {
  Config config;
  config.late_policy = LatePolicy::kLeaveOut;
  config.grace = kGrace;
  return config;
}

// Three workers with one verdict, of which two are a quorum.
struct LateThree : Three {
  explicit LateThree(JobSettings settings = Settings(1, 4, 3), Config config = LeavesOut())
      : Three(settings, std::move(config)) {
    Contribute({&a, &b, &c});
  }
  void Contribute(std::initializer_list<TestWorker*> workers) {
    for (TestWorker* worker : workers) worker->Contribute();
  }
  void PassGrace() {
    Sleep(kTooEarly);
    EXPECT_EQ(Notes(NoteKind::kContributionLate), before_) << "the grace is not over";
    Sleep(kLateEnough);
    before_ = Notes(NoteKind::kContributionLate);
  }

 private:
  size_t before_ = 0;
};

TEST(LeavingOut, ARoundGoesOnWithAQuorumAfterTheGrace) {
  LateThree t;
  t.Contribute({&t.a, &t.b});
  t.PassGrace();
  EXPECT_EQ(t.Notes(NoteKind::kContributionLate), 1u);
  EXPECT_THAT(t.NoteText(NoteKind::kContributionLate),
              HasSubstr("2 of 3 members have waited for it for 1"));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 0u);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    const RoundValue& value = worker->verdict().value;
    EXPECT_EQ(worker->lane().last, 2u);
    EXPECT_EQ(value.divisor, 2u);
    EXPECT_THAT(value.late, ElementsAre("c"));
    EXPECT_EQ(worker->lane().delivered[2].at({0, 0}), (Reduced{3, 2})) << worker->id;
  }
  EXPECT_THAT(t.a.verdict().next.members, ElementsAre("a", "b", "c")) << "it stays a member";
  EXPECT_THAT(t.job().lanes[0].past.back().late, ElementsAre("c"));
}

TEST(LeavingOut, WhoeverComesWithinTheGraceIsCounted) {
  LateThree t;
  t.Contribute({&t.a, &t.b});
  t.Sleep(kTooEarly);
  t.Contribute({&t.c});
  EXPECT_EQ(t.a.verdict().value.divisor, 3u);
  EXPECT_THAT(t.a.verdict().value.late, IsEmpty());
  EXPECT_EQ(t.Notes(NoteKind::kContributionLate), 0u);
}

TEST(LeavingOut, TheVerdictWaitsForWhoeverIsLateToStage) {
  LateThree t;
  t.c.stages = false;
  t.Contribute({&t.a, &t.b});
  t.PassGrace();
  EXPECT_EQ(t.a.lane().last, 1u) << "either every member gets the result, or none does";
  t.c.Stage();
  EXPECT_EQ(t.a.lane().last, 2u);
}

// Its trainer may not have taken the result of the round before.
TEST(LeavingOut, WhoeverWasLeftOutIsAwaitedUntilItBeginsTheNextRound) {
  LateThree t;
  t.Contribute({&t.a, &t.b});
  t.PassGrace();
  t.Contribute({&t.a, &t.b});
  t.Sleep(absl::Seconds(4));
  EXPECT_EQ(t.a.lane().last, 2u);
  t.c.Begin();
  t.PassGrace();
  EXPECT_EQ(t.a.lane().last, 3u);
  EXPECT_THAT(t.a.verdict().value.late, ElementsAre("c"));
  t.Contribute({&t.a, &t.b, &t.c});
  EXPECT_EQ(t.a.verdict().value.divisor, 3u);
}

TEST(LeavingOut, InItsFirstRoundAWorkerIsAwaitedUntilItBegins) {
  Three t(Settings(1, 4, 3), LeavesOut());
  t.a.Contribute();
  t.b.Contribute();
  t.Sleep(absl::Seconds(4));
  EXPECT_EQ(t.a.lane().last, 0u);
  t.c.Begin();
  t.Sleep(kGrace + kLateEnough);
  EXPECT_EQ(t.a.verdict().value.divisor, 2u);
}

// A worker that had not begun the round serves its state only when its trainer has the result; see
// client/core/client_view.h.
TEST(LeavingOut, OthersJoinWithTheVerdict) {
  for (const bool begun : {false, true}) {
    LateThree t;
    t.Join("d");
    if (begun) t.c.Begin();
    t.Contribute({&t.a, &t.b});
    t.PassGrace();
    EXPECT_THAT(t.a.verdict().value.late, ElementsAre("c"));
    EXPECT_THAT(t.a.verdict().next.members, ElementsAre("a", "b", "c", "d"));
  }
}

// The next attempt needs the bytes of all again.
TEST(LeavingOut, WhoeverWasOnTimeIsAwaitedInTheNextAttempt) {
  for (const uint32_t percent : {30u, 50u}) {
    SCOPED_TRACE(percent);
    Config config = LeavesOut();
    config.quorum_percent = percent;
    LateThree t(Settings(1, 4, 3), config);
    const auto noted = [&t] { return std::get<0>(t.job().lanes[0].grace.Fields()).size(); };
    const size_t before = noted();
    t.b.repushes = false;
    t.Contribute({&t.a, &t.b});
    t.c.Begin();
    t.c.PushTensor(0);
    t.PassGrace();
    EXPECT_EQ(t.Notes(NoteKind::kAttemptRestarted), 1u);
    t.Sleep(absl::Seconds(4));
    EXPECT_EQ(t.Notes(NoteKind::kContributionLate), 1u);
    EXPECT_EQ(t.a.lane().last, 1u);
    t.b.PushTensor(0);
    EXPECT_EQ(t.a.lane().last, 2u);
    EXPECT_EQ(t.a.verdict().value.divisor, 2u);
    EXPECT_THAT(t.a.verdict().value.late, ElementsAre("c"));
    EXPECT_EQ(noted() - before, percent == 30 ? 2u : 1u) << "each of them is late once";
  }
}

// The workers of a node have one contribution.
TEST(LeavingOut, MinWorkersCountsThoseForWhomANodeContributes) {
  LateThree t(Settings(3, 4, 3));
  t.a.reduced_with = {"x"};
  t.Contribute({&t.a, &t.b});
  t.PassGrace();
  EXPECT_THAT(t.a.verdict().value.late, ElementsAre("c"));
}

TEST(LeavingOut, WhatWasReducedWithItIsReducedAgain) {
  LateThree t;
  t.Contribute({&t.a, &t.b});
  t.c.Begin();
  t.c.PushTensor(0);
  t.PassGrace();
  EXPECT_THAT(t.NoteText(NoteKind::kAttemptRestarted), HasSubstr("worker c is late"));
  EXPECT_EQ(t.a.lane().delivered[2].at({0, 0}), (Reduced{3, 2}));
  EXPECT_EQ(t.c.lane().delivered[2].at({1, 0}), (Reduced{3, 2}));
}

TEST(LeavingOut, WhatComesTooLateIsAnsweredAndNotCounted) {
  LateThree t;
  t.c.stages = false;  // The round stays open.
  t.Contribute({&t.a, &t.b});
  t.PassGrace();
  t.c.Contribute();
  EXPECT_EQ(t.c.rejected(), ErrorCode::kOk);
  t.c.Stage();
  EXPECT_EQ(t.c.verdict().value.divisor, 2u);
  EXPECT_EQ(t.kept_chunks(), 0u);
}

// What is complete so far fills the windows of the others, who cannot complete the rest.
TEST(LeavingOut, WhoeverHasNoRoomWaits) {
  Config config = LeavesOut();
  config.window_bytes = config.frame_bytes = kChunkBytes;
  Three t(Settings(1, 4, 3), config);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->obeys_windows = true;
  const auto push = [&](std::initializer_list<TestWorker*> workers) {
    for (TestWorker* worker : workers) {
      worker->Begin();
      worker->PushTensor(0);
      worker->PushTensor(1);
    }
  };
  push({&t.a, &t.b, &t.c});
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Commit();
  ASSERT_EQ(t.a.lane().last, 1u);
  push({&t.a, &t.b});
  t.Sleep(kGrace + kLateEnough);
  for (TestWorker* worker : {&t.a, &t.b}) worker->Commit();
  EXPECT_EQ(t.a.lane().last, 2u);
  EXPECT_THAT(t.c.verdict().value.late, ElementsAre("c"));
}

TEST(LeavingOut, AQuorumHasMinWorkers) {
  LateThree t(Settings(3, 4, 3));
  t.Contribute({&t.a, &t.b});
  t.Sleep(absl::Seconds(4));
  EXPECT_EQ(t.a.lane().last, 1u);
  t.Contribute({&t.c});
  EXPECT_EQ(t.a.verdict().value.divisor, 3u);
}

// The policy may be that of the aggregator, whose jobs have all of their workers in each round
// unless they say otherwise.
TEST(LeavingOut, AJobThatLeavesOutNobodyIsToldOnceWhenItForms) {
  const auto told = [](JobSettings settings, Config config) {
    LateThree t(settings, std::move(config));
    EXPECT_LE(t.Notes(NoteKind::kLatePolicyIdle), 1u);
    return t.Notes(NoteKind::kLatePolicyIdle) == 0 ? std::string()
                                                   : t.NoteText(NoteKind::kLatePolicyIdle);
  };
  EXPECT_EQ(told(Settings(2, 3, 3), LeavesOut()), "");
  EXPECT_EQ(told(Settings(3, 3, 3), Config()), "") << "its policy is another one";
  EXPECT_EQ(told(Settings(3, 3, 3), LeavesOut()),
            "The late policy leave_out leaves nobody out of the rounds of this job: no round goes "
            "on with fewer workers than min_workers, which is 3, and the job has no more. Start "
            "the workers with a lower min_workers (--min-workers, BASIN_MIN_WORKERS), or set it "
            "with `basinctl job set --min`.");
  Config most = LeavesOut();
  most.quorum_percent = 67;
  EXPECT_THAT(told(Settings(1, 3, 3), most), HasSubstr("is all of them. Set round.quorum_percent "
                                                       "to 66 or less."));
  most.quorum_percent = 66;
  EXPECT_EQ(told(Settings(1, 3, 3), most), "") << "two of three are enough";
}

// The workers of a node have one contribution.
TEST(LeavingOut, AJobOfNodesIsToldWhatCountsForNodes) {
  const auto told = [](uint32_t min_workers, uint32_t node, uint32_t quorum) {
    Config config = LeavesOut();
    config.quorum_percent = quorum;
    Cluster t(Settings(min_workers, 4, 4), std::move(config));
    uint32_t number = 0;
    for (const char* id : {"a", "b", "c", "d"}) {
      t.Worker(id).group = {absl::StrCat("node", number++ / node), node};
      t.Join(id);
    }
    return t.Notes(NoteKind::kLatePolicyIdle) == 0 ? std::string()
                                                   : t.NoteText(NoteKind::kLatePolicyIdle);
  };
  EXPECT_EQ(told(1, 2, 50), "") << "one of two nodes is enough";
  EXPECT_THAT(told(1, 2, 66), HasSubstr("a quorum of 66 percent of its 2 nodes is all of them. Set "
                                        "round.quorum_percent to 50 or less."));
  EXPECT_THAT(told(3, 2, 50), HasSubstr("min_workers, which is 3, and without the contribution of "
                                        "a node the job has 2. Start"));
  EXPECT_THAT(told(1, 4, 50), HasSubstr("its 4 workers reduce among themselves"));
}

TEST(LeavingOut, AnOperatorIsToldOfAPolicyThatLeavesOutNobody) {
  LateThree t(Settings(3, 3, 3), Config());
  SetJob set;
  set.job = kJob;
  set.late_policy = LatePolicy::kLeaveOut;
  t.Step(set);
  EXPECT_EQ(t.Notes(NoteKind::kLatePolicyIdle), 1u);
  set = SetJob();
  set.job = kJob;
  set.min_workers = 2;
  t.Step(set);
  EXPECT_EQ(t.Notes(NoteKind::kLatePolicyIdle), 1u);
}

TEST(LeavingOut, TheOtherPoliciesLeaveOutNobody) {
  LateThree t(Settings(1, 4, 3), Config());
  t.Contribute({&t.a, &t.b});
  t.Sleep(absl::Seconds(4));
  EXPECT_EQ(t.a.lane().last, 1u);
}

TEST(LeavingOut, CallsWaitForEveryone) {
  LateThree t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Register({Tensor("x")}, "call", LaneKind::kCall);
  }
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Contribute(Spec(ReduceOp::kAverage), "call");
  }
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute(Spec(ReduceOp::kAverage), "call");
  t.Sleep(absl::Seconds(4));
  EXPECT_EQ(t.a.lane("call").last, 1u);
}

TEST(LeavingOut, ANewSessionChangesNothing) {
  LateThree t;
  t.c.stages = false;
  t.Contribute({&t.a, &t.b});
  t.PassGrace();
  t.c.Cut();
  t.c.Connect();
  t.c.stages = true;
  t.c.Stage();
  EXPECT_THAT(t.c.verdict().value.late, ElementsAre("c"));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 0u);
}

// ---- what is deferred

// Three workers of which one was late for round 2.
struct OnceLate : LateThree {
  explicit OnceLate(JobSettings settings = Settings(1, 4, 3), Config config = Carries())
      : LateThree(settings, std::move(config)) {
    Contribute({&a, &b});
    PassGrace();
  }
  static Config Carries() {
    Config config = LeavesOut();
    config.late_policy = LatePolicy::kCarry;
    return config;
  }
};

// Each step is the mean of all gradients that are in it.
TEST(Deferred, IsCountedWithTheNextContributionOfItsWorker) {
  OnceLate t;
  EXPECT_THAT(t.c.verdict().value.late, ElementsAre("c"));
  EXPECT_TRUE(t.c.verdict().value.late_carries);
  t.c.deferred = 1;
  t.Contribute({&t.a, &t.b, &t.c});
  const RoundValue& value = t.a.verdict().value;
  EXPECT_EQ(value.divisor, 4u);
  EXPECT_EQ(TrainersOf(value), 3u) << "no worker stands for another one";
  ASSERT_EQ(value.contributors.size(), 3u);
  EXPECT_EQ(value.contributors[1].deferred, 0u);
  EXPECT_EQ(value.contributors[2].deferred, 1u);
  EXPECT_FALSE(value.late_carries) << "nobody was late";
  EXPECT_EQ(t.a.lane().delivered[3].at({0, 0}).divisor, 4u);
  EXPECT_THAT(t.job().lanes[0].past.back().deferred, ElementsAre("c"));
  EXPECT_EQ(t.Notes(NoteKind::kContributionDeferred), 1u);
  EXPECT_THAT(t.NoteText(NoteKind::kContributionDeferred), HasSubstr("for round 2"));
}

TEST(Deferred, WeightsAreThoseThatTheBeginCounts) {
  OnceLate t;
  const RoundSpec by_samples = Spec(ReduceOp::kWeightedAverage);
  t.a.Contribute(by_samples, kLane, {}, Counts{10, {}, {}});
  t.b.Contribute(by_samples, kLane, {}, Counts{10, {}, {}});
  t.c.deferred = 1;
  t.c.Contribute(by_samples, kLane, {}, Counts{20, {}, {}});
  EXPECT_EQ(t.a.verdict().value.divisor, 40u);
}

TEST(Deferred, ASumIsNotDivided) {
  OnceLate t;
  t.c.deferred = 1;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute(Spec(ReduceOp::kSum));
  EXPECT_EQ(t.a.verdict().value.divisor, 1u);
  EXPECT_EQ(t.a.verdict().value.contributors[2].deferred, 1u);
}

// What was counted would be counted twice, and what is older is of older parameters.
TEST(Deferred, IsRefusedWithoutAVerdictThatAllowsIt) {
  const auto refused = [](TestWorker& worker, const RoundSpec& spec) {
    worker.deferred = 1;
    worker.Begin(spec);
    return worker.rejected();
  };
  const RoundSpec average = Spec(ReduceOp::kAverage);
  {
    OnceLate t;
    EXPECT_EQ(refused(t.a, average), ErrorCode::kInvalidArgument) << "it was in time";
    t.Contribute({&t.b, &t.c});
    EXPECT_EQ(t.b.verdict().value.divisor, 2u) << "and it has withdrawn";
    EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 0u);
  }
  {
    OnceLate t;
    t.Contribute({&t.a, &t.b, &t.c});
    EXPECT_EQ(refused(t.c, average), ErrorCode::kInvalidArgument) << "one round has passed";
  }
  {
    OnceLate t(Settings(1, 4, 3), LeavesOut());
    EXPECT_EQ(refused(t.c, average), ErrorCode::kInvalidArgument) << "the policy drops it";
  }
  for (const RoundSpec& spec :
       {Spec(ReduceOp::kMax), Spec(ReduceOp::kAverage, Denominator::kPresent)}) {
    OnceLate t;
    EXPECT_EQ(refused(t.c, spec), ErrorCode::kInvalidArgument) << "it cannot be added";
  }
}

// A contribution that has another one is late as a whole.
TEST(Deferred, IsLostIfItIsLateAgain) {
  OnceLate t;
  t.c.deferred = 1;
  t.c.Begin();
  t.Contribute({&t.a, &t.b});
  t.PassGrace();
  const RoundValue& value = t.a.verdict().value;
  EXPECT_EQ(value.divisor, 2u);
  EXPECT_THAT(value.late, ElementsAre("c"));
  EXPECT_THAT(t.NoteText(NoteKind::kContributionLate), HasSubstr("in this contribution, is lost."));
  EXPECT_EQ(t.Notes(NoteKind::kContributionDeferred), 0u);
  t.Contribute({&t.a, &t.b, &t.c});
  EXPECT_EQ(t.a.verdict().value.divisor, 4u) << "that of round 3 is in round 4";
}

TEST(Deferred, ANewSessionRepeatsIt) {
  OnceLate t;
  t.c.deferred = 1;
  t.c.Begin();
  t.c.Cut();
  t.c.Connect();
  for (const TensorIndex tensor : {0u, 1u}) t.c.PushTensor(tensor);
  t.c.Commit();
  t.Contribute({&t.a, &t.b});
  EXPECT_EQ(t.a.verdict().value.divisor, 4u);
}

// The next aggregator knows the verdict from the hellos.
TEST(Deferred, Fault_A1_AnotherAggregatorCountsIt) {
  OnceLate t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->fresh = false;
  t.c.deferred = 1;
  t.c.Begin();
  t.Crash(5000);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Connect();
  for (const TensorIndex tensor : {0u, 1u}) t.c.PushTensor(tensor);
  t.c.Commit();
  t.Contribute({&t.a, &t.b});
  EXPECT_EQ(t.a.verdict().value.divisor, 4u);
}

// Those who come may have joined after that verdict. The late worker has it, and its library has
// looked.
TEST(Deferred, Fault_A1_AnAggregatorThatKnowsNoVerdictBelievesTheWorker) {
  OnceLate t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->fresh = false;
    worker->lane().verdicts.clear();
  }
  t.Crash(5000);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Connect();
  ASSERT_EQ(t.job().state(), JobState::kRunning);
  ASSERT_TRUE(t.job().lanes[0].verdicts.empty());
  t.c.deferred = 1;
  t.Contribute({&t.a, &t.b, &t.c});
  EXPECT_EQ(t.a.verdict().value.divisor, 4u);
}

TEST(GraceTest, FollowsHowLateContributionsWere) {
  Grace grace;
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(grace.Window(kGrace), kGrace) << "too little is known";
    grace.Add(absl::Seconds(1));
  }
  EXPECT_EQ(grace.Window(kGrace), kGrace);
  grace.Add(absl::Seconds(1));
  EXPECT_EQ(grace.Window(kGrace), absl::Seconds(1));
  for (int i = 0; i < 16; ++i) grace.Add(absl::Milliseconds(10));
  EXPECT_EQ(grace.Window(kGrace), kGrace) << "never less than the option";
  // Less than half of them do not change the median.
  for (int i = 0; i < 7; ++i) grace.Add(absl::Seconds(1));
  EXPECT_EQ(grace.Window(kGrace), kGrace);
  for (int i = 0; i < 4; ++i) grace.Add(absl::Milliseconds(200));
  for (int i = 0; i < 5; ++i) grace.Add(absl::Milliseconds(220));
  // The median of 1 s seven times, 200 ms four times and 220 ms five times is 220 ms; of the
  // distances from it, 20 ms.
  EXPECT_EQ(grace.Window(kGrace), absl::Milliseconds(280));
  for (int i = 0; i < 16; ++i) grace.Add(absl::Minutes(1));
  EXPECT_EQ(grace.Window(kGrace), 16 * kGrace) << "never more than 16 times the option";
}

// A worker that is late in each round by the same is counted again soon.
TEST(LeavingOut, AGraceThatIsTooShortForMostGrows) {
  LateThree t;
  int left_out = 0;
  for (; left_out < 40; ++left_out) {
    const RoundNumber before = t.a.lane().last;
    t.Contribute({&t.a, &t.b});
    t.c.Begin();
    t.Sleep(absl::Milliseconds(250));
    if (t.a.lane().last == before) break;  // The round still waits for it.
  }
  EXPECT_GT(left_out, 0);
  EXPECT_LT(left_out, 24);
  for (const TensorIndex tensor : {0u, 1u}) t.c.PushTensor(tensor);
  t.c.Commit();
  EXPECT_EQ(t.a.verdict().value.divisor, 3u);
}

}  // namespace
}  // namespace basin::aggregator
