// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The transition tables: every state can be reached, every input is used, and the machines execute
// them. The fixed seeds of the simulator take most rows (see Missing in
// tests/simulation/coverage.cc); the tests here take the others.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "aggregator/core/contribution.h"
#include "aggregator/core/job.h"
#include "aggregator/core/pause.h"
#include "aggregator/core/round.h"
#include "aggregator/core/workers.h"
#include "gtest/gtest.h"
#include "protocol/transitions.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

// `first` is the state in which a machine begins.
template <typename Row, size_t N, typename State>
void CheckTable(const Row (&table)[N], State first, size_t states, size_t inputs) {
  EXPECT_TRUE(IsUnambiguous(table));
  std::set<State> reached = {first};
  std::set<int> used;
  // Each pass makes at least one more state reachable, as long as there is one.
  for (size_t i = 0; i < states; ++i) {
    for (const Row& row : table) {
      if (reached.count(row.from) > 0) reached.insert(row.to);
    }
  }
  for (const Row& row : table) {
    EXPECT_STRNE(row.when, "");
    used.insert(static_cast<int>(row.input));
  }
  EXPECT_EQ(reached.size(), states);
  EXPECT_EQ(used.size(), inputs);
}

TEST(TablesTest, EveryStateIsReachedAndEveryInputUsed) {
  CheckTable(kJobTransitions, JobState::kForming, 4, 7);
  CheckTable(kWorkerTransitions, WorkerState::kLost, 6, 9);
  CheckTable(kPauseTransitions, PauseState::kNone, 4, 3);
  CheckTable(kRoundTransitions, RoundPhase::kIdle, 3, 7);
  CheckTable(kContributionTransitions, ContributionState::kAwaited, 6, 8);
  CheckTable(kPresenceTransitions, Presence::kUndecided, 4, 3);
  CheckTable(kStagingTransitions, StagingState::kNotAsked, 3, 3);
}

// Tries every input in every state: an input that the table does not list changes nothing and is
// refused.
template <typename Row, size_t N>
void CheckExecution(const Row (&table)[N], size_t states, size_t inputs) {
  using State = decltype(Row::from);
  using Input = decltype(Row::input);
  for (size_t from = 0; from < states; ++from) {
    for (size_t input = 0; input < inputs; ++input) {
      State state = static_cast<State>(from);
      RowsTaken taken;
      const bool applied = ApplyRow(table, state, static_cast<Input>(input), taken);
      const Row* row = FindRow(table, static_cast<State>(from), static_cast<Input>(input));
      EXPECT_EQ(applied, row != nullptr);
      EXPECT_EQ(taken.refused(), row == nullptr);
      EXPECT_EQ(state, row == nullptr ? static_cast<State>(from) : row->to);
      for (size_t i = 0; i < N; ++i) EXPECT_EQ(taken.Has(i), &table[i] == row);
    }
  }
}

TEST(TablesTest, AnInputGoesByTheTable) {
  CheckExecution(kJobTransitions, 4, 7);
  CheckExecution(kWorkerTransitions, 6, 9);
  CheckExecution(kPauseTransitions, 4, 3);
  CheckExecution(kRoundTransitions, 3, 7);
  CheckExecution(kContributionTransitions, 6, 8);
  CheckExecution(kPresenceTransitions, 4, 3);
  CheckExecution(kStagingTransitions, 3, 3);
}

TEST(TablesTest, AContributionGoesByItsTable) {
  using Input = ContributionInput;
  const std::vector<std::vector<Input>> paths = {
      {},
      {Input::kBegin},
      {Input::kBegin, Input::kCommit},
      {Input::kBegin, Input::kCommit, Input::kComplete},
      {Input::kWithdraw},
      {Input::kDrop},
  };
  for (size_t from = 0; from < paths.size(); ++from) {
    for (int input = 0; input < 8; ++input) {
      Contribution contribution;
      for (const Input step : paths[from]) ASSERT_TRUE(contribution.Apply(step));
      ASSERT_EQ(static_cast<size_t>(contribution.state()), from);
      const ContributionTransition* row =
          FindRow(kContributionTransitions, contribution.state(), static_cast<Input>(input));
      const ContributionState to = row == nullptr ? contribution.state() : row->to;
      EXPECT_EQ(contribution.Apply(static_cast<Input>(input)), row != nullptr);
      EXPECT_EQ(contribution.state(), to);
    }
  }
}

TEST(TablesTest, AWorkerGoesByItsTableAndIsCounted) {
  using Input = WorkerInput;
  const std::vector<std::vector<Input>> paths = {
      {Input::kAdmit},   {Input::kAdmit, Input::kReady},    {Input::kAdmit, Input::kFindFull},
      {Input::kRecover}, {Input::kRecover, Input::kFinish}, {},
  };
  for (size_t from = 0; from < paths.size(); ++from) {
    for (int input = 0; input < 9; ++input) {
      Workers workers;
      const Slot slot = workers.Add("w");
      for (const Input step : paths[from]) ASSERT_TRUE(workers.Apply(slot, step));
      ASSERT_EQ(static_cast<size_t>(workers[slot].state), from);
      const WorkerTransition* row =
          FindRow(kWorkerTransitions, workers[slot].state, static_cast<Input>(input));
      const WorkerState to = row == nullptr ? workers[slot].state : row->to;
      EXPECT_EQ(workers.Apply(slot, static_cast<Input>(input)), row != nullptr);
      EXPECT_EQ(workers[slot].state, to);
      EXPECT_EQ(workers.taken().refused(), row == nullptr);
      for (int state = 0; state < 6; ++state) {
        EXPECT_EQ(workers.Count(static_cast<WorkerState>(state)),
                  static_cast<WorkerState>(state) == to ? 1u : 0u);
      }
    }
  }
}

TEST(TablesTest, APauseGoesByItsTable) {
  for (int dues = 0; dues < 3; ++dues) {
    Pause pause;
    EXPECT_FALSE(pause.End()) << "no pause has begun";
    EXPECT_TRUE(pause.taken().refused());
    ASSERT_TRUE(pause.Begin(absl::UnixEpoch()));
    for (int i = 0; i < dues; ++i) pause.OnDue();
    EXPECT_FALSE(pause.Begin(absl::UnixEpoch())) << "it has begun already";
    EXPECT_TRUE(pause.End());
    EXPECT_FALSE(pause.noted());
  }
}

// ---- rare rows

template <typename Row, size_t N>
size_t RowOf(const Row (&table)[N], decltype(Row::from) from, decltype(Row::input) input) {
  return static_cast<size_t>(FindRow(table, from, input) - table);
}

bool HasTaken(const Cluster& cluster, JobState from, JobInput input) {
  return cluster.job().taken().Has(RowOf(kJobTransitions, from, input));
}

// Three members of run one with one verdict, and a worker of run two. That worker has been in a
// round of its run, or its launcher declares the run new.
struct TwoRuns : Cluster {
  explicit TwoRuns(Config config = {})
      : Cluster(Settings(2, 4, 3), std::move(config)), other(Worker("other")) {
    for (const char* id : {"a", "b", "c"}) {
      Worker(id).run = "one";
      Join(id);
    }
    for (const char* id : {"a", "b", "c"}) (*this)[id].Contribute();
    other.run = "two";
  }
  Hello HelloOfOther(bool remembers) {
    Hello hello = other.MakeHello();
    hello.fresh = !remembers;
    if (remembers) hello.membership = {{1, 1}, {{"other"}}};
    return hello;
  }
  // The aggregator is replaced, only `back` returns, and the window passes.
  void Halt(const char* back) {
    for (const char* id : {"a", "b", "c"}) (*this)[id].fresh = false;
    Crash(5000);
    (*this)[back].Connect();
    Sleep(config.recovery_window + absl::Seconds(1));
    ASSERT_EQ(job().state(), JobState::kHalted);
  }
  // The job recovers once more, and no worker has returned yet.
  void RecoverOnceMore() {
    for (const char* id : {"a", "b", "c"}) (*this)[id].fresh = false;
    Crash(5000);
    (*this)["a"].Connect();
    (*this)["a"].Cut();
    (*this)["b"].Connect();
    (*this)["c"].Connect();
    Step(WorkerExited{kJob, "a"});
    ASSERT_EQ(job().state(), JobState::kRecovering);
  }
  TestWorker& other;
};

TEST(JobRows, ANewRunEndsAHalt) {
  TwoRuns t;
  t.Halt("a");
  t["a"].Cut();
  t.other.Connect(t.HelloOfOther(false));
  EXPECT_EQ(t.job().run, "two");
  EXPECT_TRUE(HasTaken(t, JobState::kHalted, JobInput::kFreshHello));
}

TEST(JobRows, AnOlderRunEndsAHalt) {
  TwoRuns t;
  t.Halt("a");
  t["a"].Cut();
  t.other.Connect(t.HelloOfOther(true));
  EXPECT_EQ(t.job().run, "two");
  EXPECT_TRUE(HasTaken(t, JobState::kHalted, JobInput::kRecover));
}

TEST(JobRows, ANewRunEndsARecovery) {
  TwoRuns t;
  t.RecoverOnceMore();
  t.other.Connect(t.HelloOfOther(false));
  EXPECT_EQ(t.job().run, "two");
  EXPECT_TRUE(HasTaken(t, JobState::kRecovering, JobInput::kFreshHello));
}

TEST(JobRows, AnOlderRunEndsARecovery) {
  TwoRuns t;
  t.RecoverOnceMore();
  t.other.Connect(t.HelloOfOther(true));
  EXPECT_EQ(t.job().run, "two");
  EXPECT_TRUE(HasTaken(t, JobState::kRecovering, JobInput::kRecover));
}

TEST(JobRows, AnOperatorEndsAHaltInWhichNobodyRemembers) {
  Config config;
  config.state_file = true;
  config.saved[kJob] = SavedState{"", 1, {{1, 1}, {{"a", "b"}}}};
  Cluster t(Settings(1, 2, 1), config);
  t.Worker("a").fresh = false;
  t.Join("a");
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  ASSERT_EQ(t.job().state(), JobState::kHalted);
  t.Step(RecoverJob{kJob});
  EXPECT_EQ(t.job().state(), JobState::kForming);
  EXPECT_TRUE(HasTaken(t, JobState::kHalted, JobInput::kKnowNothing));
}

// The first generation is still being written, so the lineage has not ended.
TEST(JobRows, ANewRunReplacesOneWhoseMembersAreLostBeforeTheyWereTold) {
  Config config;
  config.state_file = true;
  Cluster t(Settings(1, 2, 1), config);
  t.saves = false;
  t.Worker("a").run = "one";
  t.Join("a");
  ASSERT_EQ(t.job().state(), JobState::kRunning);
  t.Step(WorkerExited{kJob, "a"});
  ASSERT_EQ(t.job().state(), JobState::kRunning);
  t.Worker("b").run = "two";
  t.Worker("b").Connect();
  EXPECT_EQ(t.job().run, "two");
  EXPECT_TRUE(HasTaken(t, JobState::kRunning, JobInput::kFreshHello));
}

// Frames of a call open no round. While the call is idle, a joiner that waits elsewhere is left out
// of it, and a frame brings the joiner back.
TEST(RoundRows, AFrameOfAMemberThatWasLeftOutBeginsTheNextAttempt) {
  Running t;
  TestWorker& j = t.Join("j");
  for (TestWorker* worker : {&t.a, &t.b, &j}) {
    worker->Register({Tensor("x")}, "call/eval", LaneKind::kCall);
  }
  t.Round();
  ASSERT_EQ(j.role, Role::kMember);
  t.a.SendFrame(1, {0, 0, 1}, "call/eval");
  j.Begin();
  j.Send(Heartbeat{1, {{0, j.lane().next()}}});
  ASSERT_EQ(t.round(1)->phase(), RoundPhase::kIdle);
  j.SendFrame(1, {0, 0, 1}, "call/eval");
  EXPECT_EQ(t.round(1)->phase(), RoundPhase::kIdle);
  EXPECT_EQ(t.round(1)->ballot.attempt, 2u);
  EXPECT_TRUE(
      t.round(1)->taken().Has(RowOf(kRoundTransitions, RoundPhase::kIdle, RoundInput::kRestart)));
}

bool AnyHasTaken(const Round& round, Presence from, PresenceInput input) {
  RowsTaken taken;
  for (const RoundMember& member : round.members()) taken.Add(member.presence.taken());
  return taken.Has(RowOf(kPresenceTransitions, from, input));
}

bool AnyHasTaken(const Round& round, StagingState from, StagingInput input) {
  RowsTaken taken;
  for (const RoundMember& member : round.members()) taken.Add(member.staging.taken());
  return taken.Has(RowOf(kStagingTransitions, from, input));
}

// Two workers wait, each in a call that the other does not know.
TEST(PresenceRows, AMemberThatDoesNotKnowTheCallIsLeftOutWhenADeadlockEnds) {
  Config config;
  config.deadlock_timeout = absl::Minutes(1);
  Cluster t(Settings(2, 3, 2), config);
  for (const char* id : {"a", "b"}) t.Join(id);
  for (const char* id : {"a", "b"}) {
    const std::string call = std::string("call/") + id;
    t[id].Register({Tensor("x")}, call, LaneKind::kCall);
    t[id].Contribute(Spec(ReduceOp::kSum), call);
    t[id].waits.push_back({t[id].lane(call).index, 1});
    t[id].stages = false;
  }
  t.Sleep(absl::Minutes(1) + absl::Seconds(1));
  ASSERT_NE(t.round(1), nullptr);
  EXPECT_EQ(t.round(1)->phase(), RoundPhase::kPrepared);
  EXPECT_TRUE(AnyHasTaken(*t.round(1), Presence::kThere, PresenceInput::kLeaveOut));
}

TEST(PresenceRows, AMemberThatIsLostIsNotLeftOutWhenADeadlockEnds) {
  Config config;
  config.deadlock_timeout = absl::Minutes(1);
  Three t(Settings(1, 4, 3), config);
  for (TestWorker* worker : {&t.a, &t.b}) {
    const std::string call = "call/" + worker->id;
    worker->Register({Tensor("x")}, call, LaneKind::kCall);
    worker->Contribute(Spec(ReduceOp::kSum), call);
    worker->waits.push_back({worker->lane(call).index, 1});
    worker->stages = false;
  }
  t.Lose("c");
  t.Sleep(absl::Minutes(1) + absl::Seconds(1));
  ASSERT_NE(t.round(1), nullptr);
  EXPECT_EQ(t.round(1)->phase(), RoundPhase::kPrepared);
  for (const RoundMember& member : t.round(1)->members()) {
    EXPECT_FALSE(member.presence.taken().refused()) << member.id;
  }
}

// A member withdraws from a call that its client has not registered, so it receives no Prepared.
TEST(StagingRows, WhatAMemberStagesUnaskedOrTwiceCountsOnce) {
  Three t;
  const std::string call = "call/eval";
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Register({Tensor("x")}, call, LaneKind::kCall);
    worker->stages = false;
  }
  t.c.Send(Withdraw{1, 1, "it has nothing to add"});
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute(Spec(ReduceOp::kSum), call);
  ASSERT_EQ(t.round(1)->phase(), RoundPhase::kPrepared);
  const Staged staged{1, 1, t.round(1)->ballot};
  t.c.Send(staged);
  EXPECT_TRUE(AnyHasTaken(*t.round(1), StagingState::kNotAsked, StagingInput::kStage));
  t.a.Stage(call);
  t.a.Send(staged);
  EXPECT_TRUE(AnyHasTaken(*t.round(1), StagingState::kStaged, StagingInput::kStage));
  EXPECT_EQ(t.a.lane(call).last, 0u) << "b has not staged it";
  t.b.Stage(call);
  EXPECT_EQ(t.a.lane(call).last, 1u);
}

// A member that had the value requests it again after all other holders were lost. Another worker
// had joined after the value was fixed.
TEST(ContributionRows, ARoundThatIsRunAgainAwaitsThoseWhoHadTheValueAndThoseWhoJoined) {
  Three t(Settings(3, 3, 3));
  const std::string call = "call/eval";
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Register({Tensor("x")}, call, LaneKind::kCall);
  }
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  t.c.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Contribute(Spec(ReduceOp::kSum), call);
  }
  t.Lose("b");
  TestWorker& d = t.Join("d");
  ASSERT_EQ(d.role, Role::kMember);
  t.Lose("a");
  ASSERT_EQ(t.round(1)->phase(), RoundPhase::kPrepared);
  t.c.Send(Need{1, 1, t.c.Last<Prepared>().value_ballot, {{0, 0, 1}}});
  ASSERT_EQ(t.round(1)->phase(), RoundPhase::kCollect);
  RowsTaken taken;
  for (const RoundMember& member : t.round(1)->members()) taken.Add(member.contribution.taken());
  EXPECT_TRUE(taken.Has(RowOf(kContributionTransitions, ContributionState::kEffective,
                              ContributionInput::kRunAgain)));
  EXPECT_TRUE(taken.Has(RowOf(kContributionTransitions, ContributionState::kWithdrawn,
                              ContributionInput::kRunAgain)));
}

}  // namespace
}  // namespace basin::aggregator
