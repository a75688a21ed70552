// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One round: which contributions count, by what they are divided, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/core/spec.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The members a, b and c contribute 1, 2 and 4; the tensors w and b have one chunk each.
TEST(Round, IsCommittedOverEveryMember) {
  Three t;
  t.a.Contribute();
  t.b.Contribute();
  EXPECT_TRUE(t.a.lane().verdicts.empty());
  t.c.Contribute();
  const VerdictRecord& record = t.a.verdict();
  EXPECT_EQ(record.round, 1u);
  EXPECT_EQ(record.value.outcome, Outcome::kCommitted);
  EXPECT_EQ(record.value.divisor, 3u);
  EXPECT_THAT(record.value.tensor_divisors, IsEmpty());
  EXPECT_EQ(record.value.contributors.size(), 3u);
  EXPECT_EQ(t.b.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
  EXPECT_EQ(t.c.lane().delivered[1].at({1, 0}), (Reduced{7, 3}));
  EXPECT_EQ(t.a.lane().chain, t.c.lane().chain);
  EXPECT_EQ(t.kept_chunks(), 0u);
  EXPECT_EQ(t.held_results(), 0u);
  EXPECT_EQ(t.Notes(NoteKind::kRoundCommitted), 1u);
}

TEST(Round, RunsAfterRound) {
  Three t;
  for (RoundNumber number = 1; number <= 5; ++number) {
    for (TestWorker* worker : {&t.c, &t.a, &t.b}) worker->Contribute();
    EXPECT_EQ(t.a.lane().last, number);
    EXPECT_EQ(t.a.lane().delivered[number].at({0, 0}), (Reduced{7, 3}));
  }
}

TEST(Round, TheSumHasNoDivisor) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute(Spec(ReduceOp::kSum));
  EXPECT_EQ(t.a.verdict().value.divisor, 1u);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 1}));
}

TEST(Round, FramesMayPrecedeTheirBegin) {
  Three t;
  t.a.SendFrame(1, {0, 0, 1});
  EXPECT_FALSE(t.round()->begun());
  EXPECT_EQ(t.kept_chunks(), 1u);
  t.a.Begin();
  t.a.lane().pushed = {{0, 0}};
  t.a.PushTensor(1);
  t.a.Commit();
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
}

TEST(Round, IsReducedChunkByChunkAsSoonAsEveryoneHasPushedIt) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Begin();
  t.ClearLog();
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->PushTensor(1);
  ASSERT_EQ(t.Actions<Reduce>().size(), 1u);
  EXPECT_EQ(t.Actions<Reduce>()[0].ranges, (ChunkRanges{{1, 0, 1}}));
  EXPECT_EQ(t.Actions<Publish>().size(), 1u) << "it is published before any commit";
}

TEST(Round, NothingIsReducedBeforeEveryoneHasBegun) {
  Three t;
  t.a.Begin();
  t.b.Begin();
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->PushTensor(0);
  EXPECT_THAT(t.Actions<Reduce>(), IsEmpty());
  t.c.Begin();
  t.c.lane().pushed = {{0, 0}};
  EXPECT_EQ(t.Actions<Reduce>().size(), 1u);
}

// ---- frames of several tensors

Config WithLists() {
  Config config;
  config.frame_tensors = 1024;
  return config;
}

// Three workers that have begun a round of small tensors. Their clients take frames of several
// tensors, unless c lacks the feature.
struct Many : Cluster {
  explicit Many(uint64_t features_of_c = kFeatureRuns)
      : Cluster(Settings(1, 4, 3), WithLists()),
        a(Add("a", kFeatureRuns)),
        b(Add("b", kFeatureRuns)),
        c(Add("c", features_of_c)) {
    for (TestWorker* worker : {&a, &b, &c}) worker->Begin();
    ClearLog();
  }
  TestWorker& Add(const char* id, uint64_t features) {
    TestWorker& worker = Worker(id);
    worker.features = features;
    worker.Connect();
    worker.Register(
        {{"t0", DType::kF32, {10}}, {"t1", DType::kF32, {20}}, {"t2", DType::kF32, {30}}});
    worker.Ready();
    return worker;
  }
  TestWorker& a;
  TestWorker& b;
  TestWorker& c;
};

const ChunkRanges kAllThree = {{0, 0, 1}, {1, 0, 1}, {2, 0, 1}};

TEST(Lists, AFrameOfSmallTensorsIsOneOfEverything) {
  Many t;
  t.a.inbox.clear();
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->SendTensors(1, kAllThree);
  EXPECT_EQ(t.a.Count<Credit>(), 1u);
  EXPECT_EQ(t.a.Last<Credit>().acked.size(), 3u);
  ASSERT_EQ(t.Actions<Reduce>().size(), 1u);
  EXPECT_EQ(t.Actions<Reduce>()[0].ranges, kAllThree);
  ASSERT_EQ(t.Actions<Publish>().size(), 1u);
  EXPECT_EQ(t.Actions<Publish>()[0].ranges, kAllThree);
  EXPECT_EQ(t.Actions<Publish>()[0].bytes, 240u);
  EXPECT_EQ(t.Actions<Publish>()[0].sessions.size(), 3u);
}

TEST(Lists, AWorkerWithoutThemGetsOneFrameForEachTensor) {
  Many t(0);
  for (TestWorker* worker : {&t.a, &t.b}) worker->SendTensors(1, kAllThree);
  for (const ChunkRange& range : kAllThree) t.c.SendFrame(1, range);
  std::map<size_t, size_t> receivers;  // By the number of tensors in a frame.
  for (const Publish& publish : t.Actions<Publish>()) {
    receivers[publish.ranges.size()] += publish.sessions.size();
  }
  EXPECT_EQ(receivers[1], 9u) << "c sent single tensors, so each was reduced alone";
  t.c.inbox.clear();
  t.c.SendTensors(1, kAllThree);
  EXPECT_EQ(t.c.rejected(), ErrorCode::kInvalidArgument);
}

TEST(Lists, Fault_N10_OnesThatDoNotFitTheLayoutAreRefused) {
  Many t;
  for (const ChunkRanges& wrong :
       {ChunkRanges{{1, 0, 1}, {0, 0, 1}}, ChunkRanges{{1, 0, 1}, {1, 0, 1}},
        ChunkRanges{{0, 0, 1}, {1, 1, 1}}, ChunkRanges{{0, 0, 1}, {3, 0, 1}}, ChunkRanges{}}) {
    FrameReceived frame;
    frame.session = t.a.session;
    frame.round = 1;
    frame.ranges = wrong;
    frame.bytes = 120;
    frame.digests = ChunkDigests(wrong.size(), 1);
    t.a.inbox.clear();
    t.Step(frame);
    EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(t.kept_chunks(), 0u);
}

TEST(Lists, TensorsThatOthersSkipAreReducedApart) {
  Many t;
  t.c.Skip({1});
  for (TestWorker* worker : {&t.a, &t.b}) worker->SendTensors(1, kAllThree);
  t.c.SendTensors(1, {{0, 0, 1}, {2, 0, 1}});
  std::vector<ChunkRanges> reduced;
  for (const Reduce& reduce : t.Actions<Reduce>()) {
    reduced.push_back(reduce.ranges);
    EXPECT_EQ(reduce.skipped.size(), reduce.ranges.front().tensor == 1 ? 1u : 0u);
  }
  EXPECT_THAT(reduced, ElementsAre(ChunkRanges{{1, 0, 1}}, ChunkRanges{{0, 0, 1}, {2, 0, 1}}));
}

TEST(Lists, ASkippedTensorOfAFrameIsRefusedAndTheOthersCount) {
  Many t;
  t.a.Skip({1});
  t.a.inbox.clear();
  t.a.SendTensors(1, kAllThree);
  EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(t.kept_chunks(), 2u);
  EXPECT_EQ(t.a.Last<Credit>().acked.size(), 3u);
}

// ---- skips and divisors

TEST(Skips, Criterion_3_5_AbsentFromTheCommitIsSkipped) {
  Three t;
  t.a.Contribute(Spec(ReduceOp::kAverage), kLane, {1});
  t.b.Contribute(Spec(ReduceOp::kAverage), kLane, {0});
  t.c.Contribute();
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{5, 3}))
      << "with denominator ALL, b counts with zeros";
  EXPECT_EQ(t.a.lane().delivered[1].at({1, 0}), (Reduced{6, 3}));
  EXPECT_EQ(t.a.verdict().value.divisor, 3u);
  EXPECT_THAT(t.a.verdict().value.tensor_divisors, IsEmpty());
}

TEST(Skips, Criterion_3_5_PresentDividesByThoseWhoPushed) {
  Three t;
  const RoundSpec spec = Spec(ReduceOp::kAverage, Denominator::kPresent);
  t.a.Contribute(spec, kLane, {1});
  t.b.Contribute(spec, kLane, {1});
  t.c.Contribute(spec);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
  EXPECT_EQ(t.a.lane().delivered[1].at({1, 0}), (Reduced{4, 1}));
  EXPECT_EQ(t.a.verdict().value.divisor, 3u);
  EXPECT_THAT(t.a.verdict().value.tensor_divisors, ElementsAre(TensorDivisor{1, 1}));
}

TEST(Skips, Criterion_3_5_WhatEveryoneSkipsHasNoResult) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Contribute(Spec(ReduceOp::kAverage), kLane, {1});
  }
  EXPECT_THAT(t.a.verdict().value.tensor_divisors, ElementsAre(TensorDivisor{1, 0}));
  EXPECT_FALSE(HasResult(t.a.verdict().value, 1));
  EXPECT_EQ(t.a.lane().delivered[1].count({1, 0}), 0u);
}

TEST(Skips, Criterion_3_5_ADeclaredSkipCompletesTheTensorBeforeAnyCommit) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Begin();
  t.a.PushTensor(0);
  t.b.PushTensor(0);
  EXPECT_THAT(t.Actions<Reduce>(), IsEmpty());
  t.c.Skip({0});
  ASSERT_EQ(t.Actions<Reduce>().size(), 1u);
  EXPECT_THAT(t.Actions<Reduce>()[0].skipped, ElementsAre(2u));
}

TEST(Skips, ARoundThatEveryoneSkipsIsCommitted) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Contribute(Spec(ReduceOp::kAverage), kLane, {0, 1});
  }
  EXPECT_EQ(t.a.verdict().value.outcome, Outcome::kCommitted);
  EXPECT_THAT(t.a.lane().delivered[1], IsEmpty());
}

TEST(Skips, APushedTensorCannotBeSkippedNorASkippedOnePushed) {
  Three t;
  t.a.Begin();
  t.a.PushTensor(0);
  t.a.Skip({0});
  EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
  t.a.inbox.clear();
  t.a.Skip({1});
  EXPECT_EQ(t.a.rejected(), ErrorCode::kOk);
  t.a.SendFrame(1, {1, 0, 1});
  EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(t.a.Last<Rejected>().error.text, HasSubstr("The skip holds"));
  // The push and the skip stand.
  t.a.Commit();
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
  EXPECT_EQ(t.a.lane().delivered[1].at({1, 0}), (Reduced{6, 3}));
}

// ---- weights

Counts Samples(uint64_t count) {
  Counts counts;
  counts.samples = count;
  return counts;
}

TEST(Weights, Criterion_3_2_TheDivisorIsTheSumOfTheWeights) {
  Three t;
  const RoundSpec spec = Spec(ReduceOp::kWeightedAverage);
  t.a.Contribute(spec, kLane, {}, Samples(8));
  t.b.Contribute(spec, kLane, {}, Samples(16));
  t.c.Contribute(spec, kLane, {1}, Samples(2));
  const RoundValue& value = t.a.verdict().value;
  EXPECT_EQ(value.divisor, 26u);
  EXPECT_EQ(value.contributors[1].weight, 16u);
  EXPECT_EQ(value.facts.totals.samples, 26u) << "this is the effective batch of the step";
  EXPECT_EQ(value.facts.totals.tokens, std::nullopt);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{1 * 8 + 2 * 16 + 4 * 2, 26}));
}

TEST(Weights, PresentCountsTheWeightOfThoseWhoPushed) {
  Three t;
  const RoundSpec spec = Spec(ReduceOp::kWeightedAverage, Denominator::kPresent);
  t.a.Contribute(spec, kLane, {}, Samples(8));
  t.b.Contribute(spec, kLane, {1}, Samples(16));
  t.c.Contribute(spec, kLane, {}, Samples(2));
  EXPECT_THAT(t.a.verdict().value.tensor_divisors, ElementsAre(TensorDivisor{1, 10}));
}

TEST(Weights, Fault_W11_ZeroIsAllowedAndCountsForNothing) {
  Three t;
  const RoundSpec spec = Spec(ReduceOp::kWeightedAverage);
  t.a.Contribute(spec, kLane, {}, Samples(0));
  t.b.Contribute(spec, kLane, {}, Samples(3));
  t.c.Contribute(spec, kLane, {}, Samples(1));
  EXPECT_EQ(t.a.verdict().value.divisor, 4u);
  EXPECT_EQ(t.a.verdict().value.contributors[0].weight, 0u);
}

TEST(Weights, Criterion_3_3_WeightsThatSumToZeroGiveNoResult) {
  Three t;
  const RoundSpec spec = Spec(ReduceOp::kWeightedAverage);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute(spec, kLane, {}, Samples(0));
  EXPECT_EQ(t.a.verdict().value.outcome, Outcome::kCommitted);
  EXPECT_EQ(t.a.verdict().value.divisor, 0u);
  EXPECT_FALSE(HasResult(t.a.verdict().value, 0));
  EXPECT_EQ(t.a.verdict().value.digest, 0u);
}

TEST(Weights, Criterion_3_1_TheEffectiveBatchIsReported) {
  Three t;
  Counts counts;
  counts.samples = 16;
  counts.tokens = 100;
  counts.micro_batches = 2;
  t.a.Contribute(Spec(ReduceOp::kAverage), kLane, {}, counts);
  t.b.Contribute(Spec(ReduceOp::kAverage), kLane, {}, counts);
  t.c.Send(Leave{});
  EXPECT_EQ(t.a.verdict().value.facts.totals, (Counts{32, 200, 4}))
      << "only contributors are counted";
}

TEST(Weights, Criterion_3_1_OneLostOf512IsSeenInTheBatchOfThatVeryStep) {
  constexpr int kWorkers = 512;
  Cluster t(Settings(1, kWorkers, kWorkers));
  std::vector<TestWorker*> workers;
  for (int i = 0; i < kWorkers; ++i) workers.push_back(&t.Join(absl::StrCat("w", i)));
  Counts counts;  // Two micro-batches of 8.
  counts.samples = 16;
  counts.micro_batches = 2;
  TestWorker* const lost = workers.back();
  for (TestWorker* worker : workers) {
    worker->Contribute(Spec(ReduceOp::kAverage), kLane, {}, counts);
  }
  const RoundValue whole = workers.front()->verdict().value;
  EXPECT_EQ(whole.facts.totals, (Counts{8192, std::nullopt, 1024}));
  EXPECT_EQ(whole.divisor, 512u);
  workers.pop_back();
  for (TestWorker* worker : workers) {
    worker->Contribute(Spec(ReduceOp::kAverage), kLane, {}, counts);
  }
  t.Step(WorkerExited{kJob, lost->id});
  const RoundValue without = workers.front()->verdict().value;
  EXPECT_EQ(without.facts.totals, (Counts{8176, std::nullopt, 1022}));
  EXPECT_EQ(without.divisor, 511u);
}

// ---- begin

TEST(Begin, Fault_W11_WhatCannotBeComputedIsRefusedAndTheOthersGoOn) {
  const auto with = [](auto&& change) {
    RoundSpec spec = Spec(ReduceOp::kSum);
    change(spec);
    return spec;
  };
  const double nan = std::nan("");
  const std::pair<RoundSpec, const char*> cases[] = {
      {with([](RoundSpec& s) { s.op = ReduceOp::kUnspecified; }), "names no op"},
      {with([&](RoundSpec& s) { s.prescale = nan; }), "has prescale nan"},
      {with([](RoundSpec& s) { s.postscale = 0; }), "has postscale 0"},
      {with([](RoundSpec& s) { s.predivide = -2; }), "has predivide -2"},
      {with([](RoundSpec& s) { s.loss_scale = -1; }), "has loss scale -1"},
      {with([](RoundSpec& s) { s.weight_by = WeightBy::kTokens; }), "gives weights to op SUM"},
      {with([](RoundSpec& s) { s.op = ReduceOp::kWeightedAverage; }), "without a weight"},
      {Spec(ReduceOp::kWeightedAverage), "without the count"},
      {with([](RoundSpec& s) { s.op = ReduceOp::kMax, s.predivide = 2; }), "has no meaning there"},
  };
  for (const auto& [spec, text] : cases) {
    Three t;
    t.c.Begin(spec);
    EXPECT_EQ(t.c.rejected(), ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(t.c.Last<Rejected>().error.text, HasSubstr(text));
    t.a.Contribute();
    t.b.Contribute();
    EXPECT_EQ(t.a.verdict().value.divisor, 2u) << text;
    EXPECT_EQ(t.c.lane().last, 1u) << "it stages and applies the result";
  }
}

TEST(Begin, Fault_W11_ACountThatCouldWrapTheSumIsRefused) {
  RoundSpec spec = Spec(ReduceOp::kWeightedAverage);
  spec.weight_by = WeightBy::kSamples;
  Three t;
  // Counts that are not the weight are bounded too, because their totals are also sums.
  t.c.Begin(spec, kLane, Counts{1, ~uint64_t{0}, 1});
  EXPECT_EQ(t.c.rejected(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      t.c.Last<Rejected>().error.text,
      "Job job, lane model, round 1: the begin of worker c counts 18446744073709551615 "
      "tokens, more than 2^48, 281474976710656, which is the limit; count in a coarser unit.");
  t.a.Contribute(spec, kLane, {}, Counts{kMaxCount, 3, 1});
  t.b.Contribute(spec, kLane, {}, Counts{kMaxCount, 4, 1});
  const RoundValue& value = t.a.verdict().value;
  EXPECT_EQ(value.divisor, 2 * kMaxCount) << "two workers with the largest count";
  EXPECT_EQ(value.facts.totals, (Counts{2 * kMaxCount, 7, 2}));
  EXPECT_EQ(t.c.lane().last, 1u) << "it stages and applies the result";
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute(spec, kLane, {}, Samples(1));
  EXPECT_EQ(t.a.verdict().value.divisor, 3u) << "the refusal was only for that round";
}

TEST(Begin, Criterion_1_1_AMismatchNamesBothWorkersAndValues) {
  Three t;
  t.a.Contribute(Spec(ReduceOp::kSum));
  t.b.Contribute(Spec(ReduceOp::kSum));
  t.c.Begin(Spec(ReduceOp::kAverage));
  EXPECT_EQ(t.c.rejected(), ErrorCode::kMismatch);
  EXPECT_THAT(t.c.Last<Rejected>().error.text,
              HasSubstr("worker c began with op AVERAGE against SUM of worker a"));
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 2u);
  EXPECT_EQ(t.c.lane().last, 1u);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{3, 1}));
}

TEST(Begin, ARefusalIsRepeatedOnTheNextSession) {
  Three t;
  t.a.stages = false;
  t.a.Contribute(Spec(ReduceOp::kSum));
  t.b.Contribute(Spec(ReduceOp::kSum));
  t.c.Begin(Spec(ReduceOp::kAverage));
  ASSERT_EQ(t.c.Count<Rejected>(), 1u);
  t.c.Cut();  // The refusal may be lost.
  t.c.Connect();
  EXPECT_EQ(t.c.Count<Rejected>(), 2u);
  EXPECT_EQ(t.c.rejected(), ErrorCode::kMismatch);
}

TEST(Begin, ATieGoesToTheLowestWorkerId) {
  Cluster t(Settings(1, 2, 2));
  t.Join("a");
  t.Join("b");
  t["b"].Contribute(Spec(ReduceOp::kSum));
  t["a"].Contribute(Spec(ReduceOp::kAverage));
  EXPECT_EQ(t["b"].rejected(), ErrorCode::kMismatch);
  EXPECT_EQ(t["a"].verdict().value.spec.op, ReduceOp::kAverage);
}

TEST(Begin, TheLanesLastCommittedRoundIsTheReference) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute(Spec(ReduceOp::kSum));
  t.a.Contribute(Spec(ReduceOp::kAverage));
  t.b.Contribute(Spec(ReduceOp::kAverage));
  t.c.Contribute(Spec(ReduceOp::kSum));
  EXPECT_EQ(t.a.rejected(), ErrorCode::kMismatch);
  EXPECT_EQ(t.b.rejected(), ErrorCode::kMismatch);
  EXPECT_EQ(t.c.verdict().value.contributors.size(), 1u);
}

TEST(Begin, WorkersAtAnotherStepAreRefusedWithBothNumbers) {
  Three t;
  t.a.step = t.b.step = t.c.step = 7;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u);
  t.b.step = t.c.step = 8;  // Worker a has skipped a step.
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.rejected(), ErrorCode::kMismatch);
  EXPECT_THAT(t.a.Last<Rejected>().error.text,
              HasSubstr("round 2: worker a is at step 7, but worker b is at step 8"));
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 2u);
  EXPECT_EQ(t.a.lane().last, 2u) << "it stages and applies the result";
}

TEST(Begin, ATieOfStepsGoesToTheLowestWorkerId) {
  Cluster t(Settings(1, 2, 2));
  t.Join("a");
  t.Join("b");
  t["b"].step = 4;
  t["a"].step = 3;
  t["b"].Contribute();
  t["a"].Contribute();
  EXPECT_EQ(t["b"].rejected(), ErrorCode::kMismatch);
  EXPECT_EQ(t["a"].Count<Rejected>(), 0u);
}

TEST(Begin, DifferentUnnamedCallsEndTheRoundForAllAndNameBothSides) {
  Three t;
  t.a.call = t.b.call = t.c.call = "SUM of f32[2]";
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u);
  t.b.call = "MAX of i64[]";  // It has left out a call.
  t.a.Contribute();
  t.b.Contribute();
  t.c.Begin();
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    EXPECT_EQ(worker->lane().last, 2u) << worker->id;
    EXPECT_EQ(worker->verdict().value.outcome, Outcome::kAborted);
    EXPECT_EQ(worker->verdict().value.abort_cause, AbortCause::kMismatch);
    EXPECT_THAT(worker->verdict().value.reason,
                HasSubstr("worker a calls SUM of f32[2], but worker b calls MAX of i64[]. "));
    EXPECT_THAT(worker->verdict().value.reason, HasSubstr("make the same call on all workers"));
    EXPECT_EQ(worker->Count<Rejected>(), 0u);
  }
  t.b.call = "SUM of f32[2]";
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u) << "the next call is matched again";
}

TEST(Begin, UnnamedCallsAreComparedOnlyAmongThoseWhoseContributionsCount) {
  Three t;
  t.a.call = "SUM of f32[2]";
  t.b.call = t.c.call = "MAX of i64[]";
  t.a.Begin();
  t.a.Withdraw();
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 2u);
}

TEST(Begin, StepsAreComparedOnlyAmongThoseWhoseContributionsCount) {
  Three t;
  t.a.step = 1;
  t.b.step = 2;
  t.a.Begin();
  t.a.Withdraw();  // Its step does not matter.
  t.b.Contribute();
  t.c.Contribute();  // It does not say its step.
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 2u);
  EXPECT_EQ(t.b.Count<Rejected>(), 0u);
  EXPECT_EQ(t.c.Count<Rejected>(), 0u);
}

TEST(Begin, EveryFieldOfTheSpecIsCompared) {
  const std::pair<std::function<void(RoundSpec&)>, const char*> cases[] = {
      {[](RoundSpec& s) { s.prescale = 2; }, "prescale 2 against 1"},
      {[](RoundSpec& s) { s.prescale = 1 + 0x1p-52; }, "prescale 1.0000000000000002 against 1"},
      {[](RoundSpec& s) { s.postscale = 2; }, "postscale 2 against 1"},
      {[](RoundSpec& s) { s.predivide = 2; }, "predivide 2 against 1"},
      {[](RoundSpec& s) { s.auto_predivide = true; }, "predivide AUTO against 1"},
      {[](RoundSpec& s) { s.loss_scale = 2; }, "loss scale 2 against 1"},
      {[](RoundSpec& s) { s.layout = 0xbeef; }, "layout of tensors beef against 0"},
      {[](RoundSpec& s) { s.kind = ContributionKind::kSum; }, "contribution kind SUM against MEAN"},
      {[](RoundSpec& s) { s.denominator = Denominator::kPresent; },
       "denominator PRESENT against ALL"},
  };
  for (const auto& [change, text] : cases) {
    Three t;
    RoundSpec other = Spec(ReduceOp::kAverage);
    change(other);
    t.a.Begin();
    t.b.Begin();
    t.c.Begin(other);
    EXPECT_THAT(t.c.Last<Rejected>().error.text, HasSubstr(text));
  }
  const std::pair<WeightBy, const char*> weights[] = {
      {WeightBy::kTokens, "weights by tokens against samples"},
      {WeightBy::kMicroBatches, "weights by micro-batches against samples"},
  };
  for (const auto& [by, text] : weights) {
    Three t;
    RoundSpec other = Spec(ReduceOp::kWeightedAverage);
    other.weight_by = by;
    const Counts counts{1, 1, 1};
    t.a.Begin(Spec(ReduceOp::kWeightedAverage), kLane, counts);
    t.b.Begin(Spec(ReduceOp::kWeightedAverage), kLane, counts);
    t.c.Begin(other, kLane, counts);
    EXPECT_THAT(t.c.Last<Rejected>().error.text, HasSubstr(text));
  }
}

// Clients make the upper half of the hash from the tensors, and the lower one from all of it.
TEST(Begin, TheHalfOfTheLayoutThatDiffersSaysWhatDiffers) {
  Three t;
  RoundSpec spec = Spec(ReduceOp::kAverage);
  spec.layout = 0x7'0000'0001;
  t.a.Begin(spec);
  t.b.Begin(spec);
  spec.layout = 0x7'0000'0002;
  t.c.Begin(spec);
  EXPECT_THAT(t.c.Last<Rejected>().error.text,
              HasSubstr("numbers of the optimizer, or parameters 700000002 against 700000001"));
}

TEST(Begin, Criterion_5_2_AutoPredivideIsResolvedPerRoundAndReported) {
  Three t;
  RoundSpec spec = Spec(ReduceOp::kAverage);
  spec.auto_predivide = true;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute(spec);
  EXPECT_EQ(t.a.verdict().value.spec.predivide, 2.0) << "the power of two nearest sqrt(3)";
  t.b.Send(Leave{});
  t.c.Send(Leave{});
  t.a.Contribute(spec);
  EXPECT_EQ(t.a.rejected(), ErrorCode::kOk) << "the request is the same as before";
  EXPECT_EQ(t.a.verdict().value.spec.predivide, 1.0);
}

TEST(Begin, Criterion_5_2_AutoPredivideIsThePowerOfTwoNearestToTheRoot) {
  EXPECT_EQ(AutoPredivide(0), 1);
  for (uint64_t n = 1; n <= 20000; ++n) {
    const double f = AutoPredivide(n);
    int exponent;
    ASSERT_EQ(std::frexp(f, &exponent), 0.5) << n;
    const double root = std::sqrt(static_cast<double>(n));
    ASSERT_LE(std::fabs(f - root), std::fabs(2 * f - root)) << n;
    if (f > 1) {
      ASSERT_LT(std::fabs(f - root), std::fabs(f / 2 - root)) << n;
    }
  }
}

TEST(Begin, IntegersAreNotAveraged) {
  Cluster t(Settings(1, 2, 2));
  for (const char* id : {"a", "b"}) {
    t.Worker(id).Connect();
    t[id].Register({{"steps", DType::kI64, {4}}, {"w", DType::kF32, {4}}});
    t[id].Ready();
  }
  t["a"].Begin();
  t["a"].PushTensor(0);
  EXPECT_EQ(t["a"].rejected(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(t["a"].Last<Rejected>().error.text, HasSubstr("integers (i64) have no AVERAGE"));
  t["b"].Contribute(Spec(ReduceOp::kAverage), kLane, {0});
  EXPECT_EQ(t["b"].verdict().value.contributors.size(), 1u);
  // The refusal comes even if the bytes arrive before the begin. A sum is possible.
  t["a"].SendFrame(2, {0, 0, 1});
  t["a"].Begin();
  EXPECT_EQ(t["a"].Count<Rejected>(), 2u);
  t["b"].Contribute(Spec(ReduceOp::kAverage), kLane, {0});
  RoundSpec scaled = Spec(ReduceOp::kSum);
  scaled.prescale = 2;
  t["a"].Begin(scaled);
  t["a"].PushTensor(0);
  EXPECT_THAT(t["a"].Last<Rejected>().error.text, HasSubstr("take no scale"));
  t["b"].Contribute(Spec(ReduceOp::kSum));
  EXPECT_EQ(t["b"].lane().last, 3u);
  EXPECT_EQ(t["b"].verdict().value.outcome, Outcome::kCommitted);
}

TEST(Begin, EightBitFloatsAreNotReducedYet) {
  Cluster t(Settings(1, 1, 1));
  t.Worker("a").Connect();
  t["a"].Register({{"w", DType::kF8E4M3FN, {4}}});
  t["a"].Ready();
  t["a"].Begin(Spec(ReduceOp::kSum));
  t["a"].PushTensor(0);
  EXPECT_THAT(t["a"].Last<Rejected>().error.text, HasSubstr("send it as f16 or bf16"));
  EXPECT_EQ(t["a"].verdict().value.outcome, Outcome::kAborted);
}

// ---- frames

TEST(Frames, Fault_W7_ADuplicateIsAcknowledgedAndCountedOnce) {
  Three t;
  t.a.Begin();
  t.a.PushTensor(0);
  t.a.PushTensor(0);
  const Credit second = t.a.Last<Credit>();
  EXPECT_THAT(second.acked, ElementsAre(ChunkRange{0, 0, 1}));
  EXPECT_EQ(t.Notes(NoteKind::kFrameDuplicate), 1u);
  t.a.PushTensor(1);
  t.a.Commit();
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
}

TEST(Frames, OtherBytesForTheSameChunkAreRefusedAndTheFirstStay) {
  Three t;
  t.a.Begin();
  t.a.PushTensor(0);
  t.a.value = 64;
  t.a.SendFrame(1, {0, 0, 1});
  EXPECT_EQ(t.a.rejected(), ErrorCode::kContributionChanged);
  t.a.value = 1;
  t.a.PushTensor(1);
  t.a.Commit();
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
}

TEST(Frames, Fault_W8_AFrameForARoundWithAVerdictIsStale) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.ClearLog();
  t.a.SendFrame(1, {0, 0, 1});
  EXPECT_EQ(t.Notes(NoteKind::kFrameStale), 1u);
  EXPECT_THAT(t.a.Last<Credit>().acked, ElementsAre(ChunkRange{0, 0, 1}));
  EXPECT_EQ(t.a.Last<Credit>().round, 1u);
  EXPECT_EQ(t.kept_chunks(), 0u);
  EXPECT_EQ(t.round(), nullptr) << "the frame opens no round";
}

TEST(Frames, Fault_W9_AFrameForARoundAheadIsRefused) {
  Three t;
  t.a.SendFrame(2, {0, 0, 1});
  EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(t.a.Last<Rejected>().error.text, HasSubstr("while round 1 has no verdict"));
  EXPECT_EQ(t.kept_chunks(), 0u);
}

TEST(Frames, BeyondTheWindowAreRefusedAndPushedAgain) {
  Config config;
  config.window_bytes = config.result_window_bytes = config.frame_bytes = kChunkBytes;
  Three t(Settings(1, 3, 3), config);
  EXPECT_EQ(t.a.lane().window, kChunkBytes);
  t.a.Begin();
  t.a.PushTensor(0);
  EXPECT_EQ(t.a.Last<Credit>().window, 0u);
  t.a.PushTensor(1);
  EXPECT_THAT(t.a.Last<Credit>().refused, ElementsAre(ChunkRange{1, 0, 1}));
  EXPECT_EQ(t.Notes(NoteKind::kFrameRefused), 1u);
  t.b.Begin();
  t.c.Begin();
  t.b.PushTensor(0);
  t.a.inbox.clear();
  t.c.PushTensor(0);
  EXPECT_EQ(t.a.Last<Credit>().window, kChunkBytes) << "the chunk is reduced, so there is room";
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->PushTensor(1);
    worker->Commit();
  }
  EXPECT_EQ(t.a.lane().delivered[1].at({1, 0}), (Reduced{7, 3}));
}

TEST(Frames, Fault_W10_ThatDoNotFitTheLayoutAreRefused) {
  Three t;
  t.a.Begin();
  const auto send = [&](auto&& change) {
    FrameReceived frame;
    frame.session = t.a.session;
    frame.round = 1;
    frame.ranges = {{0, 0, 1}};
    frame.bytes = kChunkBytes;
    frame.digests = {1};
    change(frame);
    t.a.inbox.clear();
    t.Step(frame);
    return t.a.rejected();
  };
  EXPECT_EQ(send([](FrameReceived& f) { f.ranges[0].tensor = 9; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(send([](FrameReceived& f) { f.ranges[0].first = 1; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(send([](FrameReceived& f) { f.ranges[0].count = 2; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(send([](FrameReceived& f) { f.ranges[0].count = 0; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(send([](FrameReceived& f) { f.ranges[0].count = ~0u; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(send([](FrameReceived& f) { f.bytes = 4; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(send([](FrameReceived& f) { f.digests = {}; }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(send([](FrameReceived& f) { f.lane = 7; }), ErrorCode::kNotFound);
}

// The size of the lane bounds the work that a list of chunks can cause.
TEST(Frames, Fault_N11_ListsThatNameAChunkTwiceAreRefused) {
  Three t;
  t.a.Begin();
  const auto said = [&](const ToAggregator& message) {
    t.a.inbox.clear();
    t.a.Send(message);
    return t.a.rejected();
  };
  const std::vector<ChunkRange> all = {{0, 0, 1}, {1, 0, 1}};
  const std::vector<ChunkRange> more = {{0, 0, 1}, {1, 0, 1}, {0, 0, 1}};
  EXPECT_EQ(said(ResultAck{0, 1, {1, 1}, all}), ErrorCode::kOk);
  EXPECT_EQ(said(ResultAck{0, 1, {1, 1}, more}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(said(Need{0, 1, {1, 1}, all}), ErrorCode::kOk);
  EXPECT_EQ(said(Need{0, 1, {1, 1}, more}), ErrorCode::kInvalidArgument);
}

TEST(Frames, OfAWorkerThatIsNoMemberAreRefused) {
  Three t(Settings(1, 3, 3));  // The job is full.
  TestWorker& s = t.Join("s");
  s.SendFrame(1, {0, 0, 1});
  EXPECT_EQ(s.rejected(), ErrorCode::kFailedPrecondition);
  s.Begin();
  EXPECT_THAT(s.Last<Rejected>().error.text, HasSubstr("is not a member of round 1"));
}

// ---- commit and withdraw

TEST(Commit, EndOfStreamIsNotCompletion) {
  Three t;
  t.b.Contribute();
  t.c.Contribute();
  t.a.Begin();
  t.a.PushTensor(0);
  t.a.PushTensor(1);
  EXPECT_EQ(t.round()->phase(), RoundPhase::kCollect) << "all chunks are there, but no commit";
  t.a.Commit();
  EXPECT_EQ(t.a.lane().last, 1u);
}

TEST(Commit, MayOvertakeTheFrames) {
  Three t;
  t.b.Contribute();
  t.c.Contribute();
  t.a.Begin();
  t.a.lane().pushed = {{0, 0}, {1, 0}};
  t.a.Commit();
  t.a.PushTensor(1);
  EXPECT_EQ(t.a.lane().last, 0u);
  t.a.PushTensor(0);
  EXPECT_EQ(t.a.lane().last, 1u);
}

TEST(Commit, ThatContradictsWhatWasSaidIsRefused) {
  const std::pair<std::function<void(basin::Commit&)>, const char*> cases[] = {
      {[](basin::Commit& c) { c.chunks = 3; }, "claims 3 chunks"},
      {[](basin::Commit& c) { c.bytes = 3; }, "and 3 bytes, but"},
      {[](basin::Commit& c) { c.layout_version = 9; }, "names a layout that does not exist"},
      {[](basin::Commit& c) { c.present.Clear(0); }, "leaves out a tensor that it pushed"},
      {[](basin::Commit& c) { c.present = Bitmap(7); }, "chunks that do not exist"},
  };
  for (const auto& [change, text] : cases) {
    Three t;
    t.a.Begin();
    t.a.PushTensor(0);
    basin::Commit commit = t.a.MakeCommit();
    change(commit);
    if (std::string(text).find("leaves out") != std::string::npos) commit.chunks = commit.bytes = 0;
    t.a.Send(commit);
    EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(t.a.Last<Rejected>().error.text, HasSubstr(text));
  }
  Three t;
  t.b.Begin();
  t.a.Send(t.a.MakeCommit());
  EXPECT_THAT(t.a.Last<Rejected>().error.text, HasSubstr("comes without a begin"));
  t.b.Skip({0});
  t.b.lane().pushed = {{0, 0}};
  t.b.Commit();
  EXPECT_THAT(t.b.Last<Rejected>().error.text, HasSubstr("claims a tensor that it skipped"));
}

TEST(Commit, ADigestThatDoesNotMatchIsFetchedAgainOnce) {
  Three t;
  t.b.Contribute();
  t.c.Contribute();
  t.a.Begin();
  t.a.value = 77;  // The bytes are corrupted on their way.
  t.a.PushTensor(0);
  t.a.PushTensor(1);
  t.a.value = 1;
  t.a.Commit();
  // The client has pushed the right bytes again.
  EXPECT_EQ(t.a.Count<AttemptRestarted>(), 1u);
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u);
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
}

TEST(Commit, ADigestThatDoesNotMatchTwiceIsCorrupt) {
  Three t;
  t.b.Contribute();
  t.c.Contribute();
  t.a.Begin();
  t.a.PushTensor(0);
  t.a.PushTensor(1);
  basin::Commit commit = t.a.MakeCommit();
  commit.digest ^= 1;
  t.a.Send(commit);
  EXPECT_EQ(t.a.rejected(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 2u);
  EXPECT_EQ(t.b.lane().delivered[1].at({0, 0}), (Reduced{6, 2}));
  EXPECT_EQ(t.a.lane().last, 1u) << "it applies the others' result";
}

TEST(Commit, OfNothingWithAWrongDigestIsCorruptAtOnce) {
  Three t;
  t.b.Contribute();
  t.c.Contribute();
  t.a.Begin();
  basin::Commit commit = t.a.MakeCommit();
  ASSERT_EQ(commit.chunks, 0u);
  commit.digest ^= 1;
  t.a.Send(commit);
  EXPECT_EQ(t.a.rejected(), ErrorCode::kDataCorrupt);
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 2u);
}

// As it is in each round of a node that has reduced its gradients itself, so it is no warning.
TEST(Withdraw, AnotherWorkerMayContributeTheGradients) {
  Three t;
  t.a.Begin();
  t.a.Withdraw("", kLane, true);
  t.b.Begin();
  t.c.Begin();
  t.c.Withdraw("", kLane, false);  // It has requested the results meanwhile.
  EXPECT_EQ(t.Notes(NoteKind::kContributionCarried), 2u);
  t.b.Withdraw("its backward has failed", kLane, true);
  EXPECT_EQ(t.NoteText(NoteKind::kContributionCarried),
            "another worker of its node contributes its gradients");
  EXPECT_EQ(t.NoteText(NoteKind::kContributionWithdrawn), "its backward has failed");
}

TEST(Withdraw, BeforeAnyOfItIsReducedCostsNoAttempt) {
  Three t;
  t.a.Begin();
  t.a.PushTensor(0);
  t.a.Withdraw();
  EXPECT_EQ(t.Notes(NoteKind::kContributionWithdrawn), 1u);
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.Notes(NoteKind::kAttemptRestarted), 0u);
  EXPECT_EQ(t.b.lane().delivered[1].at({0, 0}), (Reduced{6, 2}));
  EXPECT_EQ(t.a.lane().delivered[1].at({0, 0}), (Reduced{6, 2})) << "it applies the result";
}

TEST(Withdraw, AfterAChunkOfItIsReducedStartsTheNextAttempt) {
  Three t;
  t.b.Contribute();
  t.c.Contribute();
  t.a.Begin();
  t.a.PushTensor(0);
  t.a.Withdraw();
  EXPECT_EQ(t.Notes(NoteKind::kAttemptRestarted), 1u);
  EXPECT_THAT(t.b.Last<AttemptRestarted>().redo, ElementsAre(ChunkRange{0, 0, 1}));
  EXPECT_EQ(t.b.verdict().ballot.attempt, 2u);
  EXPECT_EQ(t.b.lane().delivered[1].at({0, 0}), (Reduced{6, 2}));
}

TEST(Withdraw, OfEveryoneAbortsTheRound) {
  Three t(Settings(1, 3, 3));  // The job is full.
  TestWorker& j = t.Join("j");
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Withdraw();
  EXPECT_EQ(t.a.verdict().value.outcome, Outcome::kAborted);
  EXPECT_EQ(t.a.verdict().value.reason, "no contributor is left");
  EXPECT_EQ(t.a.verdict().value.abort_cause, AbortCause::kNoContributor);
  EXPECT_THAT(t.a.lane().delivered[1], IsEmpty());
  EXPECT_EQ(t.Notes(NoteKind::kRoundAborted), 1u);
  EXPECT_EQ(j.role, Role::kSpare);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().round, 2u) << "a round number is never reused";
}

TEST(Withdraw, AfterTheCommitIsTooLate) {
  Three t;
  t.a.Contribute();
  t.a.Withdraw();
  EXPECT_EQ(t.a.rejected(), ErrorCode::kFailedPrecondition);
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u);
}

TEST(Withdraw, OpensARoundToo) {
  Three t;
  t.a.Withdraw();
  ASSERT_NE(t.round(), nullptr);
  EXPECT_TRUE(t.round()->begun());
  t.a.Withdraw();
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 2u);
}

}  // namespace
}  // namespace basin::aggregator
