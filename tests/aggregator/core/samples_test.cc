// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Samples that workers lease: what a begin may name, what a verdict commits, and what becomes of
// the samples of a worker that goes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using LeasedRanges = std::vector<SampleRange>;

constexpr SampleEpoch kFirstEpoch{1, 100, 7};
constexpr SampleEpoch kSteps{1, 20, 7, 8};  // The last one has 4.

// a, b and c, whose clients lease samples.
struct Leasing : Cluster {
  explicit Leasing(Config config = {}) : Cluster(Settings(1, 4, 3), std::move(config)) {
    for (const char* id : {"a", "b", "c"}) {
      Worker(id).features = kFeatureSamples | kFeatureGlobalBatch;
      Worker(id).obeys_windows = true;
    }
    for (const char* id : {"a", "b", "c"}) Join(id);
  }
  TestWorker& a = Worker("a");
  TestWorker& b = Worker("b");
  TestWorker& c = Worker("c");

  SamplesLeased Lease(TestWorker& worker, uint64_t count, const SampleEpoch& epoch = kFirstEpoch,
                      const LeasedRanges& resumed = {}) {
    worker.Send(LeaseSamples{worker.lane().index, ++requests, epoch, count, resumed, 0});
    const SamplesLeased leased = worker.Last<SamplesLeased>();
    EXPECT_EQ(leased.request, requests);
    return leased;
  }
  SamplesLeased LeaseStep(TestWorker& worker, uint64_t after = 0,
                          const SampleEpoch& epoch = kSteps) {
    worker.Send(LeaseSamples{worker.lane().index, ++requests, epoch, 1, {}, after});
    return worker.Last<SamplesLeased>();
  }
  LeasedRanges Leased(TestWorker& worker, uint64_t count) { return Lease(worker, count).ranges; }
  // A new session, whose hello names these leases.
  void Reconnect(TestWorker& worker, const LeasedRanges& leased) {
    worker.Cut();
    Hello hello = worker.MakeHello();
    hello.lanes[0].leased = {kFirstEpoch, leased};
    worker.Connect(hello);
  }
  // As the harness contributes, with samples.
  void Begin(TestWorker& worker, const LeasedRanges& samples, uint64_t epoch = 1) {
    basin::Begin begin;
    begin.lane = worker.lane().index;
    begin.round = worker.lane().next();
    begin.spec = Spec(ReduceOp::kAverage);
    begin.samples = samples;
    begin.sample_epoch = epoch;
    worker.lane().begun = begin;
    worker.Send(begin);
  }
  void Finish(TestWorker& worker) {
    for (TensorIndex tensor = 0; tensor < worker.lane().tensors.size(); ++tensor) {
      worker.PushTensor(tensor);
    }
    worker.Commit();
  }
  void Contribute(TestWorker& worker, const LeasedRanges& samples) {
    Begin(worker, samples);
    Finish(worker);
  }
  const SampleLedger& ledger() const { return job().lanes[0].ledger; }

  uint64_t requests = 0;
};

TEST(Samples, AVerdictCommitsThoseOfItsContributors) {
  Leasing t;
  EXPECT_EQ(t.Leased(t.a, 10), (LeasedRanges{{0, 10}}));
  EXPECT_EQ(t.Leased(t.b, 10), (LeasedRanges{{10, 20}}));
  t.Contribute(t.a, {{0, 4}});
  t.Contribute(t.b, {{10, 14}});
  t.c.Contribute();
  const RoundSamples& samples = *t.c.verdict().value.samples;
  EXPECT_EQ(samples.epoch, kFirstEpoch);
  EXPECT_EQ(samples.ranges, (LeasedRanges{{0, 4}, {10, 14}}));
  EXPECT_EQ(samples.committed, 8u);
  EXPECT_EQ(t.ledger().HeldBy(t.a.incarnation).Runs(), (LeasedRanges{{4, 10}}));
  EXPECT_EQ(t.ledger().settled().ranges, samples.ranges);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_FALSE(t.a.verdict().value.samples.has_value()) << "nobody named any";
}

TEST(Samples, OfAnotherWorkerAreRejected) {
  Leasing t;
  t.Leased(t.a, 10);
  t.Leased(t.b, 10);
  t.Begin(t.a, {{8, 11}});
  EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(t.a.Last<Rejected>().error.text,
              HasSubstr("worker a names sample 10 of epoch 1, which is not leased to it"));
  t.Contribute(t.b, {{10, 12}});
  t.c.Contribute();
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 2u) << "the others go on without it";
  EXPECT_EQ(t.ledger().HeldBy(t.a.incarnation).Runs(), (LeasedRanges{{0, 10}}))
      << "it still holds its";
}

TEST(Samples, AWithdrawnContributionCommitsNothing) {
  Leasing t;
  t.Leased(t.a, 10);
  t.Begin(t.a, {{0, 4}});
  t.a.Withdraw();
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_FALSE(t.a.verdict().value.samples.has_value());
  EXPECT_EQ(t.ledger().HeldBy(t.a.incarnation).Runs(), (LeasedRanges{{0, 10}}));
}

TEST(Samples, OfALostWorkerAreFreeAtOnce) {
  Leasing t;
  t.Leased(t.a, 10);
  t.Begin(t.a, {{0, 4}});
  t.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(t.Leased(t.b, 12), (LeasedRanges{{0, 12}}));
  EXPECT_EQ(t.Notes(NoteKind::kSamplesReturned), 1u);
  EXPECT_THAT(t.NoteText(NoteKind::kSamplesReturned), HasSubstr("10 samples of epoch 1"));
}

TEST(Samples, OfALostWorkerWhoseContributionCountsAreCommitted) {
  Leasing t;
  t.Leased(t.a, 10);
  t.Contribute(t.a, {{0, 4}});
  t.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(t.Leased(t.b, 2), (LeasedRanges{{4, 6}})) << "the round may commit the first four";
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.b.verdict().value.samples->ranges, (LeasedRanges{{0, 4}}));
  EXPECT_EQ(t.ledger().committed() + t.ledger().free() + 2, kFirstEpoch.samples);
}

TEST(Samples, OfAFinishedWorkerAreFree) {
  Leasing t;
  t.Leased(t.a, 10);
  t.a.Send(Finished{});
  EXPECT_EQ(t.Leased(t.b, 3), (LeasedRanges{{0, 3}}));
  EXPECT_EQ(t.Lease(t.a, 1).error.code, ErrorCode::kFailedPrecondition);
}

TEST(Samples, AReconnectKeepsWhatTheHelloNames) {
  Leasing t;
  t.Leased(t.a, 10);
  t.Reconnect(t.a, {{0, 6}});
  EXPECT_EQ(t.ledger().HeldBy(t.a.incarnation).Runs(), (LeasedRanges{{0, 6}}));
  EXPECT_EQ(t.Leased(t.b, 4), (LeasedRanges{{6, 10}}));
}

TEST(Samples, AHelloThatNamesMoreIsCorrected) {
  Leasing t;
  t.Leased(t.a, 10);
  t.Reconnect(t.a, {{4, 12}});
  const SamplesLeased corrected = t.a.Last<SamplesLeased>();
  EXPECT_EQ(corrected.request, 0u);
  EXPECT_EQ(corrected.ranges, (LeasedRanges{{4, 10}}));
}

TEST(Samples, TheLastSampleEndsTheEpochForAll) {
  Leasing t;
  const SampleEpoch small{1, 2, 7};
  EXPECT_EQ(t.Lease(t.a, 8, small).ranges, (LeasedRanges{{0, 1}})) << "its share";
  EXPECT_EQ(t.Lease(t.b, 8, small).ranges, (LeasedRanges{{1, 2}}));
  EXPECT_EQ(t.Lease(t.c, 8, small).outcome, LeaseOutcome::kNoneNow);
  t.Contribute(t.a, {{0, 1}});
  t.Contribute(t.b, {{1, 2}});
  t.c.Contribute();
  EXPECT_TRUE(t.c.verdict().value.samples->ends_epoch());
  EXPECT_EQ(t.Notes(NoteKind::kEpochEnded), 1u);
  EXPECT_EQ(t.Lease(t.c, 8, small).outcome, LeaseOutcome::kEnded);
}

TEST(Samples, AMismatchNamesBothWorkersAndValues) {
  Leasing t;
  t.Leased(t.a, 1);
  const SamplesLeased refused = t.Lease(t.b, 1, {1, 99, 7});
  EXPECT_EQ(refused.outcome, LeaseOutcome::kRefused);
  EXPECT_EQ(refused.error.code, ErrorCode::kMismatch);
  EXPECT_THAT(refused.error.text,
              HasSubstr("Job job, lane model: worker b gives epoch 1 99 samples in order 7, but "
                        "worker a gave 100 samples in order 7"));
  EXPECT_EQ(t.Notes(NoteKind::kLeaseRefused), 1u);
}

TEST(Steps, AreSharedByRankAndCommittedAsAWhole) {
  Leasing t;
  EXPECT_EQ(t.LeaseStep(t.a).ranges, (LeasedRanges{{0, 2}}));
  EXPECT_EQ(t.LeaseStep(t.b).ranges, (LeasedRanges{{2, 5}}));
  EXPECT_EQ(t.LeaseStep(t.c).ranges, (LeasedRanges{{5, 8}}));
  EXPECT_EQ(t.LeaseStep(t.a, 2).ranges, (LeasedRanges{{8, 10}})) << "ahead";
  EXPECT_EQ(t.LeaseStep(t.a, 10).ranges, (LeasedRanges{{16, 17}})) << "of the last step";
  EXPECT_EQ(t.LeaseStep(t.a, 17).outcome, LeaseOutcome::kNoneNow);
  t.Contribute(t.a, {{0, 2}});
  t.Contribute(t.b, {{2, 5}});
  t.Contribute(t.c, {{5, 8}});
  const RoundSamples& samples = *t.c.verdict().value.samples;
  EXPECT_EQ(samples.epoch, kSteps);
  EXPECT_EQ(samples.ranges, (LeasedRanges{{0, 8}}));
  EXPECT_EQ(t.LeaseStep(t.b, 5).ranges, (LeasedRanges{{10, 13}}));
  t.Contribute(t.a, {{8, 10}});
  t.Contribute(t.b, {{10, 13}});
  t.Contribute(t.c, {{13, 16}});
  t.Contribute(t.a, {{16, 17}});
  t.Contribute(t.b, {{17, 18}});
  t.Contribute(t.c, {{18, 20}});
  EXPECT_TRUE(t.c.verdict().value.samples->ends_epoch());
  EXPECT_EQ(t.LeaseStep(t.b).outcome, LeaseOutcome::kEnded);
}

TEST(Steps, AreAbortedWithoutAWorkerThatIsLostAndComeAgain) {
  Leasing t;
  t.LeaseStep(t.a);
  t.Begin(t.a, {{0, 2}});
  t.Contribute(t.b, {{2, 5}});
  t.Contribute(t.c, {{5, 8}});
  t.Step(WorkerExited{kJob, "a"});
  for (TestWorker* worker : {&t.b, &t.c}) {
    const RoundValue& value = worker->verdict().value;
    EXPECT_EQ(value.outcome, Outcome::kAborted);
    EXPECT_EQ(value.abort_cause, AbortCause::kStepAgain);
    EXPECT_THAT(value.reason, HasSubstr("of 6 of the 8 samples of the step, because"));
  }
  EXPECT_EQ(t.LeaseStep(t.b).ranges, (LeasedRanges{{0, 4}}));
  EXPECT_EQ(t.LeaseStep(t.c).ranges, (LeasedRanges{{4, 8}}));
  t.Contribute(t.b, {{0, 4}});
  t.Contribute(t.c, {{4, 8}});
  EXPECT_EQ(t.c.verdict().value.samples->committed, 8u);
}

TEST(Steps, CountALostWorkerWhoseContributionIsComplete) {
  Leasing t;
  t.LeaseStep(t.a);
  t.Contribute(t.a, {{0, 2}});
  t.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(t.LeaseStep(t.b).ranges, (LeasedRanges{{2, 5}}));
  t.Contribute(t.b, {{2, 5}});
  t.Contribute(t.c, {{5, 8}});
  EXPECT_EQ(t.b.verdict().value.samples->committed, 8u);
}

TEST(Steps, OneThatIsTakenIsNotLeasedToAJoiner) {
  Leasing t;
  t.LeaseStep(t.a);
  t.Begin(t.a, {{0, 2}});
  EXPECT_EQ(t.LeaseStep(t.a).outcome, LeaseOutcome::kNoneNow) << "the open round counts its share";
  EXPECT_EQ(t.LeaseStep(t.b).ranges, (LeasedRanges{{2, 5}}));
}

TEST(Steps, ABeginOfAnotherStepIsRejected) {
  Leasing t;
  t.LeaseStep(t.a);
  t.Begin(t.a, {{8, 10}});
  EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(t.a.Last<Rejected>().error.text,
              HasSubstr("names sample 8 of epoch 1, which is not of the step that comes next"));
}

TEST(Steps, TheSameSampleTwiceIsNoStep) {
  Leasing t;
  t.LeaseStep(t.a);
  t.Contribute(t.a, {{0, 5}});
  t.Contribute(t.b, {{2, 5}});
  t.Contribute(t.c, {{5, 8}});
  EXPECT_EQ(t.b.verdict().value.abort_cause, AbortCause::kStepAgain);
  EXPECT_THAT(t.b.verdict().value.reason, HasSubstr("some of them twice"));
}

TEST(Steps, MoreWorkersThanSamples) {
  Leasing t;
  const SampleEpoch small{1, 2, 7, 2};
  EXPECT_EQ(t.LeaseStep(t.a, 0, small).outcome, LeaseOutcome::kNoneNow);
  EXPECT_EQ(t.LeaseStep(t.b, 0, small).ranges, (LeasedRanges{{0, 1}}));
  EXPECT_EQ(t.LeaseStep(t.c, 0, small).ranges, (LeasedRanges{{1, 2}}));
  t.Begin(t.a, {});
  t.a.Withdraw();
  t.Contribute(t.b, {{0, 1}});
  t.Contribute(t.c, {{1, 2}});
  EXPECT_TRUE(t.c.verdict().value.samples->ends_epoch());
}

TEST(Steps, AnotherGlobalBatchIsAMismatch) {
  Leasing t;
  t.LeaseStep(t.a);
  const SamplesLeased refused = t.LeaseStep(t.b, 0, {1, 20, 7, 9});
  EXPECT_EQ(refused.error.code, ErrorCode::kMismatch);
  EXPECT_THAT(refused.error.text,
              HasSubstr("worker b gives epoch 1 20 samples in order 7 in steps of 9, but worker a "
                        "gave 20 samples in order 7 in steps of 8"));
  EXPECT_EQ(t.Lease(t.c, 1, {1, 20, 7}).error.code, ErrorCode::kMismatch);
}

TEST(Steps, NeedAClientThatKnowsThem) {
  Leasing t;
  t.Worker("d").features = kFeatureSamples;
  TestWorker& old = t.Join("d");
  EXPECT_EQ(t.LeaseStep(t.a).error.code, ErrorCode::kVersionMismatch);
  old.Send(Leave{});
  EXPECT_EQ(t.LeaseStep(t.a).outcome, LeaseOutcome::kLeased);
  TestWorker& later = t.Worker("e");
  later.features = kFeatureSamples;
  later.Connect();
  ASSERT_TRUE(later.ended.has_value());
  EXPECT_EQ(later.ended->code, ErrorCode::kVersionMismatch);
}

TEST(Steps, ARecoveryKnowsTheGlobalBatch) {
  Leasing t;
  t.LeaseStep(t.a);
  t.Crash(5000);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->fresh = false;
    Hello hello = worker->MakeHello();
    if (worker == &t.a) hello.lanes[0].leased = {kSteps, {{0, 2}}};
    worker->Connect(hello);
  }
  EXPECT_EQ(t.ledger().epoch(), kSteps);
  t.Contribute(t.a, {{0, 2}});
  EXPECT_EQ(t.LeaseStep(t.b).ranges, (LeasedRanges{{2, 5}}));
  t.Contribute(t.b, {{2, 5}});
  t.Contribute(t.c, {{5, 8}});
  EXPECT_EQ(t.c.verdict().value.samples->committed, 8u);
}

TEST(Samples, AJoinerGetsWhatIsCommitted) {
  Leasing t;
  t.Leased(t.a, 10);
  t.Contribute(t.a, {{0, 4}});
  t.b.Contribute();
  t.Worker("d").features = kFeatureSamples;
  TestWorker& d = t.Join("d");
  t.c.Contribute();
  const std::vector<StartRound> start = d.Last<MembershipChanged>().start;
  ASSERT_EQ(start.size(), 1u);
  EXPECT_EQ(start[0].committed, (SampleProgress{kFirstEpoch, {{0, 4}}}));
}

TEST(Samples, NeedAClientThatKnowsThem) {
  Leasing t;
  EXPECT_EQ(t.a.welcome->features & kFeatureSamples, kFeatureSamples);
  TestWorker& old = t.Join("d");
  EXPECT_EQ(t.Lease(t.a, 1).error.code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(t.a.Last<SamplesLeased>().error.text, HasSubstr("the client of worker d is too old"));
  old.Send(Leave{});
  EXPECT_EQ(t.Lease(t.a, 1).outcome, LeaseOutcome::kLeased);
  TestWorker& later = t.Worker("e");
  later.Connect();
  ASSERT_TRUE(later.ended.has_value());
  EXPECT_EQ(later.ended->code, ErrorCode::kVersionMismatch);
}

TEST(Samples, ARecoveryGoesOnFromTheHellos) {
  Leasing t;
  t.Leased(t.a, 10);
  t.Leased(t.b, 10);
  t.Contribute(t.a, {{0, 4}});
  t.Contribute(t.b, {{10, 14}});
  t.c.Contribute();
  const SampleProgress committed{kFirstEpoch, {{0, 4}, {10, 14}}};
  t.Crash(5000);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->fresh = false;
    Hello hello = worker->MakeHello();
    hello.lanes[0].committed = committed;
    if (worker == &t.a) hello.lanes[0].leased = {kFirstEpoch, {{4, 10}}};
    if (worker == &t.b) hello.lanes[0].leased = {kFirstEpoch, {{14, 20}}};
    worker->Connect(hello);
  }
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_EQ(t.ledger().settled(), committed);
  EXPECT_EQ(t.ledger().HeldBy(t.a.incarnation).Runs(), (LeasedRanges{{4, 10}}));
  EXPECT_EQ(t.Leased(t.c, 3), (LeasedRanges{{20, 23}}));
  t.Contribute(t.a, {{4, 6}});
  t.Contribute(t.b, {{14, 16}});
  t.c.Contribute();
  EXPECT_EQ(t.c.verdict().value.samples->committed, 12u);
}

TEST(Samples, ARecoveryRefusesAWorkerWhoseLedgerDiffers) {
  Leasing t;
  t.Leased(t.a, 10);
  t.Contribute(t.a, {{0, 4}});
  t.b.Contribute();
  t.c.Contribute();
  t.Crash(5000);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->fresh = false;
    Hello hello = worker->MakeHello();
    hello.lanes[0].committed = {kFirstEpoch, {{0, worker == &t.c ? 5u : 4u}}};
    worker->Connect(hello);
  }
  ASSERT_TRUE(t.c.ended.has_value());
  EXPECT_EQ(t.c.ended->code, ErrorCode::kLineageConflict);
  EXPECT_THAT(t.c.ended->text, HasSubstr("5 samples of epoch 1"));
  EXPECT_THAT(t.c.ended->text, HasSubstr("worker c"));
  EXPECT_THAT(t.ledger().settled().ranges, ElementsAre(SampleRange(0, 4)));
  EXPECT_THAT(t.ledger().HeldBy(t.c.incarnation).Runs(), IsEmpty());
}

// ---- memory

// A job whose lane takes as little as it can, in a budget with so many bytes more.
Config BudgetWith(uint64_t bytes) {
  Config config;
  config.frame_bytes = config.window_bytes = config.result_window_bytes = kChunkBytes;
  Leasing t(config);
  config.memory_bytes = t.core->reserved_bytes() + bytes;
  return config;
}

LeasedRanges Scattered(uint64_t count) {
  LeasedRanges ranges;
  for (uint64_t i = 0; i < count; ++i) ranges.push_back({2 * i, 2 * i + 1});
  return ranges;
}

constexpr SampleEpoch kManySamples{1, 100'000, 7};

TEST(SamplesMemory, IsChargedToTheJobUntilANewLineage) {
  Leasing t;
  const uint64_t before = t.job().reserved_bytes();
  t.Leased(t.a, 10);
  const uint64_t leased = t.job().reserved_bytes();
  EXPECT_GT(leased, before);
  t.Begin(t.a, Scattered(5));
  t.Leased(t.b, 10);
  EXPECT_GT(t.job().reserved_bytes(), leased);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Send(Leave{});
  EXPECT_EQ(t.job().lanes[0].ledger_bytes, 0u);
}

TEST(SamplesMemory, WithoutItALeaseIsRefused) {
  Leasing t(BudgetWith(500));
  const SamplesLeased refused = t.Lease(t.a, 10);
  EXPECT_EQ(refused.outcome, LeaseOutcome::kRefused);
  EXPECT_EQ(refused.error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error.text,
              HasSubstr("Job job, lane model: worker a needs memory for more separate ranges"));
  EXPECT_THAT(refused.error.text, HasSubstr("500 bytes of memory.budget"));
  EXPECT_EQ(t.Notes(NoteKind::kLeaseRefused), 1u);
}

TEST(SamplesMemory, WithoutItAContributionOfScatteredSamplesIsRefused) {
  Leasing t(BudgetWith(20'000));
  t.Lease(t.a, 10'000, kManySamples);
  t.Lease(t.b, 10, kManySamples);
  t.Begin(t.a, Scattered(1000));
  EXPECT_EQ(t.a.rejected(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(t.a.Last<Rejected>().error.text,
              testing::AllOf(HasSubstr("Job job, lane model, round 1: the begin of worker a needs "
                                       "memory for more separate ranges of samples"),
                             HasSubstr("bytes of memory.budget")));
  EXPECT_EQ(t.ledger().HeldBy(t.a.incarnation).Runs(), (LeasedRanges{{0, 10'000}}))
      << "it still holds its";
}

TEST(SamplesMemory, AfterARefusedLeaseTheJobGoesOn) {
  Leasing t(BudgetWith(SampleLedger::NeedOf(2, 0) - 1));  // For what one worker holds.
  EXPECT_EQ(t.Leased(t.a, 10), (LeasedRanges{{0, 10}}));
  EXPECT_EQ(t.Lease(t.b, 10).outcome, LeaseOutcome::kRefused);
  t.Contribute(t.a, {{0, 4}});
  t.b.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 3u);
  EXPECT_EQ(t.b.verdict().value.samples->ranges, (LeasedRanges{{0, 4}}));
  EXPECT_EQ(t.Leased(t.a, 10), (LeasedRanges{{10, 20}})) << "it is not refused with b";
  EXPECT_EQ(t.Lease(t.b, 10).outcome, LeaseOutcome::kRefused);
  t.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(t.Leased(t.b, 10), (LeasedRanges{{4, 14}})) << "there is room for it now";
  t.Contribute(t.b, {{4, 14}});
  t.c.Contribute();
  EXPECT_EQ(t.c.verdict().value.samples->committed, 14u);
}

TEST(SamplesMemory, AfterARefusedContributionTheJobGoesOn) {
  Leasing t(BudgetWith(20'000));
  t.Lease(t.a, 10'000, kManySamples);
  t.Lease(t.b, 10, kManySamples);
  t.Begin(t.a, Scattered(1000));
  EXPECT_EQ(t.a.rejected(), ErrorCode::kResourceExhausted);
  t.Contribute(t.b, {{10'000, 10'010}});
  t.c.Contribute();
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 2u) << "the others go on without it";
  EXPECT_EQ(t.a.verdict().value.samples->ranges, (LeasedRanges{{10'000, 10'010}}));
  EXPECT_EQ(t.Lease(t.c, 10, kManySamples).ranges, (LeasedRanges{{10'010, 10'020}}));
  t.Contribute(t.b, {});
  t.Contribute(t.c, {{10'010, 10'020}});
  t.Contribute(t.a, {{0, 1000}});
  EXPECT_EQ(t.a.verdict().value.contributors.size(), 3u) << "neighbours fit";
  EXPECT_EQ(t.a.verdict().value.samples->committed, 1020u);
  EXPECT_EQ(t.ledger().HeldBy(t.a.incarnation).Runs(), (LeasedRanges{{1000, 10'000}}));
}

TEST(SamplesMemory, WithoutItAScatteredHelloHoldsNothing) {
  Leasing t(BudgetWith(20'000));
  t.Lease(t.a, 10'000, kManySamples);
  t.a.Cut();
  Hello hello = t.a.MakeHello();
  hello.lanes[0].leased = {kManySamples, Scattered(1000)};
  t.a.Connect(hello);
  EXPECT_TRUE(t.ledger().HeldBy(t.a.incarnation).empty());
  const SamplesLeased corrected = t.a.Last<SamplesLeased>();
  EXPECT_EQ(corrected.request, 0u);
  EXPECT_THAT(corrected.ranges, IsEmpty());
  EXPECT_THAT(t.NoteText(NoteKind::kLeaseRefused),
              HasSubstr("Job job, lane model: the hello of worker a needs memory"));
  EXPECT_EQ(t.Lease(t.b, 10, kManySamples).ranges, (LeasedRanges{{0, 10}}));
}

}  // namespace
}  // namespace basin::aggregator
