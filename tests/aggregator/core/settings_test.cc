// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// An operator changes settings of a running job, limits bound how much of the service a job uses,
// and observers see past rounds.

#include <deque>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregator/core/job_settings.h"
#include "aggregator/core/memory.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::HasSubstr;

SetJob Set() {
  SetJob set;
  set.job = kJob;
  return set;
}
SetJob SetMin(uint32_t workers) {
  SetJob set = Set();
  set.min_workers = workers;
  return set;
}
SetJob SetMax(uint32_t workers) {
  SetJob set = Set();
  set.max_workers = workers;
  return set;
}

std::string WhyNot(const Cluster& t, const SetJob& set) {
  return WhyNotSet(t.job(), t.config, t.config.memory_bytes - t.core->reserved_bytes(), set);
}

// ---- SetJob

TEST(SetJobTest, ALowerMinimumEndsAPause) {
  Running t(Settings(2, 4, 2));
  t.Step(WorkerExited{kJob, "b"});
  t.a.Contribute();
  ASSERT_TRUE(t.job().Paused());
  ASSERT_EQ(t.a.lane().last, 1u);
  t.Step(SetMin(1));
  EXPECT_FALSE(t.job().Paused());
  EXPECT_EQ(t.a.lane().last, 2u);
  EXPECT_EQ(t.Notes(NoteKind::kJobSet), 1u);
  EXPECT_THAT(t.NoteText(NoteKind::kJobSet), HasSubstr("min_workers = 1"));
}

TEST(SetJobTest, AHigherMinimumPauses) {
  Running t;
  t.Step(SetMin(3));
  EXPECT_TRUE(t.job().Paused());
  t.Join("c");
  EXPECT_FALSE(t.job().Paused());
}

TEST(SetJobTest, ASpareBecomesAMemberWhenTheMaximumGrows) {
  Running t(Settings(1, 2, 2));
  TestWorker& c = t.Join("c");
  ASSERT_EQ(c.role, Role::kSpare);
  const uint64_t reserved = t.core->reserved_bytes();
  t.Step(SetMax(3));
  EXPECT_GT(t.core->reserved_bytes(), reserved) << "its lanes need room for one more";
  t.Round();
  EXPECT_EQ(c.role, Role::kMember);
  for (TestWorker* worker : {&t.a, &t.b, &c}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().value.divisor, 3u);
}

TEST(SetJobTest, WhatIsReservedFollowsTheMaximumBothWays) {
  Running t(Settings(1, 2, 2));
  const uint64_t reserved = t.core->reserved_bytes();
  t.Step(SetMax(4));
  t.Step(SetMax(2));
  EXPECT_EQ(t.core->reserved_bytes(), reserved);
  t.Step(WorkerExited{kJob, "a"});
  t.Step(WorkerExited{kJob, "b"});
  t.Sleep(t.config.idle_job_timeout + absl::Minutes(1));
  EXPECT_EQ(t.core->reserved_bytes(), 0u);
}

TEST(SetJobTest, WorkersComeBackWithWhatTheyAskedForFirst) {
  Running t(Settings(1, 2, 2));
  t.Step(SetMax(4));
  t.b.Restart();
  t.b.Connect();
  EXPECT_FALSE(t.b.ended.has_value()) << t.b.ended->text;
  TestWorker& c = t.Worker("c");
  c.settings = Settings(1, 4, 2);  // It was started with the operator's settings.
  c.Connect();
  EXPECT_FALSE(c.ended.has_value()) << c.ended->text;
  TestWorker& d = t.Worker("d");
  d.settings = Settings(1, 3, 2);
  d.Connect();
  ASSERT_TRUE(d.ended.has_value());
  EXPECT_EQ(d.ended->code, ErrorCode::kMismatch);
}

TEST(SetJobTest, AnotherRunBeginsWithItsOwnSettings) {
  Config config;
  config.evict_late_after = absl::Seconds(20);
  Running t(Settings(1, 2, 2), config);
  SetJob set = SetMax(4);
  set.loss_policy = LossPolicy::kAbort;
  set.late_policy = LatePolicy::kEvict;
  t.Step(set);
  ASSERT_EQ(t.job().loss_policy(t.config), LossPolicy::kAbort);
  t.Step(WorkerExited{kJob, "a"});
  t.Step(WorkerExited{kJob, "b"});
  TestWorker& c = t.Worker("c");
  c.run = "another";
  c.Connect();
  EXPECT_EQ(t.job().settings().max_workers, 2u);
  EXPECT_EQ(t.job().loss_policy(t.config), LossPolicy::kShrink);
  EXPECT_EQ(t.job().late_policy(t.config), LatePolicy::kWait);
}

// ---- SetJob and a restart

Config WithStateFile() {
  Config config;
  config.state_file = true;
  return config;
}

// Two members, and what an operator has set: three workers at most, and abort.
class SetWithStateFile : public Running {
 public:
  explicit SetWithStateFile(const Config& config = WithStateFile())
      : Running(Settings(1, 2, 2), config) {
    SetJob set = SetMax(3);
    set.loss_policy = LossPolicy::kAbort;
    Step(set);
    Round();
    for (TestWorker* worker : {&a, &b}) worker->fresh = false;
  }
  void RestartAndConnect() {
    Crash(5000);
    for (TestWorker* worker : {&a, &b}) worker->Connect();
  }
};

TEST(SetJobTest, Fault_A1_WhatIsSetIsReportedWhenItIsWrittenAndOutlivesARestart) {
  SetWithStateFile t;
  EXPECT_THAT(t.NoteText(NoteKind::kJobSet), HasSubstr("until another run begins"));
  t.RestartAndConnect();
  EXPECT_EQ(t.job().settings(), Settings(1, 3, 2));
  EXPECT_EQ(t.job().loss_policy(t.config), LossPolicy::kAbort);
  EXPECT_THAT(t.NoteText(NoteKind::kJobSet),
              HasSubstr("holds again: min_workers = 1, max_workers"));
  EXPECT_EQ(t.job().HowLongSet(), "until another run begins");
  TestWorker& c = t.Worker("c");
  c.settings = Settings(1, 3, 2);  // It was started with the operator's settings.
  c.Connect();
  EXPECT_FALSE(c.ended.has_value()) << c.ended->text;
  // What the job writes later keeps it.
  t.Join("d");
  t.Round();
  t.RestartAndConnect();
  EXPECT_EQ(t.job().settings(), Settings(1, 3, 2));
}

TEST(SetJobTest, Fault_A1_WhoeverComesFirstAfterARestartTheOthersMayDeclareEither) {
  SetWithStateFile t;
  t.Crash(5000);
  TestWorker& c = t.Worker("c");
  c.settings = Settings(1, 3, 2);
  for (TestWorker* worker : {&c, &t.a, &t.b}) {
    worker->Connect();
    EXPECT_FALSE(worker->ended.has_value()) << worker->ended->text;
  }
}

TEST(SetJobTest, WhatIsSetIsReportedOnlyWhenItIsWritten) {
  Running t(Settings(1, 2, 2), WithStateFile());
  t.saves = false;
  t.Step(SetMax(3));
  t.Step(SetMin(2));
  EXPECT_EQ(t.job().settings().max_workers, 3u) << "it is in force";
  EXPECT_EQ(t.Notes(NoteKind::kJobSet), 0u);
  t.FinishSettingsSaves();
  EXPECT_EQ(t.Notes(NoteKind::kJobSet), 2u);
  t.save_ok = false;
  t.saves = true;
  t.Step(SetMax(4));
  EXPECT_THAT(t.NoteText(NoteKind::kJobSet), HasSubstr("max_workers = 4; this holds until the"));
}

TEST(SetJobTest, Fault_A8_ADiskThatHangsDoesNotHoldUpTheReport) {
  Running t(Settings(1, 2, 2), WithStateFile());
  t.saves = false;
  t.Step(SetMax(3));
  t.Sleep(t.config.lease - absl::Milliseconds(100));
  EXPECT_EQ(t.Notes(NoteKind::kJobSet), 0u);
  t.Sleep(absl::Milliseconds(200));
  EXPECT_THAT(t.NoteText(NoteKind::kStateFileFailed), HasSubstr("its disk may hang"));
  EXPECT_THAT(t.NoteText(NoteKind::kJobSet),
              HasSubstr("max_workers = 3; this holds until the aggregator restarts"));
  EXPECT_EQ(t.job().settings().max_workers, 3u) << "it is in force";
  t.Step(SetMax(4));
  t.FinishSettingsSaves();  // Both are written after all.
  EXPECT_EQ(t.Notes(NoteKind::kJobSet), 2u);
  EXPECT_THAT(t.NoteText(NoteKind::kJobSet),
              HasSubstr("max_workers = 4; this holds until another"));
  EXPECT_EQ(t.job().HowLongSet(), "until another run begins");
}

TEST(SetJobTest, AJobThatWasFormingStartsAfreshWithWhatIsSet) {
  Cluster t(Settings(1, 4, 4), WithStateFile());
  t.Join("a");
  t.Step(SetMax(2));
  ASSERT_EQ(t.job().state(), JobState::kForming);
  t.Crash(5000);
  t["a"].Connect();
  EXPECT_EQ(t.job().state(), JobState::kForming) << "it has no members to wait for";
  EXPECT_EQ(t.job().settings(), Settings(1, 2, 2));
  EXPECT_EQ(t.job().HowLongSet(), "until another run begins");
  t["a"].Ready();
  t.Join("b");
  EXPECT_EQ(t["a"].role, Role::kMember);
}

TEST(SetJobTest, WhatDoesNotFitTheMemoryAfterARestartDoesNotHoldAgain) {
  Config before = WithStateFile();
  before.frame_bytes = kChunkBytes;
  SetWithStateFile t(before);
  const uint64_t two = LeastLaneMemory(before, 2, before.frame_bytes).reserved;
  t.config.max_job_bytes = two;
  t.RestartAndConnect();
  EXPECT_EQ(t.job().settings(), Settings(1, 2, 2));
  EXPECT_EQ(t.job().loss_policy(t.config), LossPolicy::kShrink);
  EXPECT_THAT(t.NoteText(NoteKind::kJobSet), HasSubstr("max_workers was 3, and the job needs at "));
  EXPECT_THAT(t.NoteText(NoteKind::kJobSet), HasSubstr("limits.job_memory"));
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  SetWithStateFile u(before);
  u.config.memory_bytes = two + kChunkBytes / 2;
  u.RestartAndConnect();
  EXPECT_EQ(u.job().settings(), Settings(1, 2, 2));
  EXPECT_THAT(u.NoteText(NoteKind::kJobSet), HasSubstr("are free"));
  EXPECT_EQ(u.job().state(), JobState::kRunning);
  EXPECT_LE(u.core->reserved_bytes(), u.config.memory_bytes);
}

TEST(SetJobTest, TheListOfMembersInTheStateFileStaysAsItIs) {
  SetWithStateFile t;
  const Membership members = t.config.saved[kJob].membership;
  EXPECT_THAT(members.members, testing::ElementsAre("a", "b"));
  t.Crash(5000);
  t.a.Connect();  // The job waits for b, and a set must not end that.
  ASSERT_EQ(t.job().state(), JobState::kRecovering);
  t.Step(SetMax(5));
  EXPECT_EQ(t.config.saved[kJob].membership, members);
  EXPECT_EQ(t.config.saved[kJob].settings->settings.max_workers, 5u);
  t.b.Connect();
  EXPECT_EQ(t.job().settings().max_workers, 5u);
  EXPECT_EQ(t.job().state(), JobState::kRunning);
}

TEST(SetJobTest, WhatIsSetBackDuringARecoveryStaysSetBack) {
  SetWithStateFile t;
  t.Crash(5000);
  t.a.Connect();
  SetJob back = SetMax(2);
  back.loss_policy = LossPolicy::kShrink;
  t.Step(back);
  t.b.Connect();
  EXPECT_EQ(t.job().settings(), Settings(1, 2, 2));
  t.RestartAndConnect();
  EXPECT_EQ(t.job().settings(), Settings(1, 2, 2));
}

TEST(SetJobTest, WhatIsSetEndsWithItsRun) {
  SetWithStateFile t;
  t.Crash(5000);
  TestWorker& c = t.Worker("c");
  c.run = "another";
  c.Connect();
  EXPECT_EQ(t.job().settings(), Settings(1, 2, 2));
  EXPECT_EQ(t.job().loss_policy(t.config), LossPolicy::kShrink);
}

TEST(SetJobTest, WorkersThatAskForOtherNumbersAreOfAnotherRun) {
  SetWithStateFile t;
  t.Crash(5000);
  TestWorker& c = t.Worker("c");
  c.settings = Settings(4, 4, 4);
  c.Connect();
  EXPECT_FALSE(c.ended.has_value()) << c.ended->text;
  EXPECT_EQ(t.job().settings(), Settings(4, 4, 4));
  EXPECT_THAT(t.NoteText(NoteKind::kJobSet), HasSubstr("worker c asks for max_workers = 4"));
}

TEST(SetJobTest, WhatIsSetEndsWithTheJob) {
  SetWithStateFile t;
  t.Step(WorkerExited{kJob, "a"});
  t.Step(WorkerExited{kJob, "b"});
  ASSERT_TRUE(t.config.saved[kJob].settings.has_value());
  t.Sleep(t.config.idle_job_timeout + absl::Minutes(1));
  ASSERT_EQ(t.core->FindJob(kJob), nullptr);
  EXPECT_FALSE(t.config.saved[kJob].settings.has_value());
}

TEST(SetJobTest, AConfigurationThatForbidsWhatWasSetTakesPrecedence) {
  Config config = WithStateFile();
  config.evict_late_after = absl::Seconds(20);
  SetWithStateFile t(config);
  SetJob set = Set();
  set.late_policy = LatePolicy::kEvict;
  t.Step(set);
  t.config.evict_late_after = absl::InfiniteDuration();
  t.RestartAndConnect();
  EXPECT_EQ(t.job().settings(), Settings(1, 2, 2));
  EXPECT_THAT(t.NoteText(NoteKind::kJobSet), HasSubstr("round.evict_late_after is none"));
  SetWithStateFile u;
  u.config.max_workers = 2;
  u.RestartAndConnect();
  EXPECT_EQ(u.job().settings(), Settings(1, 2, 2));
  EXPECT_THAT(u.NoteText(NoteKind::kJobSet), HasSubstr("limits.workers"));
}

TEST(SetJobTest, Fault_A1_WithoutAStateFileTheJobHasWhatItsWorkersDeclared) {
  Running t(Settings(1, 2, 2));
  SetJob set = SetMax(3);
  set.loss_policy = LossPolicy::kAbort;
  t.Step(set);
  TestWorker& c = t.Join("c");
  t.Round();
  ASSERT_EQ(c.role, Role::kMember);
  for (TestWorker* worker : {&t.a, &t.b, &c}) worker->Contribute();
  for (TestWorker* worker : {&t.a, &t.b, &c}) {
    worker->fresh = false;
    worker->settings = Settings(1, 2, 2);
  }
  t.Crash(5000);
  for (TestWorker* worker : {&t.a, &t.b, &c}) worker->Connect();
  EXPECT_EQ(t.job().settings().max_workers, 2u);
  EXPECT_EQ(t.job().loss_policy(t.config), LossPolicy::kShrink);
  EXPECT_THAT(t.a.membership.members, testing::ElementsAre("a", "b", "c"))
      << "members stay, also beyond max_workers";
  for (TestWorker* worker : {&t.a, &t.b, &c}) worker->Contribute();
  EXPECT_EQ(t.a.verdict().value.divisor, 3u);
  EXPECT_EQ(t.Join("d").role, Role::kSpare);
}

TEST(SetJobTest, Fault_A1_WithoutAStateFileTheFirstWorkerDecidesWhatTheOthersMustDeclare) {
  Running t(Settings(1, 2, 2));
  t.Step(SetMax(3));
  TestWorker& c = t.Worker("c");
  c.settings = Settings(1, 3, 2);  // It was started with the operator's settings.
  c.Connect();
  ASSERT_FALSE(c.ended.has_value()) << c.ended->text;
  for (TestWorker* worker : {&t.a, &t.b, &c}) worker->fresh = false;
  t.Crash(5000);
  t.a.Connect();
  c.Connect();
  ASSERT_TRUE(c.ended.has_value());
  EXPECT_EQ(c.ended->code, ErrorCode::kMismatch);
  EXPECT_THAT(c.ended->text, HasSubstr("max_workers"));
}

TEST(SetJobTest, TheLossPolicyIsThatOfTheJob) {
  Three t;
  SetJob set = Set();
  set.loss_policy = LossPolicy::kAbort;
  t.Step(set);
  t.a.Begin();
  t.Lose("b");
  EXPECT_EQ(t.a.verdict().value.outcome, Outcome::kAborted);
  EXPECT_THAT(t.a.verdict().value.reason, HasSubstr("loss policy is abort"));
  EXPECT_EQ(t.a.verdict().value.abort_cause, AbortCause::kLoss);
}

TEST(SetJobTest, TheLatePolicyIsThatOfTheJob) {
  Config config;
  config.evict_late_after = absl::Seconds(20);
  Three t(Settings(1, 4, 3), config);
  t.a.Contribute();
  t.c.Contribute();
  t.Sleep(absl::Seconds(60));
  ASSERT_EQ(t.Notes(NoteKind::kWorkerLost), 0u);
  SetJob set = Set();
  set.late_policy = LatePolicy::kEvict;
  t.Step(set);
  t.Sleep(absl::Seconds(1));
  EXPECT_EQ(t.b.ended->code, ErrorCode::kEvicted);
}

TEST(SetJobTest, WhatTheBoundsForbidChangesNothing) {
  Config config;
  config.max_workers = 10;
  Running t(Settings(1, 4, 2), config);
  SetJob evict = Set();
  evict.late_policy = LatePolicy::kEvict;
  const std::pair<SetJob, const char*> refusals[] = {
      {SetMin(5), "min_workers would be 5 and max_workers 4"},
      {SetMin(0), "choose 1 <= min_workers"},
      {SetMax(11), "limits.workers"},
      {SetMax(1), "it has 2 workers; drain some of them first"},
      {evict, "round.evict_late_after"},
  };
  for (const auto& [set, why] : refusals) {
    const Coordinator before = *t.core;
    EXPECT_THAT(WhyNot(t, set), HasSubstr(why));
    t.Step(set);
    EXPECT_EQ(Fingerprint::Of(before.Fields()), Fingerprint::Of(t.core->Fields())) << why;
  }
  EXPECT_EQ(t.Notes(NoteKind::kJobSet), 0u);
}

TEST(SetJobTest, MoreWorkersThanTheMemoryHasRoomForAreRefused) {
  Config config;
  config.memory_bytes = 40 * kChunkBytes;
  config.frame_bytes = kChunkBytes;
  Running t(Settings(1, 2, 2), config);
  EXPECT_THAT(WhyNot(t, SetMax(1000)), HasSubstr("more bytes for its lanes"));
  t.Step(SetMax(1000));
  EXPECT_EQ(t.job().settings().max_workers, 2u);
  t.Round();
  EXPECT_EQ(t.a.lane().last, 2u);
}

TEST(SetJobTest, WhatHasBeenSetCanBeSetAgain) {
  Running t(Settings(1, 2, 2));
  SetJob set = SetMax(7);
  set.min_workers = 2;
  t.Step(set);
  EXPECT_EQ(WhyNot(t, set), "") << "so a caller that asks again learns that it was done";
  t.Step(set);
  EXPECT_EQ(t.Notes(NoteKind::kJobSet), 1u);
}

TEST(SetJobTest, AJobThatIsFormingStartsWithWhatIsLeft) {
  Cluster t(Settings(2, 4, 4));
  t.Join("a");
  t.Join("b");
  ASSERT_EQ(t["a"].role, Role::kJoiner);
  t.Step(SetMax(2));
  EXPECT_EQ(t["a"].role, Role::kMember) << "start_workers cannot be above max_workers";
}

// ---- limits.job_memory

TEST(JobMemory, AJobThatCannotRunWithinItsShareIsRefusedWithTheNumbers) {
  Config config;
  config.frame_bytes = kChunkBytes;
  config.max_job_bytes = 4 * kChunkBytes;
  Cluster t(Settings(1, 4, 1), config);
  t.Join("a");
  ASSERT_TRUE(t["a"].ended.has_value());
  EXPECT_EQ(t["a"].ended->code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(t["a"].ended->text,
              HasSubstr("(limits.job_memory). Lower max_workers, or have the limit raised."));
}

TEST(JobMemory, OneJobLeavesTheRestToTheOthers) {
  Config config;
  config.frame_bytes = kChunkBytes;
  config.memory_bytes = 400 * kChunkBytes;
  config.max_job_bytes = 100 * kChunkBytes;
  Cluster t(Settings(1, 2, 1), config);
  TestWorker& a = t.Join("a");
  a.Register({Tensor("large", 200)}, "another");
  for (int i = 0; i < 8; ++i) a.Register({Tensor("large", 200)}, "lane" + std::to_string(i));
  EXPECT_LE(t.core->reserved_bytes(), config.max_job_bytes);
  TestWorker& b = t.Worker("b");
  b.job = "other";
  b.Connect();
  EXPECT_FALSE(b.ended.has_value()) << b.ended->text;
  EXPECT_GE(config.memory_bytes - t.core->reserved_bytes(), config.max_job_bytes);
}

TEST(JobMemory, ALaneThatNeedsMoreThanTheShareIsRefused) {
  Config config;
  config.frame_bytes = kChunkBytes;
  config.max_job_bytes = 20 * kChunkBytes;
  Cluster t(Settings(1, 2, 1), config);
  TestWorker& a = t.Join("a");
  a.Register({Tensor("endless", uint64_t{1} << 20)}, "another");
  EXPECT_THAT(a.Last<Rejected>().error.text, HasSubstr("limits.job_memory"));
}

// ---- limits.job_rounds

TEST(Pace, AfterABurstAVerdictWaitsForItsTime) {
  Config config;
  config.max_job_rounds = 10;
  Running t(Settings(1, 4, 2), config);  // This runs one round.
  for (int i = 0; i < 10; ++i) t.Round();
  EXPECT_EQ(t.a.lane().last, 11u) << "a second's worth at once";
  t.Round();
  EXPECT_EQ(t.a.lane().last, 11u);
  EXPECT_EQ(t.core->NextDeadline(), t.now + absl::Milliseconds(100));
  t.Sleep(absl::Milliseconds(99));
  EXPECT_EQ(t.a.lane().last, 11u);
  t.Sleep(absl::Milliseconds(1));
  EXPECT_EQ(t.a.lane().last, 12u);
  for (int i = 0; i < 20; ++i) {
    t.Round();
    t.Sleep(absl::Milliseconds(100));
  }
  EXPECT_EQ(t.a.lane().last, 32u) << "a job at its pace does not wait";
  t.Sleep(absl::Minutes(1));
  for (int i = 0; i < 11; ++i) t.Round();
  EXPECT_EQ(t.a.lane().last, 43u) << "and a quiet one has a burst again";
}

TEST(Pace, IsOfTheJobAndNotOfItsLanes) {
  Config config;
  config.max_job_rounds = 1;
  Running t(Settings(1, 4, 2), config);
  for (TestWorker* worker : {&t.a, &t.b}) worker->Register({Tensor("x")}, "call", LaneKind::kCall);
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute(Spec(ReduceOp::kSum), "call");
  EXPECT_EQ(t.a.lane("call").last, 1u);
  t.Round();
  EXPECT_EQ(t.a.lane().last, 1u);
  t.Sleep(absl::Seconds(1));
  EXPECT_EQ(t.a.lane().last, 2u);
}

TEST(Pace, AWorkerThatIsLostMeanwhileDoesNotHoldTheRound) {
  Config config;
  config.max_job_rounds = 1;
  Running t(Settings(1, 4, 2), config);
  t.Round();
  t.Round();
  ASSERT_EQ(t.a.lane().last, 2u);
  t.Step(WorkerExited{kJob, "b"});
  t.Sleep(absl::Seconds(1));
  EXPECT_EQ(t.a.lane().last, 3u);
}

// ---- past rounds, for observers

TEST(RoundSummaries, HaveTheSplitOfTheTime) {
  Three t;
  t.a.Contribute();
  t.Sleep(absl::Milliseconds(300));
  t.b.Contribute();
  t.Sleep(absl::Milliseconds(500));
  t.c.stages = false;
  t.c.Contribute();
  t.Sleep(absl::Milliseconds(200));
  t.c.Stage();
  const RoundSummary& past = t.job().lanes[0].past.back();
  EXPECT_EQ(past.round, 1u);
  EXPECT_EQ(past.contributors, 3u);
  EXPECT_EQ(past.gathered, absl::Milliseconds(300));
  EXPECT_EQ(past.waited, absl::Milliseconds(500));
  EXPECT_EQ(past.waited_for, "c");
  EXPECT_EQ(past.took, absl::Seconds(1));
  std::vector<std::pair<WorkerId, absl::Duration>> arrivals;
  for (const Arrival& arrival : past.arrivals) arrivals.emplace_back(arrival.worker, arrival.after);
  EXPECT_THAT(arrivals, ::testing::ElementsAre(std::pair("a", absl::ZeroDuration()),
                                               std::pair("b", absl::Milliseconds(300)),
                                               std::pair("c", absl::Milliseconds(800))));
}

TEST(RoundSummaries, HaveTheTimeOfTheirFirstBegin) {
  Running t;
  t.Round();
  t.Sleep(absl::Seconds(3));
  t.Round();
  const std::deque<RoundSummary>& past = t.job().lanes[0].past;
  const RoundSummary& before = past[past.size() - 2];
  EXPECT_EQ(past.back().opened - (before.opened + before.took), absl::Seconds(3));
}

TEST(RoundSummaries, AreTheLastFifty) {
  Running t;
  for (int i = 0; i < 60; ++i) t.Round();
  const Lane& lane = t.job().lanes[0];
  EXPECT_EQ(lane.past.size(), kRememberedRounds);
  EXPECT_EQ(lane.past.back().round, 61u);
  EXPECT_EQ(lane.verdicts.size(), kRememberedVerdicts);
}

TEST(CreditStalls, AreCountedWithTheVerdict) {
  Config config;
  config.frame_bytes = config.window_bytes = kChunkBytes;
  Three t(Settings(1, 3, 3), config);
  const std::vector<TestWorker*> workers = {&t.a, &t.b, &t.c};
  const auto verdict = [&] {
    Note found;
    for (const Note& note : t.notes) {
      if (note.kind == NoteKind::kRoundCommitted) found = note;
    }
    return found;
  };
  for (TestWorker* worker : workers) worker->Begin();
  t.a.PushTensor(0);
  EXPECT_EQ(t.round()->WithoutCredit(), 1u) << "the window has one chunk, and there are two";
  t.b.PushTensor(0);
  t.c.PushTensor(0);
  for (TestWorker* worker : workers) worker->PushTensor(1);
  for (TestWorker* worker : workers) worker->Commit();
  ASSERT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(verdict().contributions, 3u);
  EXPECT_GE(verdict().credit_stalls, 2u);
  for (TestWorker* worker : workers) worker->Skip({1});
  for (TestWorker* worker : workers) worker->Contribute(Spec(ReduceOp::kAverage), kLane, {1});
  ASSERT_EQ(t.a.lane().last, 2u);
  EXPECT_EQ(verdict().credit_stalls, 0u) << "each had room for all that it sent";
}

}  // namespace
}  // namespace basin::aggregator
