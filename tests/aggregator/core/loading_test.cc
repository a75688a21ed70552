// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A worker joins a paused job whose round is already prepared. It loads the state from before that
// round, so the round gets no verdict until its trainer has begun.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregator/core/round_waits.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kOther[] = "other";

// Worker c was lost after round 1 was prepared and before c staged it; its replacement is a member.
struct Loading : Three {
  explicit Loading(Config config = {}) : Three(Settings(3, 3, 3), std::move(config)) {
    for (TestWorker* worker : {&a, &b}) {
      worker->Register({Tensor("x")}, kOther);
    }
    c.stages = false;
    for (TestWorker* worker : {&a, &b, &c}) worker->Contribute();
    EXPECT_EQ(round()->phase(), RoundPhase::kPrepared);
    Lose("c");
    c.stages = true;
    Replace(c);
    EXPECT_EQ(c.role, Role::kMember);
    EXPECT_EQ(c.donor, "a");
  }
  static void Replace(TestWorker& worker) {
    worker.Restart();
    worker.inbox.clear();
    worker.Connect();
    worker.Ready();
  }
  // The replacement's client requests this when it learns that the round is prepared.
  void Fetch() { c.Send(Need{0, 1, c.Last<Prepared>().value_ballot, {{0, 0, 1}, {1, 0, 1}}}); }
  void ExpectHeld() {
    EXPECT_EQ(c.Count<Prepared>(), 0u);
    EXPECT_TRUE(a.lane().staged.has_value()) << "the others have staged";
    EXPECT_EQ(a.lane().last, 0u) << "and hear no verdict";
  }
};

TEST(Loading, TheValueStaysAndTheJoinerGetsItsBytesOnceItHasBegun) {
  Loading t;
  t.ExpectHeld();
  EXPECT_EQ(t.a.Last<Prepared>().ballot.attempt, 2u) << "those who were there are asked again";
  t.c.Begin();
  const Prepared prepared = t.c.Last<Prepared>();
  EXPECT_EQ(prepared.ballot.attempt, 2u);
  EXPECT_EQ(prepared.value_ballot.attempt, 1u);
  EXPECT_EQ(t.a.lane().last, 0u) << "the joiner lacks the bytes";
  t.Fetch();
  EXPECT_EQ(t.c.lane().last, 1u);
  EXPECT_EQ(t.c.lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
  EXPECT_EQ(t.a.verdict().value.contributors[2].worker, "c") << "the one that was lost";
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.c.lane().last, 2u);
}

TEST(Loading, AWithdrawalOrABeginThatIsRefusedTellsItToo) {
  Loading withdraws;
  withdraws.c.Withdraw();
  EXPECT_EQ(withdraws.c.rejected(), ErrorCode::kOk);
  EXPECT_EQ(withdraws.c.Count<Prepared>(), 1u);
  Loading refused;
  Counts counts;
  counts.samples = kMaxCount + 1;
  refused.c.Begin(Spec(ReduceOp::kAverage), kLane, counts);
  EXPECT_EQ(refused.c.rejected(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.c.Count<Prepared>(), 1u);
}

TEST(Loading, ARoundOfAnotherLaneTellsIt) {
  Loading t;
  t.c.Register({Tensor("x")}, kOther);
  t.c.Begin(Spec(ReduceOp::kAverage), kOther);
  EXPECT_EQ(t.c.Count<Prepared>(), 1u) << "it computed a gradient with the state";
}

TEST(Loading, WhoHasFinishedLoadsNothing) {
  Loading t;
  t.c.Send(Finished{});
  EXPECT_EQ(t.c.Count<Prepared>(), 1u);
  t.Fetch();
  EXPECT_EQ(t.a.lane().last, 1u);
}

TEST(Loading, MayTakeAsLongAsItTakesAndIsNamed) {
  Config config;
  config.lease = absl::Seconds(2);
  Loading t(config);
  EXPECT_EQ(WaitsFor(*t.round(), t.job().lanes[0].layout), "worker c: to load the state and begin");
  t.Sleep(absl::Seconds(4));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 0u);
  t.Sleep(absl::Seconds(2));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 1u);
  const std::string text = "worker c: to load the state and begin (last seen ";
  EXPECT_THAT(t.NoteText(NoteKind::kWorkerLate), HasSubstr("Round 1 waits for " + text));
  EXPECT_THAT(t.a.Last<HeldUp>().text, HasSubstr(text)) << "whoever waits hears it";
  t.Sleep(absl::Minutes(10));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLate), 1u) << "a change, not a tick";
  EXPECT_EQ(t.c.role, Role::kMember);
  t.c.acks = false;
  t.c.Begin();
  t.Sleep(absl::Seconds(3));
  EXPECT_TRUE(t.c.ended.has_value()) << "from then on it has one lease to stage";
}

TEST(Loading, ThePolicyMayBeToEvict) {
  Config config;
  config.late_policy = LatePolicy::kEvict;
  config.evict_late_after = absl::Seconds(20);
  Loading t(config);
  t.Sleep(absl::Seconds(19));
  EXPECT_FALSE(t.c.ended.has_value());
  t.Sleep(absl::Seconds(2));
  ASSERT_TRUE(t.c.ended.has_value());
  EXPECT_TRUE(t.job().Paused());
}

TEST(Loading, ANewSessionChangesNothing) {
  Loading t;
  t.c.Cut();
  t.c.Connect();
  t.ExpectHeld();
  t.c.Begin();
  t.c.Cut();
  t.c.Connect();
  EXPECT_EQ(t.c.Count<Prepared>(), 2u);
}

TEST(Loading, WhoServesIsToldSoAgainOnANewSession) {
  Loading t;
  t.a.Cut();
  t.a.inbox.clear();
  t.a.Connect();
  EXPECT_EQ(t.a.Last<MembershipChanged>().donor, "a") << "it may have been cut before it heard it";
  t.c.Begin();
  t.a.Cut();
  t.a.inbox.clear();
  t.a.Connect();
  EXPECT_EQ(t.a.Count<MembershipChanged>(), 0u) << "nobody needs it";
}

TEST(Loading, TheNextReplacementIsWaitedForInstead) {
  Loading t;
  t.Lose("c");
  EXPECT_TRUE(t.job().Paused());
  Loading::Replace(t.c);
  t.ExpectHeld();
  t.c.Begin();
  t.Fetch();
  EXPECT_EQ(t.c.lane().last, 1u);
}

// An aborted round leaves the state unchanged.
TEST(Loading, ARoundThatIsAbortedDoesNotWait) {
  Config config;
  config.loss_policy = LossPolicy::kAbort;
  Three t(Settings(3, 3, 3), config);
  t.a.Contribute();
  t.Lose("c");
  ASSERT_EQ(t.round()->value.outcome, Outcome::kAborted);
  Loading::Replace(t.c);
  EXPECT_EQ(t.c.donor, "a");
  EXPECT_EQ(t.c.lane().last, 1u);
  EXPECT_EQ(t.a.lane().last, 1u);
}

TEST(Loading, Fault_A1_AnAggregatorThatComesBackIsToldByTheJoiner) {
  Loading t;
  t.Crash(5000);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Connect();
  ASSERT_EQ(t.job().state(), JobState::kRunning);
  ASSERT_TRUE(t.round()->adopted.has_value());
  t.ExpectHeld();
  // A worker does not serve a state that it does not have.
  t.Lose("b");
  Loading::Replace(t.b);
  EXPECT_EQ(t.b.donor, "a");
  for (TestWorker* worker : {&t.b, &t.c}) {
    worker->Begin();
    worker->Send(Need{0, 1, worker->Last<Prepared>().value_ballot, {{0, 0, 1}, {1, 0, 1}}});
  }
  EXPECT_EQ(t.b.lane().last, 1u);
  EXPECT_EQ(t.c.lane().last, 1u);
}

// Another aggregator has sent the holder the verdict of the round that c must not have in its
// state.
TEST(Loading, Fault_A5_AHolderThatIsPastTheRoundEndsTheLoading) {
  Loading t;
  t.Crash(5000);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Connect();
  t.ExpectHeld();
  t.a.Cut();
  const StagedValue staged = *t.a.lane().staged;
  const uint64_t chain = ExtendChain(t.a.lane().chain, staged.round, staged.value);
  const VerdictRecord told{staged.round, staged.ballot,  staged.value_ballot,
                           staged.value, t.a.membership, chain};
  t.a.Take(Verdict{t.a.lane().index, told, std::nullopt});
  t.a.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  ASSERT_TRUE(t.c.ended.has_value());
  EXPECT_THAT(
      t.c.ended->text,
      HasSubstr("worker a reports a verdict or a result that this aggregator has not seen"));
  t.b.Connect();
  t.c.Connect();
  EXPECT_EQ(t.c.role, Role::kJoiner);
  EXPECT_EQ(t.b.verdict().chain, chain);
  t.c.Ready();
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.lane().last, 2u);
  EXPECT_EQ(t.c.lane().last, 2u);
}

TEST(Loading, Fault_A1_AMajorityWithoutTheStateDoesNotGoOn) {
  Cluster t(Settings(1, 3, 1));
  TestWorker& a = t.Join("a");
  a.Contribute();
  for (const char* id : {"b", "c"}) t.Join(id);
  a.Contribute();
  ASSERT_EQ(t["c"].donor, "a");
  ASSERT_TRUE(t["b"].lacks_state && t["c"].lacks_state);
  t.Crash(5000);
  for (const char* id : {"b", "c"}) t[id].Connect();
  t.Sleep(t.config.recovery_window);
  EXPECT_EQ(t.job().state(), JobState::kHalted);
  a.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_EQ(t["b"].role, Role::kMember);
}

// The other workers are in the call and do not serve their state from there.
TEST(Loading, Fault_A1_ACallThatIsAdoptedDoesNotWaitForAWorkerThatLoadsState) {
  Three t(Settings(3, 3, 3));
  constexpr char kCall[] = "call/x";
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Register({Tensor("x")}, kCall, LaneKind::kCall);
    worker->Contribute();
  }
  t.c.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Contribute(Spec(ReduceOp::kSum), kCall);
  }
  t.Lose("c");
  Loading::Replace(t.c);
  ASSERT_TRUE(t.c.lacks_state);
  t.Crash(5000);
  t.c.stages = true;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Connect();
  EXPECT_EQ(t.a.lane(kCall).last, 0u) << "c may be about to make the call";
  t.c.Send(Get{{"model", "state", 1}, std::nullopt, "a", 0, 0, absl::Minutes(1)});
  EXPECT_EQ(t.a.verdict(kCall).round, 1u);
}

// The last worker with the state is lost while others load it and more workers wait. Those that
// load are released one by one. No waiting worker may become a member in between with its own
// state.
TEST(Loading, WhoWaitsBeginsAnewWhenThoseThatLoadAreReleased) {
  Cluster t(Settings(3, 4, 3));
  for (const char* id : {"a", "b", "c"}) t.Join(id);
  for (const char* id : {"a", "b", "c"}) t[id].Contribute();
  for (const char* id : {"b", "c"}) t.Step(WorkerExited{kJob, id});
  for (const char* id : {"d", "e"}) t.Join(id);
  ASSERT_EQ(t["e"].role, Role::kMember);
  ASSERT_EQ(t["e"].donor, "a") << "it has not loaded the state";
  t["a"].Begin();
  for (const char* id : {"f", "g"}) t.Join(id);
  ASSERT_EQ(t["g"].role, Role::kSpare);
  t.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(t.Notes(NoteKind::kNewLineage), 1u);
  for (const char* id : {"d", "e"}) EXPECT_EQ(t[id].ended->code, ErrorCode::kEvicted) << id;
  for (const char* id : {"f", "g"}) EXPECT_NE(t[id].role, Role::kMember) << id;
  t.Join("h");
  EXPECT_EQ(t["f"].role, Role::kMember) << "of the new lineage";
  EXPECT_NE(t["f"].lane().chain, t["d"].lane().chain);
}

// One worker has replaced all members, and one of them sends it the state.
struct Replaced : Running {
  Replaced() : Running(Settings(2, 3, 2)), c(Joined()) {
    for (TestWorker* worker : {&a, &b}) {
      worker->PushTensor(0);
      worker->PushTensor(1);
      worker->Commit();
    }
    EXPECT_EQ(c.role, Role::kMember);
    EXPECT_EQ(c.donor, "a");
  }
  TestWorker& Joined() {
    for (TestWorker* worker : {&a, &b}) worker->Begin();
    Step(DrainWorker{kJob, "a"});
    Step(DrainWorker{kJob, "b"});
    return Join("c");
  }
  TestWorker& c;
};

TEST(Loading, WhoJoinsWhenAMemberHasLoadedHasItAsDonor) {
  Replaced t;
  t.c.Begin();
  TestWorker& d = t.Join("d");
  ASSERT_EQ(d.role, Role::kMember) << "the job was paused without it";
  EXPECT_EQ(d.donor, "c") << "that has begun, so it has loaded the state";
}

// Both get the state from the worker that is no longer a member.
TEST(Loading, WhoJoinsWhileAllMembersLoadHasTheirDonor) {
  Replaced t;
  TestWorker& d = t.Join("d");
  ASSERT_EQ(d.role, Role::kMember) << "the job was paused without it";
  EXPECT_EQ(d.donor, "a");
  EXPECT_EQ(t.c.donor, "a");
}

// The lineage ends when its last member without the state is released; the spares begin the next
// one.
TEST(Loading, SparesOfTheNextLineageAreNotReleased) {
  Cluster t(Settings(1, 2, 2));
  TestWorker& a = t.Join("a");
  t.Join("b");
  for (const char* id : {"a", "b"}) t[id].Contribute();
  t.Step(WorkerExited{kJob, "b"});
  t.Join("j");
  for (const char* id : {"s", "u"}) t.Join(id);
  a.Contribute();
  ASSERT_TRUE(t["j"].lacks_state);
  ASSERT_EQ(t["u"].role, Role::kSpare);
  t.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(t["j"].ended->code, ErrorCode::kEvicted);
  for (const char* id : {"s", "u"}) {
    EXPECT_EQ(t[id].role, Role::kMember) << id;
    EXPECT_FALSE(t[id].ended.has_value()) << id;
  }
}

TEST(Loading, Fault_A1_WhenNobodyWhoComesBackHasTheStateTheyStartAnew) {
  Loading t;
  t.config.recovery_policy = RecoveryPolicy::kAny;
  t.Crash(5000);
  t.c.Connect();
  t.Sleep(t.config.recovery_window);
  ASSERT_TRUE(t.c.ended.has_value());
  EXPECT_EQ(t.c.ended->code, ErrorCode::kEvicted);
  EXPECT_THAT(t.c.ended->text, AllOf(HasSubstr("all workers that had the state were lost"),
                                     HasSubstr("Rejoin with the state of a checkpoint")));
}

}  // namespace
}  // namespace basin::aggregator
