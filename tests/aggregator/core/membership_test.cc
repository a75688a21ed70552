// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How members come and go while a job runs: joins at a verdict, leaving, finishing, loss with its
// two graces, eviction, replacement and draining.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// ---- join

TEST(Join, Fault_W17_WaitsForTheVerdictAndCountsInTheNextRound) {
  Running c;
  c.a.Begin();
  TestWorker& j = c.Join("j");
  EXPECT_EQ(j.role, Role::kJoiner);
  c.a.PushTensor(0);
  c.a.PushTensor(1);
  c.a.Commit();
  EXPECT_EQ(j.role, Role::kJoiner);
  c.b.Contribute();
  EXPECT_EQ(j.role, Role::kMember);
  EXPECT_EQ(c.a.verdict().value.contributors.size(), 2u);
  EXPECT_THAT(c.a.verdict().next.members, ElementsAre("a", "b", "j"));
  EXPECT_EQ(j.rank(), 2);
  EXPECT_EQ(j.donor, "a");
  EXPECT_EQ(j.lane().next(), 3u);
  EXPECT_EQ(j.lane().chain, c.a.lane().chain);
  for (TestWorker* worker : {&c.a, &c.b, &j}) worker->Contribute();
  EXPECT_EQ(j.lane().delivered[3].at({0, 0}), (Reduced{7, 3}));
  EXPECT_EQ(j.lane().chain, c.a.lane().chain);
}

// A worker that is not ready yet learns whether the others go on meanwhile.
TEST(Join, AWelcomeReportsThatTheJobGoesOnWithoutTheWorker) {
  Cluster c(Settings(2, 4, 2));
  const auto goes_on = [&](const char* id) {
    c.Worker(id).Connect();
    return c.Worker(id).welcome->job_runs;
  };
  EXPECT_FALSE(goes_on("first")) << "the job forms";
  TestWorker& a = c.Join("a");
  TestWorker& b = c.Join("b");
  EXPECT_FALSE(goes_on("second")) << "the first round is for all that have come";
  for (TestWorker* worker : {&a, &b}) worker->Contribute();
  EXPECT_TRUE(goes_on("third"));
  c.Step(WorkerExited{kJob, "b"});
  EXPECT_FALSE(goes_on("fourth")) << "the job is paused, and waits for a replacement";
  c.Join("j");
  EXPECT_TRUE(goes_on("fifth"));
  a.Send(Finished{});
  c["j"].Send(Finished{});
  EXPECT_FALSE(goes_on("sixth")) << "nobody goes on";
}

TEST(Join, BetweenRoundsWaitsForTheNextVerdict) {
  Running c;
  TestWorker& j = c.Join("j");
  EXPECT_EQ(j.role, Role::kJoiner);
  c.Round();
  EXPECT_EQ(j.role, Role::kMember);
}

TEST(Join, WaitsForTheVerdictThatLeavesNoOtherGradientLaneOpen) {
  Cluster c(Settings(1, 2, 1));
  TestWorker& a = c.Worker("a");
  a.Connect();
  a.Register({Tensor("w")}, "generator");
  a.Register({Tensor("w")}, "discriminator");
  a.Ready();
  a.Contribute({Spec(ReduceOp::kSum)}, "generator");
  TestWorker& j = c.Worker("j");
  j.Connect();
  j.Ready();
  a.Begin(Spec(ReduceOp::kSum), "discriminator");
  a.Contribute(Spec(ReduceOp::kSum), "generator");
  EXPECT_EQ(a.lane("generator").last, 2u);
  EXPECT_EQ(j.role, Role::kJoiner) << "the other lane is open";
  a.PushTensor(0, "discriminator");
  a.Commit("discriminator");
  EXPECT_EQ(j.role, Role::kMember);
  EXPECT_EQ(j.lane("generator").next(), 3u);
  EXPECT_EQ(j.lane("discriminator").next(), 2u);
}

TEST(Join, FramesOfARoundThatNobodyHasBegunDoNotFixItsMembers) {
  Cluster c(Settings(1, 2, 1));
  TestWorker& a = c.Worker("a");
  a.Connect();
  a.Register({Tensor("w")}, "generator");
  a.Register({Tensor("w")}, "discriminator");
  a.Ready();
  a.Contribute(Spec(ReduceOp::kSum), "generator");
  TestWorker& j = c.Worker("j");
  j.Connect();
  j.Ready();
  // A frame of the other lane arrives before its begin.
  a.SendFrame(1, {0, 0, 1}, "discriminator");
  a.Contribute(Spec(ReduceOp::kSum), "generator");
  ASSERT_EQ(j.role, Role::kMember);
  a.Contribute(Spec(ReduceOp::kSum), "discriminator");
  EXPECT_EQ(a.lane("discriminator").last, 0u) << "it waits for the new member";
  j.Contribute(Spec(ReduceOp::kSum), "discriminator");
  EXPECT_EQ(j.lane("discriminator").delivered[1].at({0, 0}), (Reduced{3, 1}));
}

TEST(Join, WaitsWhileACallIsOpen) {
  Running c;
  for (TestWorker* worker : {&c.a, &c.b}) {
    worker->Register({Tensor("x")}, "call/eval", LaneKind::kCall);
  }
  c.a.Begin(Spec(ReduceOp::kSum), "call/eval");
  TestWorker& j = c.Join("j");
  c.Round();
  EXPECT_EQ(j.role, Role::kJoiner) << "it could not take part in the call";
  c.a.PushTensor(0, "call/eval");
  c.a.Commit("call/eval");
  c.b.Contribute(Spec(ReduceOp::kSum), "call/eval");
  EXPECT_EQ(j.role, Role::kJoiner) << "a call's verdict is no boundary of a training job";
  c.Round();
  EXPECT_EQ(j.role, Role::kMember);
  EXPECT_EQ(j.lane("call/eval").next(), 2u);
}

// A job is paused while a call is open, after it has lost one member and another worker has joined.
struct PausedCall : Cluster {
  explicit PausedCall(bool committed = true)
      : Cluster(Settings(2, 3, 2)), a(Join("a")), b(Join("b")) {
    for (TestWorker* worker : {&a, &b}) {
      worker->Register({Tensor("x")}, "call/eval", LaneKind::kCall);
    }
    for (TestWorker* worker : {&a, &b}) worker->Contribute();
    if (committed) {
      a.Contribute(Spec(ReduceOp::kSum), "call/eval");
    } else {
      a.Begin(Spec(ReduceOp::kSum), "call/eval");
    }
    Step(WorkerExited{kJob, "b"});
  }
  TestWorker& a;
  TestWorker& b;
};

// The call's value was fixed before `k` joined, over a, which has not staged it, and over a lost
// worker.
struct PreparedCall : PausedCall {
  PreparedCall() : k(JoinPrepared()) {}
  TestWorker& JoinPrepared() {
    a.stages = false;
    TestWorker& j = Join("j");
    j.Contribute(Spec(ReduceOp::kSum), "call/eval");
    EXPECT_EQ(j.lane("call/eval").last, 0u) << "prepared, and a has not staged it";
    Step(WorkerExited{kJob, "j"});
    return Join("k");
  }
  TestWorker& k;
};

TEST(Join, InAPauseACallThatIsOpenGoesOnWithAllMembers) {
  PausedCall c;
  EXPECT_TRUE(c.job().Paused());
  TestWorker& j = c.Join("j");
  ASSERT_EQ(j.role, Role::kMember);
  EXPECT_EQ(c.a.lane("call/eval").last, 0u) << "it waits for the new member";
  j.Contribute(Spec(ReduceOp::kSum), "call/eval");
  EXPECT_EQ(c.a.verdict("call/eval").value.contributors.size(), 2u);
  EXPECT_EQ(j.lane("call/eval").delivered[1], c.a.lane("call/eval").delivered[1]);
}

TEST(Join, Fault_W19_ACallDoesNotWaitForAJoinerThatWaitsForSomethingElse) {
  PausedCall c;
  TestWorker& j = c.Join("j");
  ASSERT_EQ(j.role, Role::kMember);
  j.Begin();
  for (const TensorIndex tensor : {0, 1}) j.PushTensor(tensor);
  j.Commit();
  EXPECT_EQ(c.a.lane("call/eval").last, 0u) << "its trainer may begin the call as well";
  j.Send(Heartbeat{1, {{9, 1}, {0, 1}, {0, 9}}});
  EXPECT_EQ(c.a.lane("call/eval").last, 0u) << "these rounds are not open";
  j.Send(Heartbeat{1, {{0, 2}}});
  EXPECT_EQ(c.a.lane("call/eval").last, 1u) << "the others may be what it waits for";
  EXPECT_EQ(c.a.verdict("call/eval").value.contributors.size(), 1u);
  EXPECT_EQ(j.lane("call/eval").last, 1u) << "the history of the lane is everybody's";
  for (TestWorker* worker : {&c.a, &j}) worker->Contribute(Spec(ReduceOp::kSum), "call/eval");
  EXPECT_EQ(c.a.verdict("call/eval").round, 2u);
  EXPECT_EQ(c.a.verdict("call/eval").value.contributors.size(), 2u);
  c.a.Contribute();
  EXPECT_EQ(j.lane().last, 2u);
}

TEST(Join, ACallThatAJoinerWithdrawsFromDoesNotWaitForItsBegin) {
  PausedCall c;
  TestWorker& j = c.Join("j");
  ASSERT_EQ(j.role, Role::kMember);
  j.Withdraw("its begin was refused", "call/eval");
  EXPECT_EQ(c.a.lane("call/eval").last, 1u);
  EXPECT_EQ(c.a.verdict("call/eval").value.contributors.size(), 1u);
  EXPECT_EQ(j.lane("call/eval").last, 1u) << "it stages and gets the verdict";
  PreparedCall prepared;
  const size_t before = prepared.k.Count<Prepared>();
  prepared.k.Withdraw("its begin was refused", "call/eval");
  EXPECT_EQ(prepared.k.Count<Prepared>(), before + 1) << "it is asked to stage what is fixed";
}

// The survivors are in a call whose value is fixed, and the joiner's script begins elsewhere. The
// joiner knows nothing of the lane, so the call must not wait for it.
TEST(Join, Fault_W19_APreparedCallDoesNotWaitForAJoinerThatWaitsForSomethingElse) {
  PreparedCall c;
  TestWorker& k = c.k;
  ASSERT_EQ(k.role, Role::kMember);
  c.a.Stage("call/eval");
  EXPECT_EQ(c.a.lane("call/eval").last, 0u) << "k may be about to make the call";
  const size_t before = k.Count<Prepared>();
  k.Begin();
  k.Send(Heartbeat{1, {{0, 2}}});
  EXPECT_EQ(c.a.verdict("call/eval").round, 1u);
  EXPECT_EQ(k.Count<Prepared>(), before);
  EXPECT_EQ(k.lane("call/eval").last, 1u);
}

// The workers that took part in the call are gone, and the others make the next call together.
TEST(Join, Fault_W19_APreparedCallThatNobodyIsInEnds) {
  PausedCall c;
  c.a.stages = false;
  TestWorker& j = c.Join("j");
  j.Begin();
  j.Send(Heartbeat{1, {{0, 2}}});
  ASSERT_EQ(c.a.lane("call/eval").last, 0u) << "prepared over a, which has not staged it";
  c.Step(WorkerExited{kJob, "a"});
  TestWorker& k = c.Join("k");
  ASSERT_EQ(k.role, Role::kMember);
  EXPECT_EQ(j.lane("call/eval").last, 1u);
  EXPECT_EQ(k.lane("call/eval").last, 1u);
}

// The same happens before anything is prepared. Otherwise the next joiner would make this call
// alone, while the other one makes the call after it.
TEST(Join, Fault_W19_ACallThatNobodyIsInEnds) {
  PausedCall c(false);
  TestWorker& j = c.Join("j");
  j.Begin();
  j.Send(Heartbeat{1, {{0, 2}}});
  ASSERT_EQ(c.a.lane("call/eval").last, 0u) << "a has not committed";
  c.Step(WorkerExited{kJob, "a"});
  TestWorker& k = c.Join("k");
  ASSERT_EQ(k.role, Role::kMember);
  for (TestWorker* worker : {&j, &k}) {
    EXPECT_EQ(worker->verdict("call/eval").value.outcome, Outcome::kAborted);
    worker->Contribute(Spec(ReduceOp::kSum), "call/eval");
  }
  EXPECT_EQ(k.verdict("call/eval").round, 2u);
  EXPECT_EQ(k.verdict("call/eval").value.contributors.size(), 2u);
}

TEST(Join, Fault_W19_AJoinerThatFinishesDoesNotHoldUpAPreparedCall) {
  PreparedCall c;
  c.a.Stage("call/eval");
  c.k.Send(Finished{});
  EXPECT_EQ(c.a.verdict("call/eval").round, 1u);
}

// A round with the others has shown that it is in step with them, but the call was open before.
TEST(Join, Fault_W19_AJoinerInStepThatFinishesDoesNotHoldUpACall) {
  PausedCall c;
  TestWorker& j = c.Join("j");
  j.Contribute();
  c.a.Contribute();
  ASSERT_EQ(j.lane().last, 2u);
  ASSERT_EQ(c.a.lane("call/eval").last, 0u) << "its trainer may make the call as well";
  j.Send(Finished{});
  EXPECT_EQ(c.a.verdict("call/eval").round, 1u);
  EXPECT_EQ(c.a.verdict("call/eval").value.contributors.size(), 1u);
}

TEST(Join, AJoinerThatAsksForAValueDoesNotHoldUpACall) {
  PausedCall c;
  TestWorker& j = c.Join("j");
  j.Send(Get{{"model", "state", 1}, std::nullopt, "a", 0, 0, absl::Minutes(1)});
  EXPECT_EQ(c.a.lane("call/eval").last, 1u) << "the donor may serve it after the call";
}

// The trainer has several calls in flight, so it may begin this one after another one.
TEST(Join, AJoinerThatWasLeftOutIsCountedWhenItBeginsAfterAll) {
  PausedCall c(false);
  TestWorker& j = c.Join("j");
  j.Begin();
  j.Send(Heartbeat{1, {{0, 2}}});
  j.Contribute(Spec(ReduceOp::kSum), "call/eval");
  EXPECT_EQ(j.rejected(), ErrorCode::kOk);
  c.a.PushTensor(0, "call/eval");
  c.a.Commit("call/eval");
  EXPECT_EQ(j.verdict("call/eval").value.contributors.size(), 2u);
}

// The value was fixed before it joined, so it takes the result, and its contribution is not
// counted.
TEST(Join, ACallThatIsPreparedGivesItsValueToTheJoiner) {
  PreparedCall c;
  TestWorker& k = c.k;
  ASSERT_EQ(k.role, Role::kMember);
  k.Begin(Spec(ReduceOp::kSum), "call/eval");
  EXPECT_EQ(k.rejected(), ErrorCode::kOk);
  EXPECT_EQ(k.Last<Prepared>().value.contributors.size(), 2u);
  EXPECT_EQ(k.Last<Prepared>().lane, k.lane("call/eval").index);
}

TEST(Join, InAPauseTheDonorIsToldThatItServes) {
  Cluster c(Settings(2, 3, 2));
  TestWorker& a = c.Join("a");
  TestWorker& b = c.Join("b");
  for (TestWorker* worker : {&a, &b}) worker->Contribute();
  c.Step(WorkerExited{kJob, "b"});
  TestWorker& j = c.Join("j");
  ASSERT_EQ(j.role, Role::kMember);
  EXPECT_EQ(j.donor, "a");
  EXPECT_EQ(a.donor, "a");
  EXPECT_TRUE(a.Last<MembershipChanged>().start.empty()) << "it goes on with the state it has";
}

TEST(Join, Fault_W18_WhenTheDonorIsLostAnotherIsNamed) {
  Running c(Settings(1, 3, 2));
  TestWorker& j = c.Join("j");
  c.Round();
  ASSERT_EQ(j.donor, "a");
  const Generation generation = j.membership.generation;
  const size_t told = c.b.Count<MembershipChanged>();
  c.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(j.donor, "b");
  EXPECT_EQ(c.b.donor, "b") << "it is told that it serves";
  EXPECT_EQ(j.membership.generation, generation) << "the state is that of the same boundary";
  EXPECT_EQ(c.b.Count<MembershipChanged>(), told + 1);
  // No worker is left that could be the donor, and none that could use it.
  c.Step(WorkerExited{kJob, "b"});
  EXPECT_EQ(j.ended->code, ErrorCode::kEvicted);
}

TEST(Join, NobodyIsNamedForThoseWhoHaveTheState) {
  Running c(Settings(1, 3, 2));
  TestWorker& j = c.Join("j");
  c.Round();
  j.Begin();
  const size_t told = c.b.Count<MembershipChanged>();
  c.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(c.b.Count<MembershipChanged>(), told);
  EXPECT_EQ(j.donor, "a");
}

TEST(Join, AnyVerdictIsABoundaryWithoutGradientLanes) {
  Cluster c(Settings(1, 2, 1));
  TestWorker& a = c.Worker("a");
  a.Connect();
  a.Register({Tensor("x")}, "call/x", LaneKind::kCall);
  a.Ready();
  a.Contribute(Spec(ReduceOp::kSum), "call/x");
  c.Worker("j").Connect();
  c["j"].Ready();
  a.Contribute(Spec(ReduceOp::kSum), "call/x");
  EXPECT_EQ(c["j"].role, Role::kMember);
}

TEST(Join, OnlyUpToMaxWorkers) {
  Running c(Settings(1, 3, 2));
  TestWorker& j = c.Join("j");
  TestWorker& k = c.Join("k");
  EXPECT_EQ(k.role, Role::kSpare);
  c.Round();
  EXPECT_EQ(j.role, Role::kMember);
  EXPECT_EQ(k.role, Role::kSpare);
  c.b.Send(Leave{});
  for (TestWorker* worker : {&c.a, &j}) worker->Contribute();
  EXPECT_EQ(k.role, Role::kMember) << "there is room at the next verdict";
}

TEST(Join, OneWhoBecameAMemberWhileAwayIsToldWhereItStarts) {
  Running c;
  TestWorker& j = c.Join("j");
  j.Cut();
  c.Round();
  EXPECT_THAT(c.a.membership.members, ElementsAre("a", "b", "j"));
  j.Connect();
  EXPECT_EQ(j.role, Role::kMember);
  EXPECT_EQ(j.donor, "a");
  EXPECT_EQ(j.lane().next(), 3u);
  for (TestWorker* worker : {&c.a, &c.b, &j}) worker->Contribute();
  EXPECT_EQ(j.lane().delivered[3].at({0, 0}), (Reduced{7, 3}));
}

TEST(Join, AnEvictedWorkerIsToldAgainAlsoWhenItsOldMembershipNamedIt) {
  Running c;
  c.Step(EvictWorker{kJob, "b", "operator"});
  c.b.Forget();
  c.b.Connect();
  c.b.Ready();
  const Membership stale = c.b.welcome->membership;
  EXPECT_THAT(stale.members, ElementsAre("a", "b")) << "no verdict yet";
  c.b.Cut();
  c.a.Contribute();
  EXPECT_THAT(c.a.membership.members, ElementsAre("a", "b"));
  // It reconnects with the membership from its welcome, which lists it.
  Hello hello = c.b.MakeHello();
  hello.membership = stale;
  c.b.Connect(hello);
  EXPECT_EQ(c.b.role, Role::kMember);
  EXPECT_EQ(c.b.Last<MembershipChanged>().start.size(), 1u);
  EXPECT_EQ(c.b.donor, "a");
}

// ---- leave, finish

TEST(Leave, Fault_W6_TheOthersGoOnAtOnce) {
  Running c;
  c.a.Begin();
  c.b.Send(Leave{});
  EXPECT_EQ(c.b.ended->code, ErrorCode::kOk);
  c.a.PushTensor(0);
  c.a.PushTensor(1);
  c.a.Commit();
  EXPECT_EQ(c.a.verdict().value.divisor, 1u) << "without waiting for a timeout";
  EXPECT_THAT(c.a.verdict().next.members, ElementsAre("a"));
}

TEST(Leave, RanksStayDenseAndInOrder) {
  Running c;
  c.Join("j");
  c.Round();
  EXPECT_EQ(c["j"].rank(), 2);
  c.a.Send(Leave{});
  for (TestWorker* worker : {&c.b, &c["j"]}) worker->Contribute();
  EXPECT_EQ(c.b.rank(), 0);
  EXPECT_EQ(c["j"].rank(), 1);
}

TEST(Finish, CountsForTheMinimumAndContributesNoMore) {
  Running c(Settings(2, 2, 2));
  c.b.Send(Finished{});
  c.a.Contribute();
  EXPECT_EQ(c.a.verdict().value.contributors.size(), 1u);
  EXPECT_THAT(c.a.verdict().next.members, ElementsAre("a"));
  EXPECT_FALSE(c.job().Paused()) << "a finished worker counts for min_workers";
  EXPECT_EQ(c.Notes(NoteKind::kContributionWithdrawn), 0u) << "it is no accident";
  EXPECT_EQ(c.Notes(NoteKind::kWorkerFinished), 1u);
  c.a.Contribute();
  EXPECT_EQ(c.a.lane().last, 3u);
}

TEST(Finish, StillCountsWhenItsProcessIsGone) {
  Running c(Settings(2, 2, 2));
  c.b.Send(Finished{});
  c.a.Contribute();
  c.b.Send(Leave{});
  EXPECT_FALSE(c.job().Paused());
  c.a.Contribute();
  EXPECT_EQ(c.a.lane().last, 3u);
  // A worker that returns without having finished counts only once it is a member again.
  c.b.Restart();
  c.b.Connect();
  EXPECT_TRUE(c.job().Paused());
}

TEST(Finish, AJobWhoseWorkersFinishOneAfterTheOtherIsOverAndWasNeverPaused) {
  Running c(Settings(2, 2, 2));
  c.b.Send(Finished{});
  c.b.Send(Leave{});
  c.a.Contribute();
  EXPECT_FALSE(c.job().over());
  c.a.Send(Finished{});
  c.a.Send(Leave{});
  EXPECT_TRUE(c.job().over());
  EXPECT_EQ(c.job().reason, "its workers have finished");
  EXPECT_EQ(c.Notes(NoteKind::kPaused), 0u);
  // The job is over until a worker comes.
  c.a.Restart();
  c.a.Connect();
  EXPECT_FALSE(c.job().over());
  EXPECT_THAT(c.job().reason, HasSubstr("waits for workers"));
}

TEST(Finish, AJobWhoseWorkersLeaveOneAfterTheOtherWarnsOnlyWhoIsHeldUp) {
  Running c(Settings(2, 2, 2));
  c.b.Send(Leave{});
  EXPECT_TRUE(c.job().Paused());
  EXPECT_EQ(c.Notes(NoteKind::kPaused), 0u) << "nobody waits";
  c.Sleep(absl::Minutes(1));
  EXPECT_EQ(c.a.Count<HeldUp>(), 0u);
  c.a.Begin();
  EXPECT_EQ(c.Notes(NoteKind::kPaused), 1u);
  EXPECT_THAT(c.NoteText(NoteKind::kPaused), HasSubstr("(missing: b)"));
  c.a.Send(Leave{});
  EXPECT_TRUE(c.job().over());
  EXPECT_EQ(c.Notes(NoteKind::kPaused), 1u);
}

TEST(Finish, AJobWhoseLastWorkerIsLostIsNotOver) {
  Running c(Settings(2, 2, 2));
  c.b.Send(Leave{});
  c.a.Close();
  c.Sleep(absl::Seconds(10));
  EXPECT_EQ(c.job().state(), JobState::kForming);
  EXPECT_FALSE(c.job().over());
}

TEST(Finish, EndsTheRoundItHasBegun) {
  Running c(Settings(1, 2, 2));
  c.a.Begin();
  c.b.Begin();
  c.b.Send(Finished{});
  c.b.Send(Finished{});
  EXPECT_EQ(c.Notes(NoteKind::kWorkerFinished), 1u);
  for (TestWorker* worker : {&c.a, &c.b}) {
    worker->PushTensor(0);
    worker->PushTensor(1);
    worker->Commit();
  }
  EXPECT_EQ(c.a.verdict().value.contributors.size(), 2u);
  EXPECT_THAT(c.a.verdict().next.members, ElementsAre("a"));
}

TEST(Finish, IsNotWaitedForInARoundItHasNotBegun) {
  Running c(Settings(1, 2, 2));
  c.a.Contribute();
  EXPECT_EQ(c.a.lane().last, 1u);
  c.b.Send(Finished{});
  EXPECT_EQ(c.a.lane().last, 2u);
  EXPECT_EQ(c.b.lane().last, 2u) << "it stages and hears the verdict";
  EXPECT_EQ(c.a.verdict().value.contributors.size(), 1u);
}

// Its client ignores messages about a lane that its trainer has not named.
TEST(Finish, IsNotWaitedForInACallThatItDoesNotKnow) {
  Three c;
  for (TestWorker* worker : {&c.a, &c.b, &c.c}) worker->Contribute();
  c.a.Register({Tensor("x")}, "call/x", LaneKind::kCall);
  c.a.Contribute(Spec(ReduceOp::kSum), "call/x");
  c.b.Send(Finished{});
  EXPECT_EQ(c.a.lane("call/x").last, 0u) << "the third worker has not made the call";
  c.c.Register({Tensor("x")}, "call/x", LaneKind::kCall);
  c.c.Contribute(Spec(ReduceOp::kSum), "call/x");
  EXPECT_EQ(c.a.lane("call/x").last, 1u);
  EXPECT_EQ(c.a.verdict("call/x").value.contributors.size(), 2u);
  EXPECT_EQ(c.Notes(NoteKind::kContributionWithdrawn), 0u) << "it is no accident";
}

TEST(Finish, IsNotWaitedForInACallWhoseValueIsFixed) {
  Three c;
  for (TestWorker* worker : {&c.a, &c.b, &c.c}) worker->Contribute();
  for (TestWorker* worker : {&c.a, &c.c}) {
    worker->Register({Tensor("x")}, "call/x", LaneKind::kCall);
  }
  c.b.Send(Withdraw{1, 1, "it has nothing to add"});
  for (TestWorker* worker : {&c.a, &c.c}) worker->Contribute(Spec(ReduceOp::kSum), "call/x");
  ASSERT_EQ(c.round(1)->phase(), RoundPhase::kPrepared);
  EXPECT_EQ(c.a.lane("call/x").last, 0u) << "it has not staged the value";
  c.b.Send(Finished{});
  EXPECT_EQ(c.a.lane("call/x").last, 1u);
  EXPECT_EQ(c.a.verdict("call/x").value.outcome, Outcome::kCommitted);
}

TEST(Finish, WhenAllHaveFinishedALateWorkerGetsTheState) {
  Running c;
  c.a.Send(Finished{});
  TestWorker& j = c.Join("j");
  EXPECT_EQ(j.role, Role::kJoiner);
  c.b.Send(Finished{});
  EXPECT_EQ(j.role, Role::kMember) << "no verdict will come that it could wait for";
  EXPECT_EQ(j.donor, "a");
  j.Contribute();
  EXPECT_EQ(j.verdict().value.divisor, 1u);
}

// The donor has finished and serves its state, so it does not matter that another worker leaves.
TEST(Finish, ALateWorkerKeepsItsDonorWhenAnotherOneLeaves) {
  Running c;
  c.a.Send(Finished{});
  TestWorker& j = c.Join("j");
  c.b.Send(Finished{});
  ASSERT_EQ(j.donor, "a");
  c.b.Send(Leave{});
  EXPECT_EQ(j.role, Role::kMember);
  j.Contribute();
  EXPECT_EQ(j.verdict().value.divisor, 1u);
}

TEST(Finish, WhenAllHaveFinishedAndNobodyWaitsTheNextWorkersStartAnew) {
  Running c;
  c.a.Send(Finished{});
  c.b.Send(Finished{});
  EXPECT_EQ(c.job().state(), JobState::kForming);
  EXPECT_EQ(c.job().Present(), 0u);
}

// Otherwise, pods that leave in order and are replaced one by one would let the job shrink by one
// worker each time.
TEST(Finish, AWorkerThatWasReplacedNoLongerCounts) {
  Three t(Settings(3, 4, 3));
  t.c.Send(Finished{});
  t.c.Send(Leave{});
  EXPECT_EQ(t.job().Present(), 3u) << "the others go on without it";
  TestWorker& d = t.Join("d");
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  ASSERT_EQ(d.role, Role::kMember);
  EXPECT_EQ(t.job().Present(), 3u);
  t.Lose("d");
  EXPECT_TRUE(t.job().Paused());
}

TEST(Finish, AWorkerThatLeavesAfterItWasReplacedDoesNotCount) {
  Three t(Settings(3, 4, 3));
  t.c.Send(Finished{});
  t.Join("d");
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  EXPECT_EQ(t.job().Present(), 4u) << "c is here";
  t.c.Send(Leave{});
  EXPECT_EQ(t.job().Present(), 3u);
  t.Lose("d");
  EXPECT_TRUE(t.job().Paused());
}

TEST(Finish, AWorkerThatComesBackTakesOnlyItsOwnCredit) {
  Cluster t(Settings(4, 5, 4));
  TestWorker& a = t.Join("a");
  TestWorker& b = t.Join("b");
  for (const char* id : {"c", "e"}) t.Join(id);
  for (const char* id : {"c", "e"}) {
    t[id].Send(Finished{});
    t[id].Send(Leave{});
  }
  t.Join("d");
  for (TestWorker* worker : {&a, &b}) worker->Contribute();
  EXPECT_EQ(t.job().Present(), 4u) << "a, b, d, and one of those that have finished";
  t["c"].Restart();
  t["c"].Connect();
  EXPECT_EQ(t.job().Present(), 4u) << "c was replaced, e counts";
  t["e"].Restart();
  t["e"].Connect();
  EXPECT_TRUE(t.job().Paused()) << "until one of them is ready";
}

TEST(Finish, AWorkerStillCountsWhereTheJobWouldLackOne) {
  Three t(Settings(3, 3, 3));
  t.c.Send(Finished{});
  t.c.Send(Leave{});
  t.Lose("b");
  EXPECT_TRUE(t.job().Paused());
  t.b.Restart();
  t.b.Connect();
  t.b.Send(Ready{});
  t.a.Begin();
  EXPECT_EQ(t.b.role, Role::kMember);
  EXPECT_FALSE(t.job().Paused()) << "a, b, and c, which has finished";
}

// A job whose last member was lost has not ended in good order, even if a worker that had finished
// goes last.
TEST(Finish, AJobWhoseLastMemberIsLostIsNotOver) {
  Three t(Settings(1, 3, 3));
  t.c.Send(Finished{});
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  ASSERT_EQ(t.a.lane().last, 1u);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->heartbeats = false;
    worker->Cut();
  }
  t.Sleep(absl::Seconds(60));
  EXPECT_EQ(t.job().state(), JobState::kForming);
  EXPECT_FALSE(t.job().over());
}

// ---- loss

TEST(Loss, AClosedConnectionHasAShortGrace) {
  Running c;
  c.a.Contribute();
  c.b.Close();
  c.Sleep(c.config.closed_lease - absl::Milliseconds(10));
  EXPECT_EQ(c.a.lane().last, 1u);
  c.Sleep(absl::Milliseconds(20));
  EXPECT_EQ(c.a.lane().last, 2u);
  EXPECT_THAT(c.a.verdict().next.members, ElementsAre("a"));
}

TEST(Loss, WhoeverSendsWhatNoClientSendsHasAShortGrace) {
  Running c;
  c.a.Contribute();
  const SessionId session = std::exchange(c.b.session, 0);
  c.Step(SessionLost{session, false, "A message of worker b of job job was refused.", true});
  c.Sleep(c.config.closed_lease - absl::Milliseconds(10));
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 0u) << "it may come back at once";
  c.Sleep(absl::Milliseconds(20));
  EXPECT_EQ(c.a.lane().last, 2u) << "the others do not wait for its lease";
}

TEST(Loss, ABrokenConnectionHasTheWholeLease) {
  Running c;
  c.a.Contribute();
  c.b.Cut();
  c.Sleep(c.config.lease - absl::Milliseconds(10));
  EXPECT_EQ(c.a.lane().last, 1u);
  c.Sleep(absl::Milliseconds(20));
  EXPECT_EQ(c.a.lane().last, 2u);
}

TEST(Loss, AConnectionThatClosesAfterSilenceHasTheRestOfTheLease) {
  Running c;
  c.b.heartbeats = false;
  c.Sleep(absl::Seconds(3));
  c.b.Close();
  c.Sleep(absl::Seconds(1));
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 0u) << "who was silent may be stopped, not dead";
  c.Sleep(absl::Seconds(1));
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 1u);
}

// After an interruption, TCP delivers the delayed messages and then the close, all at once.
TEST(Loss, Fault_N3_WhoClosesRightAfterASilenceHasTheWholeLease) {
  Running c;
  c.b.heartbeats = false;
  c.Sleep(absl::Milliseconds(1500));
  c.b.Send(Heartbeat{});
  c.b.Close();
  c.Sleep(c.config.lease - absl::Milliseconds(10));
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 0u) << "it lives, and is on its way back";
  c.Sleep(absl::Milliseconds(20));
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 1u);
}

TEST(Loss, ASilenceIsOverAfterALease) {
  Running c;
  c.b.heartbeats = false;
  c.Sleep(absl::Milliseconds(1500));
  c.b.heartbeats = true;
  c.Sleep(c.config.lease + absl::Seconds(1));
  c.b.Close();
  c.Sleep(c.config.closed_lease + absl::Milliseconds(20));
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 1u);
}

TEST(Loss, ANewSessionHasNoSilenceBehindIt) {
  Running c;
  c.b.heartbeats = false;
  c.Sleep(absl::Milliseconds(1500));
  c.b.Send(Heartbeat{});
  c.b.Close();
  c.b.heartbeats = true;
  c.b.Connect();
  c.b.Close();
  c.Sleep(c.config.closed_lease + absl::Milliseconds(20));
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 1u);
}

// The worker gives up a server that does not answer, and is about to reconnect.
TEST(Loss, Fault_A4_WhoClosesWhileTheAggregatorIsStoppedHasTheWholeLease) {
  Running c;
  c.Stall(absl::Seconds(10));
  c.b.Send(Heartbeat{});  // It waited to be read, like the close.
  c.b.Close();
  c.Sleep(absl::Seconds(2));
  EXPECT_EQ(c.Notes(NoteKind::kStalled), 1u);
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 0u);
  c.Sleep(c.config.lease);
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 1u);
}

TEST(Loss, AReconnectWithinTheGraceChangesNothing) {
  Running c;
  const Incarnation before = c.b.incarnation;
  c.b.Close();
  c.Sleep(c.config.closed_lease - absl::Milliseconds(5));
  c.b.Connect();
  c.Sleep(absl::Seconds(10));
  EXPECT_EQ(c.b.incarnation, before);
  EXPECT_EQ(c.b.role, Role::kMember);
  EXPECT_EQ(c.Notes(NoteKind::kWorkerReconnected), 1u);
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 0u);
  c.Round();
  EXPECT_EQ(c.b.lane().last, 2u);
}

TEST(Loss, Fault_W3_ASilentWorkerIsEvictedOnceAndRejoinsWithState) {
  Running c;
  c.b.heartbeats = false;
  const Incarnation before = c.b.incarnation;
  c.Sleep(c.config.lease + absl::Seconds(1));
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 1u);
  ASSERT_TRUE(c.b.ended.has_value());
  EXPECT_EQ(c.b.ended->code, ErrorCode::kEvicted);
  EXPECT_THAT(c.b.ended->text, HasSubstr("Worker b of job job was silent"));
  c.b.heartbeats = true;
  c.b.Forget();
  c.b.Connect();
  EXPECT_EQ(c.b.role, Role::kJoiner);
  EXPECT_TRUE(before < c.b.incarnation);
  c.b.Ready();
  c.a.Contribute();
  EXPECT_EQ(c.a.verdict().value.divisor, 1u);
  EXPECT_EQ(c.b.role, Role::kMember);
  EXPECT_EQ(c.b.donor, "a");
  c.Round();
  EXPECT_EQ(c.a.lane().delivered[3].at({0, 0}), (Reduced{3, 2}));
}

TEST(Loss, Fault_W4_SilenceBelowTheLeaseEvictsNobody) {
  Running c;
  c.a.Contribute();
  c.b.heartbeats = false;
  c.Sleep(c.config.lease - absl::Milliseconds(100));
  c.b.heartbeats = true;
  c.b.Contribute();
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 0u);
  EXPECT_EQ(c.a.verdict().value.divisor, 2u);
}

TEST(Loss, Fault_W8_FramesOfAnEndedSessionHaveNoEffect) {
  Running c;
  const SessionId old = c.b.session;
  c.a.Begin();
  c.Step(EvictWorker{kJob, "b", "operator"});
  c.ClearLog();
  FrameReceived late;
  late.session = old;
  late.round = 2;
  late.ranges = {{0, 0, 1}};
  late.bytes = kChunkBytes;
  late.digests = {1};
  c.Step(late);
  c.Step(MessageReceived{old, Heartbeat{}});
  EXPECT_THAT(c.log, IsEmpty());
}

TEST(Loss, ALauncherThatSawTheProcessEndSkipsTheGrace) {
  Running c;
  c.a.Contribute();
  c.Step(WorkerExited{kJob, "b"});
  EXPECT_EQ(c.a.lane().last, 2u);
  c.Step(WorkerExited{kJob, "nobody"});
  c.Step(WorkerExited{"no such job", "b"});
}

TEST(Loss, AbandonGivesTheIncarnationUp) {
  Running c;
  c.a.Contribute();
  c.b.Begin();
  c.b.Send(Abandon{});
  EXPECT_EQ(c.b.ended->code, ErrorCode::kEvicted);
  EXPECT_EQ(c.a.lane().last, 2u);
  c.b.Forget();
  c.b.Connect();
  EXPECT_EQ(c.b.role, Role::kJoiner);
}

TEST(Loss, AHelloWithoutItsIncarnationGivesItUp) {
  Running c;
  c.b.Cut();
  c.b.Forget();
  c.b.Connect();
  EXPECT_EQ(c.b.role, Role::kJoiner);
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 1u);
}

TEST(Loss, AHelloOfAnotherIncarnationOfTheProcessIsANewLife) {
  Running c;
  c.a.Contribute();
  c.b.Begin();
  c.b.PushTensor(0);
  const Incarnation before = c.b.incarnation;
  // Another aggregator evicted it meanwhile and welcomed it as a new worker.
  c.b.Cut();
  c.b.Forget();
  c.b.incarnation = {before.term, before.counter + 70};
  c.b.Connect();
  EXPECT_EQ(c.b.role, Role::kJoiner);
  EXPECT_NE(c.b.incarnation, before) << "two lives would share a key";
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 1u);
  EXPECT_EQ(c.a.verdict().value.contributors.size(), 1u);
}

TEST(Loss, AWelcomeThatWasNotHeardGivesAnotherIncarnation) {
  Cluster c(Settings(1, 2, 2));
  TestWorker& a = c.Worker("a");
  a.Connect();
  const Incarnation unheard = a.incarnation;
  a.Cut();
  a.incarnation = Incarnation{};
  a.Connect();
  EXPECT_NE(a.incarnation, unheard) << "it may have acted under that elsewhere";
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 0u) << "it had no part in anything here";
}

// ---- replacement

TEST(Replacement, Fault_W15_TheNewestProcessWinsAndTheZombieIsFenced) {
  Running c;
  const Nonce old = c.b.nonce;
  TestWorker zombie = c.b;
  c.b.Restart();
  c.b.Connect();
  EXPECT_EQ(c.Notes(NoteKind::kWorkerSuperseded), 1u);
  EXPECT_EQ(c.b.role, Role::kJoiner);
  EXPECT_NE(c.b.nonce, old);
  // The old process returns with its memory.
  Hello hello = zombie.MakeHello();
  const SessionId session = c.NewSession();
  c.Step(SessionOpened{session, 1});
  c.ClearLog();
  c.Step(MessageReceived{session, hello});
  const auto ends = c.Actions<EndSession>();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].error.code, ErrorCode::kSuperseded);
  EXPECT_TRUE(IsFatal(ends[0].error.code));
  c.b.Send(Heartbeat{});
  EXPECT_NE(c.b.session, 0u) << "the new one goes on";
}

// A launcher may see the end of the old process after the new one has said hello.
TEST(Replacement, TheEndOfTheReplacedProcessDoesNotEndTheNewOne) {
  Running c;
  const Nonce old = c.b.nonce;
  c.b.Restart();
  c.b.Connect();
  c.ClearLog();
  c.Step(WorkerExited{kJob, "b", old});
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 0u);
  EXPECT_NE(c.b.session, 0u);
  c.Step(WorkerExited{kJob, "b", c.b.nonce});
  EXPECT_EQ(c.Notes(NoteKind::kWorkerLost), 1u);
}

TEST(Replacement, TheReplacedProcessIsToldOnItsSession) {
  Running c;
  const SessionId old = c.b.session;
  c.b.Restart();
  c.b.Connect();
  bool told = false;
  for (const EndSession& end : c.Actions<EndSession>()) {
    told |= end.session == old && end.error.code == ErrorCode::kSuperseded;
  }
  EXPECT_TRUE(told);
}

TEST(Replacement, ANewSessionOfTheSameProcessEndsTheOldOne) {
  Running c;
  const SessionId old = c.b.session;
  c.b.Connect();
  bool told = false;
  for (const EndSession& end : c.Actions<EndSession>()) {
    told |= end.session == old && end.error.code == ErrorCode::kStale;
  }
  EXPECT_TRUE(told);
  EXPECT_EQ(c.b.role, Role::kMember);
}

TEST(Replacement, OnlyTheLastSixteenProcessesAreRemembered) {
  Running c;
  std::vector<Nonce> nonces;
  for (int i = 0; i < 18; ++i) {
    nonces.push_back(c.b.nonce);
    c.b.Restart();
    c.b.Connect();
  }
  const auto hello_of = [&](Nonce nonce) {
    Hello hello = c.b.MakeHello();
    hello.nonce = nonce;
    hello.incarnation = {};
    const SessionId session = c.NewSession();
    c.Step(SessionOpened{session, 1});
    c.ClearLog();
    c.Step(MessageReceived{session, hello});
    for (const EndSession& end : c.Actions<EndSession>()) {
      if (end.session == session) return end.error.code;
    }
    return ErrorCode::kOk;
  };
  EXPECT_EQ(hello_of(nonces.back()), ErrorCode::kSuperseded);
  EXPECT_EQ(hello_of(nonces.front()), ErrorCode::kOk);
}

// ---- runs and settings

TEST(Run, Fault_A6_AnotherRunWhileMembersArePresentIsRefused) {
  Cluster c(Settings(1, 2, 1));
  c.Worker("a").run = "one";
  c.Join("a");
  c.Worker("b").run = "two";
  c.Join("b");
  ASSERT_TRUE(c["b"].ended.has_value());
  EXPECT_EQ(c["b"].ended->code, ErrorCode::kRunConflict);
  EXPECT_THAT(c["b"].ended->text, HasSubstr("run one is in progress"));
}

TEST(Run, AnEmptyIdJoinsTheRunInProgress) {
  Cluster c(Settings(1, 2, 1));
  c.Worker("a").run = "one";
  c.Join("a");
  c.Join("b");
  EXPECT_EQ(c["b"].welcome->run, "one");
}

TEST(Run, AnUnnamedRunTakesTheFirstNameItHears) {
  Cluster c(Settings(1, 2, 1));
  c.Join("a");
  c.Worker("b").run = "one";
  c.Join("b");
  EXPECT_EQ(c["b"].welcome->run, "one");
}

TEST(Run, ANewRunStartsAfreshWhenNobodyIsPresent) {
  Cluster c(Settings(1, 2, 1));
  c.Worker("a").run = "one";
  c.Join("a");
  c["a"].Contribute();
  c["a"].Begin();  // This round stays open.
  c["a"].Push(0, 0, 1);
  const Generation before = c["a"].membership.generation;
  c["a"].Send(Leave{});
  TestWorker& b = c.Worker("b");
  b.run = "two";
  b.settings = Settings(1, 1, 1);
  c.Join("b");
  ASSERT_EQ(b.role, Role::kMember);
  EXPECT_EQ(b.lane().next(), 1u) << "lanes start from 1";
  EXPECT_TRUE(before < b.membership.generation) << "and generations go on";
  EXPECT_EQ(c.kept_chunks(), 0u);
  b.Contribute();
  EXPECT_EQ(b.verdict().value.divisor, 1u);
}

TEST(Run, ANewRunDoesNotInheritAStartTimeout) {
  Cluster c(Settings(1, 2, 2));
  c.Worker("a").run = "one";
  c.Join("a");
  c.Sleep(c.config.start_timeout + absl::Seconds(1));
  ASSERT_EQ(c["a"].role, Role::kMember);
  c["a"].Contribute();
  c["a"].Send(Leave{});
  c.Worker("b").run = "two";
  c.Join("b");
  EXPECT_EQ(c["b"].role, Role::kJoiner) << "it waits for the second worker";
}

TEST(SettingsTest, DifferentSettingsAreRefusedByName) {
  const std::pair<JobSettings, const char*> cases[] = {
      {Settings(1, 3, 2), "max_workers = 3, but the job has 4"},
      {Settings(2, 4, 2), "min_workers = 2, but the job has 1"},
      {Settings(1, 4, 3), "start_workers = 3, but the job has 2"},
  };
  for (const auto& [settings, text] : cases) {
    Cluster c(Settings(1, 4, 2));
    c.Join("a");
    c.Worker("b").settings = settings;
    c.Join("b");
    ASSERT_TRUE(c["b"].ended.has_value());
    EXPECT_EQ(c["b"].ended->code, ErrorCode::kMismatch);
    EXPECT_THAT(c["b"].ended->text, HasSubstr(text));
  }
  Cluster c(Settings(1, 4, 2));
  c.Join("a");
  c.Worker("b").settings = Settings(0, 0, 0);
  c.Join("b");
  EXPECT_EQ(c["b"].role, Role::kMember) << "who asks for nothing takes what there is";
}

// ---- drain of a worker

TEST(DrainWorker, EndsTheOpenRoundAndIsNotAmongTheNextMembers) {
  Running c;
  c.a.Begin();
  c.Step(DrainWorker{kJob, "b"});
  EXPECT_EQ(c.b.Count<Drain>(), 1u);
  EXPECT_FALSE(c.b.Last<Drain>().service);
  c.a.PushTensor(0);
  c.a.PushTensor(1);
  c.a.Commit();
  c.b.Contribute();
  EXPECT_EQ(c.a.verdict().value.contributors.size(), 2u);
  EXPECT_THAT(c.a.verdict().next.members, ElementsAre("a"));
  EXPECT_EQ(c.b.role, Role::kJoiner);
}

// It leaves when the call has ended, and then its replacement joins.
TEST(DrainWorker, ACallThatItIsInEndsThoughTheJobIsPausedWithoutIt) {
  Cluster t(Settings(2, 3, 2));
  constexpr char kCall[] = "call/x";
  TestWorker& a = t.Join("a");
  TestWorker& b = t.Join("b");
  for (TestWorker* worker : {&a, &b}) worker->Register({Tensor("x")}, kCall, LaneKind::kCall);
  a.Contribute(Spec(ReduceOp::kSum), kCall);
  t.Step(DrainWorker{kJob, "b"});
  for (TestWorker* worker : {&a, &b}) worker->Contribute();
  ASSERT_TRUE(t.job().Paused()) << "a is the only member";
  b.Contribute(Spec(ReduceOp::kSum), kCall);
  EXPECT_EQ(b.lane(kCall).last, 1u);
  EXPECT_EQ(a.lane(kCall).delivered[1].at({0, 0}).sum, 3u);
  a.Contribute();
  EXPECT_EQ(a.lane().last, 1u) << "a round of its own waits";
}

TEST(DrainWorker, BeforeTheFirstRoundItIsAMemberNoMore) {
  Cluster c(Settings(1, 2, 2));
  c.Join("a");
  c.Join("b");
  c.Step(DrainWorker{kJob, "b"});
  EXPECT_THAT(c["a"].membership.members, ElementsAre("a"));
  c.Step(DrainWorker{kJob, "nobody"});
}

TEST(DrainWorker, ACandidateThatIsDrainedDoesNotJoin) {
  Running c;
  TestWorker& j = c.Join("j");
  c.Step(DrainWorker{kJob, "j"});
  c.Round();
  EXPECT_EQ(j.role, Role::kJoiner);
}

TEST(DrainWorker, TheOnlyMemberGivesItsStateToWhoFollows) {
  Running c;
  c.b.Send(Leave{});
  TestWorker& j = c.Join("j");
  c.Step(DrainWorker{kJob, "a"});
  c.a.Contribute();
  EXPECT_THAT(c.a.verdict().next.members, ElementsAre("j"));
  EXPECT_EQ(j.donor, "a");
}

TEST(DrainWorker, HearsHowItsLastRoundEndedWhenItWasAway) {
  Running c;
  c.Step(DrainWorker{kJob, "b"});
  c.a.Contribute();
  c.a.stages = false;
  c.b.Contribute();
  ASSERT_TRUE(c.b.lane().staged.has_value());
  c.b.Cut();
  c.a.Stage();
  EXPECT_EQ(c.a.lane().last, 2u);
  EXPECT_THAT(c.a.membership.members, ElementsAre("a"));
  c.b.Connect();
  EXPECT_EQ(c.b.lane().last, 2u);
  EXPECT_EQ(c.b.role, Role::kJoiner);
}

TEST(DrainWorker, IsToldAgainOnTheNextSession) {
  Running c;
  TestWorker& j = c.Join("j");
  c.Step(DrainWorker{kJob, "j"});
  EXPECT_EQ(j.Count<Drain>(), 1u);
  j.Cut();  // The message may not have arrived.
  j.Connect();
  EXPECT_EQ(j.Count<Drain>(), 2u);
  EXPECT_FALSE(j.Last<Drain>().service);
  j.Cut();
  j.Forget();  // The welcome may not have arrived either.
  j.Connect();
  EXPECT_EQ(j.Count<Drain>(), 3u);
  j.Restart();
  j.Connect();
  EXPECT_EQ(j.Count<Drain>(), 3u) << "another process was not meant";
}

}  // namespace
}  // namespace basin::aggregator
