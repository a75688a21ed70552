// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The coordinator as a whole: admission and limits, the state file, the drain, and its own stalls.

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/fingerprint.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Pair : Cluster {
  explicit Pair(Config config = {}, JobSettings settings = Settings(1, 3, 2))
      : Cluster(settings, std::move(config)), a(Join("a")), b(Join("b")) {}
  void Round() {
    a.Contribute();
    b.Contribute();
  }
  TestWorker& a;
  TestWorker& b;
};

// ---- admission

TEST(Admission, Fault_A12_OtherVersionsAreRefusedWithBoth) {
  Cluster t;
  for (const bool protocol : {true, false}) {
    Hello hello = t.Worker("a").MakeHello();
    (protocol ? hello.protocol_version : hello.contract_version) = 7;
    t["a"].Connect(hello);
    EXPECT_EQ(t["a"].ended->code, ErrorCode::kVersionMismatch);
    EXPECT_THAT(t["a"].ended->text, HasSubstr("7"));
    EXPECT_THAT(t["a"].ended->text, HasSubstr("this aggregator speaks 1"));
  }
  EXPECT_EQ(t.Notes(NoteKind::kJobRefused), 2u);
}

TEST(Admission, TheNumberOfJobsIsBounded) {
  Config config;
  config.max_jobs = 1;
  Cluster t(Settings(1, 1, 1), config);
  t.Join("a");
  t.Worker("b").job = "other";
  t["b"].Connect();
  EXPECT_EQ(t["b"].ended->code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(t["b"].ended->text, HasSubstr("limits.jobs"));
}

// A service with workers of two jobs that come from one address, as many as may.
struct Crowd : Cluster {
  static Config AtMost(uint32_t sessions) {
    Config config;
    config.max_address_sessions = sessions;
    return config;
  }
  explicit Crowd(uint32_t most = 2) : Cluster(Settings(1, 9, 1), AtMost(most)) {
    Come("a", "10.0.0.1");
    Come("b", "10.0.0.1", "other");
  }
  TestWorker& Come(const WorkerId& worker, const std::string& address, const JobName& of = kJob) {
    TestWorker& came = Worker(worker);
    came.address = address;
    came.job = of;
    came.Connect();
    return came;
  }
};

TEST(Admission, Fault_S6_SessionsFromOneAddressAreBoundedInAllJobsTogether) {
  Crowd t;
  EXPECT_FALSE(t["a"].ended.has_value());
  EXPECT_FALSE(t["b"].ended.has_value());
  for (const JobName job : {kJob, "other", "third"}) {
    const TestWorker& c = t.Come("c", "10.0.0.1", job);
    ASSERT_TRUE(c.ended.has_value()) << job;
    EXPECT_EQ(c.ended->code, ErrorCode::kResourceExhausted);
    EXPECT_THAT(c.ended->text,
                AllOf(HasSubstr("Worker c of job " + job), HasSubstr("10.0.0.1"),
                      HasSubstr("2 sessions"), HasSubstr("limits.address_sessions")));
  }
  EXPECT_EQ(t.Notes(NoteKind::kAddressRefused), 3u);
  EXPECT_EQ(t.Notes(NoteKind::kJobRefused), 0u);
  EXPECT_EQ(t.core->FindJob("third"), nullptr) << "a refused hello makes no job";
}

TEST(Admission, Fault_S6_OtherAddressesAreAdmittedBesideACrowdedOne) {
  Crowd t;
  EXPECT_FALSE(t.Come("d", "10.0.0.2").ended.has_value());
  EXPECT_FALSE(t.Come("e", "").ended.has_value()) << "an address that is not known has no limit";
  EXPECT_FALSE(t.Come("f", "").ended.has_value());
  EXPECT_FALSE(t.Come("g", "").ended.has_value());
}

TEST(Admission, Fault_S6_ASessionThatEndedMakesRoom) {
  Crowd t;
  EXPECT_TRUE(t.Come("c", "10.0.0.1").ended.has_value());
  t["b"].Close();
  EXPECT_FALSE(t.Come("c", "10.0.0.1").ended.has_value());
  EXPECT_TRUE(t.Come("d", "10.0.0.1").ended.has_value());
  t.Step(EvictWorker{kJob, "c", "a test"});
  EXPECT_FALSE(t.Come("d", "10.0.0.1").ended.has_value());
}

TEST(Admission, Fault_S6_AProcessThatReturnsIsAdmittedToACrowdedAddress) {
  Crowd t;
  // Its earlier session is not over yet, as far as the aggregator knows.
  t["a"].Connect();
  EXPECT_FALSE(t["a"].ended.has_value());
  // Another process under its name is a newcomer.
  t["a"].Restart();
  t["a"].Connect();
  ASSERT_TRUE(t["a"].ended.has_value());
  EXPECT_EQ(t["a"].ended->code, ErrorCode::kResourceExhausted);
}

TEST(Admission, Fault_S6_WithoutALimitAnyNumberComesFromOneAddress) {
  Crowd t(0);
  for (int i = 0; i < 7; ++i) {
    EXPECT_FALSE(t.Come("w" + std::to_string(i), "10.0.0.1", "third").ended.has_value());
  }
}

TEST(Admission, TheNumberOfWorkersIsBounded) {
  Config config;
  config.max_workers = 2;
  Cluster t(Settings(1, 2, 2), config);
  t.Join("a");
  t.Join("b");
  t.Join("c");
  EXPECT_EQ(t["c"].ended->code, ErrorCode::kResourceExhausted);
  Cluster u(Settings(1, 3, 3), config);
  u.Join("a");
  EXPECT_THAT(u["a"].ended->text,
              HasSubstr("max_workers = 3; this aggregator allows 2 (limits.workers)"));
}

TEST(Admission, ThePlaceOfAWorkerThatIsGoneIsUsedAgain) {
  Config config;
  config.max_workers = 3;
  Pair t(config, Settings(1, 2, 2));
  for (int i = 0; i < 10; ++i) {
    const WorkerId id = "x" + std::to_string(i);
    t.Join(id);
    EXPECT_EQ(t[id].role, Role::kSpare) << id;
    t.Step(WorkerExited{kJob, id});
  }
  EXPECT_EQ(t.job().workers.size(), 3u);
  EXPECT_FALSE(t.job().workers.Find("x8").has_value());
  EXPECT_EQ(t.job().workers.Find("x9"), 2u);
  t.Round();
  EXPECT_EQ(t.b.lane().delivered[1].at({0, 0}), (Reduced{3, 2}));
  // The job has forgotten a worker whose slot was given away, so it takes the worker for a new one.
  t["x3"].Connect();
  EXPECT_EQ(t["x3"].role, Role::kJoiner);
  EXPECT_FALSE(t.job().workers.Find("x9").has_value());
}

TEST(Admission, ThePlaceOfAWorkerThatIsStillReferredToIsNot) {
  Config config;
  config.max_workers = 2;
  Pair t(config, Settings(1, 2, 2));
  t.a.Contribute();
  t.Step(WorkerExited{kJob, "a"});  // Its contribution counts.
  t.Worker("n").Connect();
  EXPECT_EQ(t["n"].ended->code, ErrorCode::kResourceExhausted);
  t.b.Contribute();
  EXPECT_EQ(t.b.lane().delivered[1].at({0, 0}), (Reduced{3, 2}));
  t["n"].Connect();
  EXPECT_FALSE(t["n"].ended.has_value()) << "the round is over, and it is in no list";
  EXPECT_EQ(t["n"].incarnation.counter, 3u);
  t.b.Contribute();
  EXPECT_EQ(t.b.lane().delivered[2].at({0, 0}), (Reduced{2, 1}));
}

TEST(Admission, AnIdleCallMakesRoomForAnother) {
  Config config;
  config.max_lanes = 2;
  config.max_lane_names = 3;
  Cluster t(Settings(1, 1, 1), config);
  TestWorker& a = t.Join("a");
  a.Register({Tensor("x")}, "call/1", LaneKind::kCall);
  a.Contribute(Spec(ReduceOp::kSum), "call/1");
  a.Register({Tensor("x")}, "call/2", LaneKind::kCall);
  EXPECT_EQ(a.Count<Rejected>(), 0u) << "the first one is idle";
  EXPECT_TRUE(t.job().lanes[1].expired);
  a.Contribute(Spec(ReduceOp::kSum), "call/2");
  EXPECT_EQ(a.lane("call/2").last, 1u);
  // Each takes the place of the other, and keeps its number.
  a.Contribute(Spec(ReduceOp::kSum), "call/1");
  a.Contribute(Spec(ReduceOp::kSum), "call/2");
  EXPECT_EQ(a.lane("call/1").last, 2u);
  EXPECT_EQ(a.lane("call/2").last, 2u);
  EXPECT_EQ(t.job().lanes.InUse(), 2u);
  // The worker does not let go of any.
  a.Register({Tensor("x")}, "call/3", LaneKind::kCall);
  EXPECT_THAT(a.Last<Rejected>().error.text,
              HasSubstr("3 lane names, which is its limit (limits.lane_names)"));
}

TEST(Admission, ACallInFlightMakesNoRoom) {
  Config config;
  config.max_lanes = 2;
  Cluster t(Settings(1, 1, 1), config);
  TestWorker& a = t.Join("a");
  a.Register({Tensor("x")}, "call/1", LaneKind::kCall);
  a.Contribute(Spec(ReduceOp::kSum), "call/1");
  a.Register({Tensor("x")}, "call/2", LaneKind::kCall);
  a.Begin(Spec(ReduceOp::kSum), "call/2");
  a.Register({Tensor("x")}, "call/3", LaneKind::kCall);
  EXPECT_THAT(a.Last<Rejected>().error.text,
              HasSubstr("reached its limit of 2 lanes (limits.lanes), and each call among them"));
  // A call that has begun does not wait for room.
  a.Contribute(Spec(ReduceOp::kSum), "call/1");
  EXPECT_EQ(a.lane("call/1").last, 2u);
  EXPECT_EQ(a.Count<Rejected>(), 1u);
}

TEST(Admission, LanesTensorsAndBytesAreBounded) {
  Config config;
  config.max_lanes = 1;
  config.max_tensors = 3;
  config.max_lane_bytes = 4 * kChunkBytes;
  Cluster t(Settings(1, 1, 1), config);
  TestWorker& a = t.Join("a");
  a.Register({Tensor("x")}, "second");
  EXPECT_THAT(a.Last<Rejected>().error.text, HasSubstr("reached its limit of 1 lane"));
  a.Register({Tensor("large", 3)});
  EXPECT_THAT(a.Last<Rejected>().error.text, HasSubstr("more than 1048576 bytes"));
  a.Register({{"huge", DType::kF32, {uint64_t{1} << 60}}});
  EXPECT_THAT(a.Last<Rejected>().error.text, HasSubstr("more than 1048576 bytes"));
  a.Register({{"none", DType::kUnspecified, {1}}});
  EXPECT_THAT(a.Last<Rejected>().error.text, HasSubstr("has no size"));
  a.Register({Tensor("x"), Tensor("y")});
  EXPECT_THAT(a.Last<Rejected>().error.text,
              HasSubstr("3 tensors, which is its limit (limits.tensors)"));
  EXPECT_EQ(a.lane().tensors.size(), 3u);
}

TEST(Admission, WhatNoHelloCouldTellIsNotRegistered) {
  Config config;
  config.max_history_bytes = 100000;
  Cluster t(Settings(1, 10, 1), config);
  TestWorker& a = t.Join("a");  // Its lane has two tensors.
  std::vector<TensorSpec> many;
  for (int i = 0; i < 2000; ++i) many.push_back(Tensor("tensor" + std::to_string(i)));
  a.Register(many);
  EXPECT_THAT(a.Last<Rejected>().error.text,
              HasSubstr("lane model: with tensor tensor534 as f32[65536] the hello of a returning "
                        "worker could reach 100010 bytes for "));
  EXPECT_THAT(a.Last<Rejected>().error.text,
              HasSubstr("1 lane and 10 workers, but the limit is 100000"));
  const size_t tensors = a.lane().tensors.size();
  EXPECT_GT(tensors, 500u);
  EXPECT_LT(tensors, 1000u);
  a.Register({Tensor("x")}, "second");
  EXPECT_EQ(a.rejected(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(a.Last<Rejected>().error.text, HasSubstr("lane second: with this lane the hello"));
  // The existing tensors still work.
  a.Contribute();
  EXPECT_EQ(a.lane().last, 1u);
}

TEST(Admission, JobsDoNotSeeEachOther) {
  Cluster t(Settings(1, 2, 1));
  t.Join("a");
  TestWorker& b = t.Worker("b");
  b.job = "other";
  t.Join("b");
  EXPECT_THAT(t["a"].membership.members, ElementsAre("a"));
  EXPECT_THAT(b.membership.members, ElementsAre("b"));
  t["a"].Contribute();
  b.Contribute();
  EXPECT_EQ(b.lane().delivered[1].at({0, 0}), (Reduced{2, 1}));
  EXPECT_EQ(t.core->jobs().size(), 2u);
}

TEST(Admission, ASessionHasOneHello) {
  Pair t;
  t.a.Send(t.a.MakeHello());
  EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
}

TEST(Admission, WhatComesBeforeAHelloOrForNobodyIsIgnored) {
  Cluster t;
  t.Step(SessionOpened{50, 1});
  t.Step(MessageReceived{50, Heartbeat{}});
  t.Step(MessageReceived{51, Heartbeat{}});
  t.Step(MessageReceived{51, t.Worker("a").MakeHello()});
  t.Step(FrameReceived{});
  t.Step(BlobReceived{});
  t.Step(SessionLost{51, true});
  t.Step(SessionLost{50, true});
  t.Step(ReduceDone{});
  t.Step(StateSaved{});
  t.Step(SuspendJob{"x"});
  t.Step(ResumeJob{"x"});
  t.Step(RecoverJob{"x"});
  t.Step(DrainWorker{"x", "y"});
  t.Step(EvictWorker{"x", "y", "z"});
  EXPECT_THAT(t.log, IsEmpty());
}

TEST(Admission, SessionsThatHaveEndedAreForgotten) {
  Pair t;
  const Coordinator before = *t.core;
  for (int i = 0; i < 3; ++i) {
    TestWorker& x = t.Worker("x");
    x.settings = Settings(3, 3, 3);
    x.Connect();
    EXPECT_TRUE(x.ended.has_value());
  }
  EXPECT_EQ(Fingerprint::Of(before.Fields()), Fingerprint::Of(t.core->Fields()))
      << "a refused worker leaves nothing behind";
}

// ---- messages that name what does not exist

TEST(Bounds, NoMessageReachesOutsideTheLanes) {
  Pair t;
  t.a.Begin();
  const LaneIndex lane = 77;
  const std::vector<ToAggregator> messages = {
      basin::Begin{lane, 1, Spec(ReduceOp::kSum), {}, 0, {}},
      Skip{lane, 1, {}},
      Skip{lane, 1, {0}},
      Skip{0, 1, {99}},
      basin::Commit{lane, 1, 0, {}, 0, 0, 0},
      Withdraw{lane, 1, ""},
      Staged{lane, 1, {}},
      Staged{0, 1, {}},
      ResultAck{lane, 1, {}, {}},
      ResultAck{lane, 1, {}, {{0, 0, 1}}},
      ResultAck{0, 1, t.round()->ballot, {{9, 0, 1}}},
      ResultAck{0, 99, {}, {{0, 0, 1}}},
      Need{lane, 1, {}, {}},
      Need{0, 1, {}, {{0, 5, 1}}},
      Need{0, 1, {}, {{0, 0, 1}}},
      LayoutSeen{lane, 3},
  };
  for (const ToAggregator& message : messages) t.a.Send(message);
  EXPECT_NE(t.a.session, 0u) << "refused, and nothing worse";
  t.a.PushTensor(0);
  t.a.PushTensor(1);
  t.a.Commit();
  t.b.Contribute();
  EXPECT_EQ(t.a.lane().last, 1u);
}

// ---- the state file

Config WithFile() {
  Config config;
  config.state_file = true;
  return config;
}

TEST(StateFile, NobodyIsToldAGenerationBeforeItIsWrittenDown) {
  Cluster t(Settings(1, 3, 2), WithFile());
  t.saves = false;
  t.Join("a");
  t.Join("b");
  ASSERT_EQ(t.saves_asked.size(), 1u);
  EXPECT_EQ(t["a"].Count<MembershipChanged>(), 0u);
  t.FinishSaves();
  EXPECT_EQ(t["a"].role, Role::kMember);
  EXPECT_THAT(t["b"].membership.members, ElementsAre("a", "b"));
}

TEST(StateFile, AVerdictThatChangesTheMembersWaitsForIt) {
  Pair t(WithFile());
  t.Round();
  TestWorker& j = t.Join("j");
  t.saves = false;
  t.Round();
  EXPECT_EQ(t.saves_asked.size(), 1u);
  EXPECT_EQ(t.a.lane().last, 1u) << "everyone has staged, and nobody is told yet";
  EXPECT_EQ(j.role, Role::kJoiner);
  t.FinishSaves();
  EXPECT_EQ(t.a.lane().last, 2u);
  EXPECT_THAT(t.a.verdict().next.members, ElementsAre("a", "b", "j"));
  EXPECT_EQ(j.role, Role::kMember);
}

// No remaining worker takes part in a call whose value is fixed, until a worker that has joined
// does.
TEST(StateFile, WhoBeginsACallMeanwhileGetsItsValueBeforeTheVerdict) {
  constexpr char kCall[] = "call/x";
  Cluster t(Settings(2, 2, 2), WithFile());
  const auto join = [&](const char* id) {
    TestWorker& worker = t.Worker(id);
    worker.Connect();
    worker.Register({Tensor("x")}, kCall, LaneKind::kCall);
    worker.Ready();
  };
  for (const char* id : {"a", "b"}) join(id);
  for (const char* id : {"a", "b"}) t[id].Contribute(Spec(ReduceOp::kSum), kCall);
  t["a"].Send(Finished{});
  t["b"].stages = false;
  t["b"].Contribute(Spec(ReduceOp::kSum), kCall);
  t.Step(WorkerExited{kJob, "b"});
  t.saves = false;
  join("k");
  t.FinishSaves();
  ASSERT_EQ(t["k"].role, Role::kMember);
  ASSERT_EQ(t.saves_asked.size(), 1u) << "the verdict waits for the members that follow";
  t["k"].Contribute(Spec(ReduceOp::kSum), kCall);
  t.saves = true;
  t.FinishSaves();
  EXPECT_EQ(t["k"].lane(kCall).last, 1u);
  t["k"].Send(Need{0, 2, t["k"].Last<Prepared>().value_ballot, {{0, 0, 1}}});
  t["k"].Connect();  // No worker is left that holds the value, so the call runs again.
  ASSERT_EQ(t["k"].lane(kCall).last, 2u);
  EXPECT_EQ(t["k"].lane(kCall).delivered[2].at({0, 0}).sum, t["k"].value);
}

TEST(StateFile, WhoIsReplacedMeanwhileIsNotAmongTheNextMembers) {
  Pair t(WithFile());
  t.Round();
  TestWorker& j = t.Join("j");
  t.saves = false;
  t.Round();
  j.Restart();
  j.Connect();
  t.FinishSaves();
  EXPECT_EQ(t.a.lane().last, 2u);
  EXPECT_THAT(t.a.verdict().next.members, ElementsAre("a", "b"));
  EXPECT_EQ(j.role, Role::kJoiner) << "its new process has no model yet";
}

TEST(StateFile, ADonorThatIsReplacedMeanwhileHasNoStateToGive) {
  Cluster t(Settings(2, 3, 2), WithFile());
  TestWorker& a = t.Join("a");
  TestWorker& b = t.Join("b");
  for (TestWorker* worker : {&a, &b}) worker->Contribute();
  ASSERT_EQ(a.lane().last, 1u);
  t.saves = false;
  a.Restart();
  a.Connect();
  a.Ready();
  ASSERT_EQ(t.saves_asked.size(), 1u) << "admitted in the pause, with b as its donor";
  b.Restart();
  b.Connect();
  t.saves = true;
  t.FinishSaves();
  EXPECT_EQ(a.role, Role::kJoiner);
  EXPECT_EQ(b.role, Role::kJoiner);
  b.Ready();
  EXPECT_EQ(a.role, Role::kMember);
  EXPECT_EQ(b.role, Role::kMember);
}

TEST(StateFile, Fault_A8_AFailureIsToldAndSurvived) {
  Cluster t(Settings(1, 3, 2), WithFile());
  t.save_ok = false;
  t.Join("a");
  t.Join("b");
  EXPECT_EQ(t["a"].role, Role::kMember);
  EXPECT_EQ(t.Notes(NoteKind::kStateFileFailed), 1u);
}

TEST(StateFile, Fault_A8_ADiskThatHangsIsToldAndSurvived) {
  Pair t(WithFile());
  t.Round();
  TestWorker& j = t.Join("j");
  t.saves = false;
  t.Round();
  ASSERT_EQ(t.saves_asked.size(), 1u);
  t.Sleep(t.config.lease - absl::Milliseconds(100));
  EXPECT_EQ(t.a.lane().last, 1u);
  t.Sleep(absl::Milliseconds(200));
  EXPECT_EQ(t.a.lane().last, 2u);
  EXPECT_EQ(j.role, Role::kMember);
  EXPECT_THAT(t.NoteText(NoteKind::kStateFileFailed),
              HasSubstr("has not been written to the state file in 5s"));
  t.FinishSaves();  // The answer arrives nevertheless.
  EXPECT_EQ(t.Notes(NoteKind::kStateFileFailed), 1u);
  j.Contribute();
  t.Round();
  EXPECT_EQ(t.a.lane().last, 3u);
}

TEST(StateFile, Fault_A8_ADiskThatHangsDoesNotHoldUpARecovery) {
  Pair t(WithFile());
  t.Round();
  for (TestWorker* worker : {&t.a, &t.b}) worker->fresh = false;
  t.Crash(5000);
  t.saves = false;
  t.a.Connect();
  t.b.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.Sleep(t.config.lease + absl::Milliseconds(100));
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  t.saves = true;
  t.FinishSaves();
  t.Round();
  EXPECT_EQ(t.a.lane().last, 2u);
}

TEST(StateFile, AGenerationIsNeverWrittenTwice) {
  Cluster t(Settings(1, 2, 2), WithFile());
  t.saves = false;
  t.Join("a");
  t.Join("b");
  const Generation first = t.saves_asked.back().membership.generation;
  // Both are lost before it is written, so the next generation has another number.
  t.Step(WorkerExited{kJob, "a"});
  t.Step(WorkerExited{kJob, "b"});
  t.FinishSaves();
  for (const char* id : {"a", "b"}) {
    t[id].Restart();
    t[id].Connect();
    t[id].Ready();
  }
  ASSERT_FALSE(t.saves_asked.empty());
  EXPECT_TRUE(first < t.saves_asked.back().membership.generation);
}

TEST(StateFile, ADonorThatIsLostMeanwhileIsReplaced) {
  Cluster t(Settings(2, 2, 2), WithFile());
  t.Join("a");
  t.Join("b");
  t["a"].Contribute();
  t["b"].Contribute();
  t.Step(WorkerExited{kJob, "b"});
  t.saves = false;
  t["b"].Restart();
  t["b"].Connect();
  t["b"].Ready();
  ASSERT_EQ(t.saves_asked.size(), 1u);
  t.Step(WorkerExited{kJob, "a"});
  t.FinishSaves();
  EXPECT_EQ(t.job().state(), JobState::kForming) << "nobody has the state any more";
  EXPECT_EQ(t["b"].role, Role::kJoiner);
}

TEST(StateFile, TheListInItMakesAnAnswerOfAProcessWithoutMemory) {
  Pair t(WithFile());
  t.Round();
  t.b.Restart();
  for (TestWorker* worker : {&t.a, &t.b}) worker->fresh = false;
  t.Crash(5000);
  t.a.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.b.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRunning) << "everyone has answered";
  EXPECT_THAT(t.a.membership.members, ElementsAre("a"));
  EXPECT_EQ(t.b.role, Role::kJoiner);
}

TEST(StateFile, EveryoneWithoutMemoryIsFresh) {
  Pair t(WithFile());
  t.Round();
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Restart();
    worker->fresh = false;
  }
  t.Crash(5000);
  t.a.Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kHalted) << "b may hold a verdict";
  t.b.Connect();
  EXPECT_EQ(t.job().state(), JobState::kForming);
}

TEST(StateFile, NobodyWaitsForThoseWhoHaveLeft) {
  Cluster t(Settings(1, 2, 2), WithFile());
  t.Join("a");
  t.Join("b");
  for (const char* worker : {"a", "b"}) t[worker].Send(Leave{});
  EXPECT_THAT(t.config.saved.at(kJob).membership.members, IsEmpty());
  t.Crash(5000);
  t.Worker("c").fresh = false;
  t["c"].Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kForming);
}

TEST(StateFile, WhatItSaidAtTheStartCountsOnce) {
  Config config = WithFile();
  config.saved[kJob] = SavedState{"", 1, {{1, 1}, {{"a", "b"}}}};
  Pair t(config);
  t.Round();
  for (TestWorker* worker : {&t.a, &t.b}) worker->Close();
  t.Sleep(t.config.lease + t.config.idle_job_timeout + absl::Seconds(1));
  ASSERT_EQ(t.core->FindJob(kJob), nullptr);
  t.Worker("c").fresh = false;
  t["c"].Connect();
  EXPECT_EQ(t.job().state(), JobState::kForming);
}

TEST(StateFile, WhatItSaidIsKeptUntilItIsDecided) {
  Config config = WithFile();
  config.saved[kJob] = SavedState{"", 1, {{1, 1}, {{"a", "b"}}}};
  Cluster t(Settings(1, 2, 2), config);
  for (int run = 0; run < 2; ++run) {
    TestWorker& a = t.Worker("a");
    a.fresh = false;
    a.Connect();
    t.Sleep(t.config.recovery_window + absl::Seconds(1));
    EXPECT_EQ(t.job().state(), JobState::kHalted) << "b may hold a verdict";
    a.Close();
    t.Sleep(t.config.lease + t.config.idle_job_timeout + absl::Seconds(1));
    ASSERT_EQ(t.core->FindJob(kJob), nullptr);
  }
}

TEST(StateFile, OfAnotherRunSaysNothing) {
  Config config = WithFile();
  config.saved[kJob] = SavedState{"old", 1, {{1, 1}, {{"a", "b"}}}};
  Cluster t(Settings(1, 1, 1), config);
  t.now += absl::Minutes(1);
  t.Worker("a").run = "new";
  t.Join("a");
  EXPECT_EQ(t["a"].role, Role::kMember);
}

TEST(StateFile, WhoComesWhileARecoveryIsWrittenDownIsWelcomedAfterwards) {
  Pair t(WithFile());
  t.Round();
  for (TestWorker* worker : {&t.a, &t.b}) worker->fresh = false;
  t.config.recovery_window = absl::Seconds(2);
  t.Crash(5000);
  t.saves = false;
  t.a.Connect();
  t.b.Connect();
  ASSERT_EQ(t.saves_asked.size(), 1u);
  const size_t welcomes = t.a.Count<Welcome>();
  // One worker reconnects and one is new, and the deadline of the recovery does not spin.
  t.a.Cut();
  t.a.Connect();
  TestWorker& n = t.Worker("n");
  n.fresh = false;
  n.Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(2));
  EXPECT_EQ(t.a.Count<Welcome>(), welcomes);
  t.FinishSaves();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_EQ(t.a.Count<Welcome>(), welcomes + 1);
  EXPECT_EQ(t.a.role, Role::kMember);
  EXPECT_EQ(n.Count<Welcome>(), 1u);
  t.Round();
  EXPECT_EQ(t.a.lane().last, 2u);
}

TEST(StateFile, WhoRemembersMoreWhileARecoveryIsWrittenDownIsHeard) {
  Pair t(WithFile());
  t.Round();
  for (TestWorker* worker : {&t.a, &t.b}) worker->fresh = false;
  t.Crash(5000);
  t.saves = false;
  t.a.Connect();
  t.b.Connect();
  ASSERT_EQ(t.saves_asked.size(), 1u);
  // It was at another aggregator meanwhile, and has staged the next round there.
  t.a.Cut();
  Hello hello = t.a.MakeHello();
  StagedValue staged{2, {5000, 1}, {5000, 1}, {}};
  staged.value.outcome = Outcome::kAborted;
  staged.value.reason = "everyone withdrew";
  hello.lanes[0].staged = staged;
  t.a.Connect(hello);
  const Generation first = t.saves_asked[0].membership.generation;
  t.FinishSaves();
  ASSERT_EQ(t.saves_asked.size(), 1u) << "it is decided anew";
  EXPECT_LT(first, t.saves_asked[0].membership.generation);
  t.FinishSaves();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_EQ(t.b.lane().last, 2u);
  EXPECT_EQ(t.b.verdict().value.outcome, Outcome::kAborted);
}

// ---- drain of the service

TEST(DrainService, Fault_A3_OpenRoundsEndAndNothingNewBegins) {
  Pair t;
  t.a.Contribute();
  t.Step(DrainService{});
  t.Step(DrainService{});
  EXPECT_EQ(t.Notes(NoteKind::kDraining), 1u);
  EXPECT_TRUE(t.b.Last<Drain>().service);
  EXPECT_FALSE(t.drained);
  EXPECT_TRUE(t.core->draining());
  t.Worker("new").Connect();
  EXPECT_EQ(t["new"].ended->code, ErrorCode::kUnavailable);
  t.b.Contribute();
  EXPECT_EQ(t.a.lane().last, 1u) << "no step is lost";
  EXPECT_TRUE(t.drained);
  EXPECT_EQ(t.a.ended->code, ErrorCode::kUnavailable);
}

TEST(DrainService, ABeginThatComesMeanwhileWaitsForTheNextAggregator) {
  Pair t;
  for (TestWorker* worker : {&t.a, &t.b}) worker->Register({Tensor("x")}, "second");
  t.a.Contribute();  // This opens lane "model".
  t.Step(DrainService{});
  t.a.Begin(Spec(ReduceOp::kSum), "second");
  t.a.PushTensor(0, "second");
  EXPECT_EQ(t.a.Count<Rejected>(), 0u) << "it is no mistake";
  EXPECT_FALSE(t.job().lanes[1].round.has_value());
  t.b.Contribute();
  EXPECT_EQ(t.a.lane().last, 1u);
  ASSERT_TRUE(t.drained);
  EXPECT_EQ(t.a.ended->code, ErrorCode::kUnavailable);
  t.Crash(2);
  for (TestWorker* worker : {&t.a, &t.b}) worker->Connect();
  EXPECT_TRUE(t.job().lanes[1].Open()) << "the begin is repeated on the new session";
  t.a.Commit("second");
  t.b.Contribute(Spec(ReduceOp::kSum), "second");
  EXPECT_EQ(t.a.lane("second").last, 1u);
}

TEST(DrainService, Fault_A3_SessionsThatAreKeptStayAndNothingBeginsInThem) {
  Pair t;
  t.a.Contribute();
  t.Step(DrainService{/*keeps_sessions=*/true});
  t.b.Contribute();
  EXPECT_EQ(t.a.lane().last, 1u) << "no step is lost";
  ASSERT_TRUE(t.drained);
  EXPECT_FALSE(t.a.ended.has_value());
  t.a.Begin(Spec(ReduceOp::kSum));
  t.a.PushTensor(0);
  EXPECT_EQ(t.a.Count<Rejected>(), 0u) << "it is no mistake";
  EXPECT_FALSE(t.job().lanes[0].Open());
  EXPECT_FALSE(t.a.ended.has_value());
  t.Crash(2);
  for (TestWorker* worker : {&t.a, &t.b}) worker->Connect();
  EXPECT_TRUE(t.job().lanes[0].Open()) << "the begin is repeated on the new session";
}

TEST(DrainService, WithNothingOpenItIsOverAtOnce) {
  Pair t;
  t.Step(DrainService{});
  EXPECT_TRUE(t.drained);
}

TEST(DrainService, TheGraceEndsTheWait) {
  Pair t;
  t.a.Contribute();
  t.Step(DrainService{});
  t.Sleep(t.config.drain_grace - absl::Seconds(1));
  EXPECT_FALSE(t.drained);
  t.Sleep(absl::Seconds(2));
  EXPECT_TRUE(t.drained);
}

TEST(DrainService, AMemberOfAnOpenRoundMayComeBack) {
  Pair t;
  t.a.Contribute();
  t.b.Begin();
  t.Step(DrainService{});
  t.b.Cut();
  t.b.Connect();
  EXPECT_FALSE(t.b.ended.has_value());
  t.b.PushTensor(0);
  t.b.PushTensor(1);
  t.b.Commit();
  EXPECT_EQ(t.a.lane().last, 1u);
}

TEST(DrainService, ABeginOfARoundThatIsNotOpenIsLeftToTheNextAggregator) {
  Cluster t(Settings(1, 1, 1));
  t.Worker("a").Connect();
  t["a"].Register({Tensor("w")}, "one");
  t["a"].Register({Tensor("w")}, "two");
  t["a"].Ready();
  t["a"].SendFrame(1, {0, 0, 1}, "two");
  t["a"].Begin(Spec(ReduceOp::kSum), "one");
  t.Step(DrainService{});
  t["a"].Begin(Spec(ReduceOp::kSum), "two");
  EXPECT_EQ(t["a"].rejected(), ErrorCode::kOk);
  EXPECT_FALSE(t.round(1)->begun());
  t["a"].PushTensor(0, "one");
  t["a"].Commit("one");
  EXPECT_TRUE(t.drained);
}

TEST(DrainService, ARecoveringJobIsLetGoToo) {
  Cluster t(Settings(1, 1, 1));
  t.Worker("a").fresh = false;
  t["a"].Connect();
  t.Step(DrainService{});
  EXPECT_TRUE(t.drained);
  EXPECT_EQ(t["a"].ended->code, ErrorCode::kUnavailable);
}

// ---- the bound on jobs

Config TwoJobs() {
  Config config;
  config.max_jobs = 2;
  return config;
}

// A worker of `job` that only sends a hello.
TestWorker& Knock(Cluster& t, const std::string& id, const std::string& job) {
  TestWorker& worker = t.Worker(id);
  worker.job = job;
  worker.Connect();
  return worker;
}

TEST(Jobs, Fault_A6_WhatNeverBeganMakesRoom) {
  Cluster t(Settings(1, 1, 1), TwoJobs());
  t.Join("a");
  TestWorker& first = Knock(t, "b", "first");
  ASSERT_NE(first.session, 0u);
  TestWorker& second = Knock(t, "c", "second");
  EXPECT_NE(second.session, 0u);
  ASSERT_TRUE(first.ended.has_value());
  EXPECT_EQ(first.ended->code, ErrorCode::kUnavailable) << "it comes again";
  EXPECT_THAT(first.ended->text, HasSubstr("limits.jobs"));
  EXPECT_EQ(t.core->FindJob("first"), nullptr);
  EXPECT_EQ(t.Notes(NoteKind::kJobEnded), 1u);
  t["a"].Contribute();
  EXPECT_EQ(t["a"].lane().last, 1u);
}

TEST(Jobs, Fault_A6_WhoIsGoneMakesRoomFirst) {
  Config config = TwoJobs();
  Cluster t(Settings(1, 1, 1), config);
  TestWorker& here = Knock(t, "a", "here");
  TestWorker& gone = Knock(t, "b", "gone");
  gone.Send(Leave{});
  Knock(t, "c", "third");
  EXPECT_FALSE(here.ended.has_value());
  EXPECT_EQ(t.core->FindJob("gone"), nullptr);
}

TEST(Jobs, Fault_A6_WhatHasFinishedMakesRoomFirst) {
  Cluster t(Settings(1, 1, 1), TwoJobs());
  t.Worker("b").job = "finished";
  t.Join("b").Contribute();
  t["b"].Send(Finished{});
  TestWorker& first = Knock(t, "a", "first");
  ASSERT_TRUE(t.job("finished").over());
  EXPECT_NE(t["b"].session, 0u) << "its worker is still connected";
  Knock(t, "c", "third");
  ASSERT_TRUE(first.ended.has_value()) << "a job with a connected worker is not taken away";
  EXPECT_EQ(t.core->FindJob("first"), nullptr);
  t["b"].Send(Leave{});
  TestWorker& fourth = Knock(t, "d", "fourth");
  EXPECT_FALSE(fourth.ended.has_value());
  EXPECT_FALSE(t["c"].ended.has_value());
  EXPECT_EQ(t.core->FindJob("finished"), nullptr);
  EXPECT_THAT(t.NoteText(NoteKind::kJobEnded),
              HasSubstr("Job finished has finished and was removed to make room"));
}

TEST(Jobs, Fault_A6_WhoseWorkersWereLostStays) {
  Cluster t(Settings(1, 1, 1), TwoJobs());
  for (const char* id : {"a", "b"}) {
    t.Worker(id).job = id;
    t.Join(id).Contribute();
    t.Step(WorkerExited{id, id});
  }
  EXPECT_EQ(Knock(t, "c", "third").ended->code, ErrorCode::kResourceExhausted);
}

TEST(Jobs, Fault_A6_WhatIsReadyToBeginStays) {
  Cluster t(Settings(2, 2, 2), TwoJobs());
  for (const char* id : {"a", "b"}) {
    Knock(t, id, id);
    t[id].Ready();
  }
  TestWorker& third = Knock(t, "c", "third");
  ASSERT_TRUE(third.ended.has_value());
  EXPECT_EQ(third.ended->code, ErrorCode::kResourceExhausted);
}

TEST(Jobs, Fault_A6_NothingIsRemovedForAJobThatDoesNotFit) {
  Cluster t(Settings(1, 1, 1), TwoJobs());
  for (const char* id : {"a", "b"}) Knock(t, id, id);
  TestWorker& large = t.Worker("c");
  large.job = "large";
  large.settings.max_workers = t.config.max_workers;
  large.Connect();
  ASSERT_TRUE(large.ended.has_value());
  EXPECT_THAT(large.ended->text, HasSubstr("Job large needs at least"));
  for (const char* id : {"a", "b"}) EXPECT_FALSE(t[id].ended.has_value()) << id;
}

TEST(Jobs, Fault_A6_ATeamHasABoundOfItsOwn) {
  Config config;
  config.max_team_jobs = 2;
  Cluster t(Settings(1, 1, 1), config);
  for (const char* job : {"team-a/one", "team-a/two", "team-b/one"}) {
    t.Worker(job).job = job;
    t.Join(job).Contribute();
  }
  EXPECT_EQ(t.core->JobsOfTeam("team-a"), 2u);
  const TestWorker& refused = Knock(t, "a", "team-a/three");
  ASSERT_TRUE(refused.ended.has_value());
  EXPECT_EQ(refused.ended->code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.ended->text,
            "Job team-a/three has no place: team team-a has 2 jobs, which is the limit "
            "(limits.team_jobs). Try again when a job has ended.");
  // Neighbours in the order of names, and jobs that belong to no team.
  int others = 0;
  for (const char* job : {"team-b/two", "team-a", "team-a.b/one", "team-a0/one", "team", "solo"}) {
    EXPECT_FALSE(Knock(t, std::to_string(++others), job).ended.has_value()) << job;
  }
  EXPECT_EQ(t.core->JobsOfTeam("team-a"), 2u);

  // Only a job of the same team makes room.
  for (const char* job : {"team-b/one", "team-a/one"}) {
    t[job].Send(Finished{});
    t[job].Send(Leave{});
    const bool same = TeamOf(job) == "team-a";
    EXPECT_EQ(Knock(t, "a", "team-a/three").ended.has_value(), !same) << job;
    EXPECT_EQ(t.core->FindJob(job) == nullptr, same);
  }
  EXPECT_THAT(t.NoteText(NoteKind::kJobEnded), HasSubstr("limits.team_jobs"));
}

// What is not asked for is remembered, so that users see how their job ended.
TEST(Jobs, IsForgottenAtOnceWhenTheLastWorkerThatLeavesAsks) {
  for (const bool first_asks : {true, false}) {
    for (const bool last_asks : {true, false}) {
      Pair t;
      t.Round();
      t.a.Send(Leave{first_asks});
      EXPECT_NE(t.core->FindJob(kJob), nullptr) << "a worker is there";
      t.b.Contribute();
      EXPECT_EQ(t.b.lane().last, 2u);
      t.b.Send(Leave{last_asks});
      t.Step(Tick{});
      EXPECT_EQ(t.core->FindJob(kJob) == nullptr, last_asks);
      EXPECT_EQ(t.Notes(NoteKind::kJobEnded), last_asks ? 1u : 0u);
      EXPECT_EQ(t.core->reserved_bytes() == 0, last_asks);
      // The next job of this name is a new one.
      t.Worker("n").Connect();
      EXPECT_FALSE(t["n"].ended.has_value());
    }
  }
}

TEST(Jobs, IsRememberedWhenAWorkerIsLostAfterAnotherHasAskedToForgetIt) {
  Pair t;
  t.Round();
  t.a.Send(Leave{true});
  t.Step(WorkerExited{kJob, "b"});
  t.Step(Tick{});
  EXPECT_NE(t.core->FindJob(kJob), nullptr);
}

TEST(Jobs, EachHasItsOwnDeadlines) {
  Cluster t(Settings(1, 1, 1), TwoJobs());
  t.Join("a");
  t.Worker("b").job = "other";
  t.Join("b");
  t["b"].heartbeats = false;
  for (int i = 0; i < 60; ++i) {
    t["a"].Send(Get{{kLane, "w", 1}, std::nullopt, std::nullopt, 0, 0, absl::Milliseconds(150)});
    t.Sleep(absl::Milliseconds(100));
  }
  EXPECT_TRUE(t["b"].ended.has_value()) << "its lease is over";
  EXPECT_FALSE(t["a"].ended.has_value());
  EXPECT_EQ(t.Notes(NoteKind::kStalled), 0u);
  t.Sleep(absl::Minutes(11));
  EXPECT_EQ(t.core->FindJob("other"), nullptr);
  EXPECT_NE(t.core->FindJob(kJob), nullptr);
}

// ---- stalls of this process

TEST(Stall, Fault_A4_NobodyIsEvictedForOurOwnSilence) {
  Pair t;
  t.a.Contribute();
  t.Sleep(absl::Seconds(1));
  t.Stall(absl::Seconds(30));
  t.Step(Tick{});
  EXPECT_EQ(t.Notes(NoteKind::kStalled), 1u);
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 0u);
  EXPECT_GT(t.core->NextDeadline(), t.now) << "there is time to read what has arrived";
  t.b.Contribute();
  EXPECT_EQ(t.a.verdict().value.divisor, 2u);
}

// The loop is late step by step, so no single step shows a stall.
TEST(Stall, Fault_A4_AWorkerWhoseMessagesWaitIsNotSilent) {
  Cluster t(Settings(1, 1, 1), TwoJobs());
  t.Join("a");
  t.Worker("b").job = "other";
  t.Join("b");
  t["a"].heartbeats = t["b"].heartbeats = false;
  for (int i = 0; i < 100; ++i) {
    t.now += absl::Milliseconds(100);
    if (t.core->NextDeadline() <= t.now) t.Step(MessagesWait{{t["a"].session, 4711}});
  }
  EXPECT_FALSE(t["a"].ended.has_value());
  EXPECT_TRUE(t["b"].ended.has_value()) << "nothing of it waits, and its lease is over";
  EXPECT_EQ(t.Notes(NoteKind::kStalled), 0u);
}

// The same for a worker that has lost its connections and is back: only its hello says whose the
// new session is.
TEST(Stall, Fault_A4_AWorkerWhoseHelloWaitsIsNotLost) {
  Pair t;
  t.a.heartbeats = t.b.heartbeats = false;
  t.a.Close();
  t.b.Close();
  const auto hello = [](const TestWorker& worker, Nonce nonce) {
    return WaitingHello{kJob, worker.id, nonce};
  };
  for (int i = 0; i < 100; ++i) {
    t.now += absl::Milliseconds(100);
    // That of another process of b does not keep b.
    const std::vector<WaitingHello> hellos = {hello(t.a, t.a.nonce), hello(t.b, t.b.nonce + 1)};
    if (t.core->NextDeadline() <= t.now) t.Step(MessagesWait{{4711}, hellos});
  }
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 1u);
  const Incarnation before = t.a.incarnation;
  t.a.Connect();
  EXPECT_EQ(t.a.incarnation, before) << "it is the member that it was";
  t.a.Contribute();
  EXPECT_EQ(t.a.verdict().value.divisor, 1u);
}

// A deadline can have passed already when it is set; this process did not pause then.
TEST(Stall, ADeadlineThatHasPassedWhenItIsSetIsNone) {
  Config config;
  config.late_policy = LatePolicy::kEvict;
  config.evict_late_after = absl::Seconds(20);
  Pair t(config);
  t.a.Contribute();
  t.b.Send(Busy{"evaluation", absl::InfiniteDuration()});
  t.Sleep(absl::Seconds(26));
  t.b.Send(Busy{"", absl::ZeroDuration()});
  t.Step(Tick{});
  EXPECT_EQ(t.Notes(NoteKind::kStalled), 0u);
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), 1u) << "it has been late for long enough";
}

TEST(Stall, WhoIsReallyGoneIsLostALittleLater) {
  Pair t;
  t.a.Contribute();
  t.b.heartbeats = false;
  t.Sleep(absl::Seconds(4));
  t.Stall(absl::Seconds(30));
  t.Step(Tick{});
  t.Sleep(t.config.lease + absl::Seconds(1));
  EXPECT_EQ(t.a.verdict().value.divisor, 1u);
}

TEST(Stall, AStallOfADrainExtendsIt) {
  Pair t;
  t.a.Contribute();
  t.Step(DrainService{});
  t.Stall(absl::Minutes(2));
  t.Step(Tick{});
  EXPECT_FALSE(t.drained);
}

// ---- the core as a value

TEST(Core, IsDeterministicAndCanBeCopied) {
  Pair t;
  t.a.Contribute();
  Coordinator copy = *t.core;
  EXPECT_EQ(Fingerprint::Of(copy.Fields()), Fingerprint::Of(t.core->Fields()));
  std::vector<Action> first;
  std::vector<Action> second;
  const MessageReceived event{t.b.session, basin::Begin{0, 1, Spec(ReduceOp::kAverage), {}, 0, {}}};
  copy.Step(event, t.now, first);
  t.core->Step(event, t.now, second);
  EXPECT_EQ(first.size(), second.size());
  EXPECT_EQ(Fingerprint::Of(copy.Fields()), Fingerprint::Of(t.core->Fields()));
}

TEST(Core, Fault_W16_AThousandJoinsAndLeavesLeaveNothingBehind) {
  Cluster t(Settings(1, 2, 1));
  t.Join("a");
  Generation before;
  uint64_t reserved = 0;
  for (int i = 0; i < 1000; ++i) {
    t.Join("b");
    t["a"].Contribute();
    t["b"].lanes.clear();
    EXPECT_TRUE(before < t["a"].membership.generation) << i;
    before = t["a"].membership.generation;
    t["b"].Send(Leave{});
    t["b"].Forget();
    t["a"].Contribute();
    t.ClearLog();
    if (i == 0) reserved = t.core->reserved_bytes();
  }
  EXPECT_EQ(t.core->reserved_bytes(), reserved);
  EXPECT_EQ(t.job().workers.size(), 2u);
  EXPECT_EQ(t.kept_chunks(), 0u);
  EXPECT_EQ(t.held_results(), 0u);
}

TEST(Names, AreDistinct) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(NoteKind::kReduceDeviceFailed); ++i) {
    EXPECT_TRUE(names.insert(NoteKindName(static_cast<NoteKind>(i))).second) << i;
  }
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_STREQ(NoteKindName(static_cast<NoteKind>(200)), "unknown");
  names.clear();
  for (int i = 0; i <= 3; ++i) names.insert(JobStateName(static_cast<JobState>(i)));
  EXPECT_EQ(names.size(), 4u);
  EXPECT_STREQ(JobStateName(static_cast<JobState>(9)), "UNKNOWN");
  names.clear();
  for (int i = 0; i <= 5; ++i) names.insert(WorkerStateName(static_cast<WorkerState>(i)));
  EXPECT_EQ(names.size(), 6u);
  EXPECT_STREQ(WorkerStateName(static_cast<WorkerState>(9)), "UNKNOWN");
}

}  // namespace
}  // namespace basin::aggregator
