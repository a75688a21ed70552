// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A job goes on after the aggregator loses its memory, or finds traces of another aggregator.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;

// Three members with one verdict. Their hellos no longer declare the run new.
struct Committed : Cluster {
  explicit Committed(JobSettings settings = Settings(2, 4, 3), Config config = {})
      : Cluster(settings, std::move(config)), a(Join("a")), b(Join("b")), c(Join("c")) {
    for (TestWorker* worker : {&a, &b, &c}) worker->Contribute();
    for (TestWorker* worker : {&a, &b, &c}) worker->fresh = false;
  }
  void Round() {
    for (TestWorker* worker : {&a, &b, &c}) worker->Contribute();
  }
  void ConnectAll() {
    for (TestWorker* worker : {&a, &b, &c}) worker->Connect();
  }
  // All workers stage round 2, and only `told` receives its verdict.
  void SendVerdictOnlyTo(TestWorker& told) {
    told.stages = false;
    Round();
    for (TestWorker* worker : {&a, &b, &c}) {
      if (worker != &told) worker->Cut();
    }
    told.Stage();
    told.stages = true;
    ASSERT_EQ(told.lane().last, 2u);
  }
  TestWorker& a;
  TestWorker& b;
  TestWorker& c;
};

TEST(Recovery, EveryMemberIsBackWithMemory) {
  Committed t;
  const Generation before = t.a.membership.generation;
  t.Crash(5000);
  t.a.Connect();
  t.b.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  EXPECT_THAT(t.job().reason, HasSubstr("2 of 3 members"));
  EXPECT_THAT(t.job().reason, HasSubstr("missing: c"));
  EXPECT_EQ(t.a.Count<Welcome>(), 1u)
      << "of the old aggregator: nobody is told before it is decided";
  t.c.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRunning) << "without waiting for the window";
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(before < t.a.membership.generation);
  EXPECT_EQ(t.a.role, Role::kMember);
  t.Round();
  EXPECT_EQ(t.a.lane().delivered[2].at({0, 0}), (Reduced{7, 3}));
  EXPECT_EQ(t.a.verdict().ballot.term, t.job().term);
}

TEST(Recovery, Fault_A1_ARoundInFlightIsPushedAgainAndAppliedOnce) {
  Committed t;
  t.a.Contribute();
  t.b.Contribute();
  t.c.Begin();
  t.c.PushTensor(0);
  t.Crash(5000);
  t.ConnectAll();
  EXPECT_EQ(t.a.lane().last, 1u);
  t.c.PushTensor(1);
  t.c.Commit();
  EXPECT_EQ(t.a.lane().last, 2u);
  EXPECT_EQ(t.b.lane().delivered[2].at({0, 0}), (Reduced{7, 3}));
}

TEST(Recovery, Fault_A2_AVerdictThatOneWasToldIsToldToAll) {
  Committed t;
  t.SendVerdictOnlyTo(t.a);
  t.Crash(5000);
  t.ConnectAll();
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    EXPECT_EQ(worker->lane().last, 2u) << worker->id;
    EXPECT_EQ(worker->lane().chain, t.a.lane().chain);
  }
  EXPECT_EQ(t.b.lane().delivered[2].at({0, 0}), (Reduced{7, 3}));
  t.Round();
  EXPECT_EQ(t.c.lane().last, 3u);
}

TEST(Recovery, Fault_A2_AlsoWhenWhoWasToldDiesToo) {
  Committed t;
  t.SendVerdictOnlyTo(t.a);
  const VerdictRecord told = t.a.verdict();
  t.Crash(5000);
  t.b.Connect();
  t.c.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.Sleep(t.config.recovery_window);
  EXPECT_EQ(t.job().state(), JobState::kRunning) << "a majority with memory";
  EXPECT_EQ(t.b.lane().last, 2u) << "the staged value is adopted, and prepared again";
  EXPECT_TRUE(t.b.verdict().value == told.value);
  EXPECT_EQ(t.b.verdict().value_ballot, told.value_ballot);
  EXPECT_TRUE(told.ballot < t.b.verdict().ballot);
  EXPECT_EQ(t.b.verdict().chain, told.chain) << "one version";
}

TEST(Recovery, AWithdrawalIsRepeatedOfTheAdoptedValue) {
  Committed t;
  t.c.stages = false;
  t.c.Begin();
  t.c.Withdraw();
  for (TestWorker* worker : {&t.a, &t.b}) worker->Contribute();
  t.Crash(5000);
  t.ConnectAll();
  ASSERT_TRUE(t.round()->adopted.has_value());
  t.c.Withdraw();
  EXPECT_EQ(t.c.rejected(), ErrorCode::kOk);
  t.c.Stage();
  EXPECT_EQ(t.c.lane().last, 2u);
}

TEST(Recovery, TheNewestStagedValueIsAdopted) {
  const auto staged = [](uint64_t attempt, Digest digest) {
    StagedValue value{2, {1, attempt}, {1, attempt}, {}};
    value.value.outcome = Outcome::kCommitted;
    value.value.digest = digest;
    return value;
  };
  Committed t;
  std::map<WorkerId, Hello> hellos;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) hellos[worker->id] = worker->MakeHello();
  hellos["a"].lanes[0].staged = staged(1, 10);
  hellos["b"].lanes[0].staged = staged(2, 20);
  const RecoveryDecision decision = DecideRecovery(hellos, RecoveryFacts{}, Rules{});
  ASSERT_EQ(decision.step, RecoveryStep::kRecover);
  EXPECT_EQ(decision.lanes[0].adopted->value.digest, 20u);
  EXPECT_THAT(decision.lanes[0].holders, ElementsAre("b"));
}

TEST(Recovery, WhoLacksBytesOfTheAdoptedValueGetsThemFromAHolder) {
  Committed t;
  t.c.stages = false;
  t.Round();
  t.c.lane().results.clear();
  t.Crash(5000);
  t.c.stages = true;
  t.ConnectAll();
  EXPECT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  const Prepared prepared = t.c.Last<Prepared>();
  EXPECT_NE(prepared.ballot, prepared.value_ballot);
  EXPECT_EQ(t.a.lane().last, 1u);
  t.c.Send(Need{0, 2, prepared.value_ballot, {{0, 0, 1}, {1, 0, 1}}});
  EXPECT_EQ(t.a.Count<Supply>() + t.b.Count<Supply>(), 1u) << "one holder is asked, once";
  EXPECT_EQ(t.c.lane().last, 2u);
  EXPECT_EQ(t.c.lane().delivered[2].at({1, 0}), (Reduced{7, 3}));
}

TEST(Recovery, AHolderThatIsLostIsReplacedByAnother) {
  Committed t;
  t.c.stages = false;
  t.Round();
  t.c.lane().results.clear();
  t.Crash(5000);
  t.c.stages = true;
  t.a.supplies = false;
  t.ConnectAll();
  t.c.Send(Need{0, 2, t.c.Last<Prepared>().value_ballot, {{0, 0, 1}, {1, 0, 1}}});
  EXPECT_EQ(t.a.Count<Supply>(), 1u);
  EXPECT_EQ(t.b.Count<Supply>(), 0u);
  t.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(t.b.Count<Supply>(), 1u);
  EXPECT_EQ(t.c.lane().last, 2u);
}

TEST(Recovery, AHolderThatReconnectsIsAskedAgain) {
  Committed t;
  t.b.stages = t.c.stages = false;
  t.Round();
  t.b.lane().results.clear();
  t.c.lane().results.clear();
  t.Crash(5000);
  t.b.stages = t.c.stages = true;
  t.a.supplies = false;
  t.ConnectAll();
  const Ballot value = t.c.Last<Prepared>().value_ballot;
  t.c.Send(Need{0, 2, value, {{0, 0, 1}, {1, 0, 1}}});
  t.b.Send(Need{0, 2, value, {{0, 0, 1}, {1, 0, 1}}});
  EXPECT_EQ(t.a.Count<Supply>(), 1u) << "what is asked for is not asked again";
  t.a.Cut();
  t.a.supplies = true;
  t.a.Connect();
  EXPECT_EQ(t.a.lane().last, 2u);
  EXPECT_EQ(t.b.lane().last, 2u);
}

TEST(Recovery, OnlyAHolderMaySupply) {
  Committed t;
  t.b.stages = t.c.stages = false;
  t.Round();
  t.b.lane().results.clear();
  t.c.lane().results.clear();
  t.Crash(5000);
  t.a.supplies = false;
  t.ConnectAll();
  const Ballot value = t.c.Last<Prepared>().value_ballot;
  t.c.Send(Need{0, 2, value, {{0, 0, 1}}});
  FrameReceived frame;
  frame.session = t.b.session;
  frame.kind = FrameKind::kSupply;
  frame.round = 2;
  frame.ballot = value;
  frame.ranges = {{0, 0, 1}};
  frame.bytes = kChunkBytes;
  frame.digests = {1};
  t.ClearLog();
  t.Step(frame, {{99, 1}});
  EXPECT_THAT(t.Actions<RelayResult>(), IsEmpty());
}

// Only a has staged round 2, which is adopted, and a supplies nothing.
struct OneHolder : Committed {
  explicit OneHolder(Config config = {}) : Committed(Settings(1, 4, 3), std::move(config)) {
    b.stages = c.stages = false;
    Round();
    b.lane().results.clear();
    c.lane().results.clear();
    Crash(5000);
    b.stages = c.stages = true;
    a.supplies = false;
    ConnectAll();
    c.Send(Need{0, 2, c.Last<Prepared>().value_ballot, {{0, 0, 1}, {1, 0, 1}}});
    b.Send(Need{0, 2, b.Last<Prepared>().value_ballot, {{0, 0, 1}, {1, 0, 1}}});
  }
};

TEST(Recovery, WhenEveryHolderIsLostAnOperatorDecides) {
  OneHolder t;
  t.Step(WorkerExited{kJob, "a"});
  ASSERT_TRUE(t.b.ended.has_value()) << "they say what they know once more, on new sessions";
  EXPECT_EQ(t.b.ended->code, ErrorCode::kUnavailable);
  t.b.Connect();
  t.c.Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kHalted) << "a may have told somebody the verdict";
  EXPECT_THAT(t.job().reason, HasSubstr("round 2 of lane model may have a verdict"));
  EXPECT_THAT(t.job().reason, HasSubstr("lost with a"));
  t.a.Restart();
  t.a.Connect();
  EXPECT_EQ(t.job().state(), JobState::kHalted) << "without its memory";
  t.Step(RecoverJob{kJob});
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_EQ(t.b.lane().last, 2u);
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 2u);
  EXPECT_EQ(t.b.lane().delivered[2].at({0, 0}), (Reduced{6, 2}));
}

TEST(Recovery, AHolderThatComesBackWithItsMemoryEndsTheWait) {
  OneHolder t;
  t.Step(WorkerExited{kJob, "a"});
  t.a.supplies = true;
  t.ConnectAll();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  t.b.Send(Need{0, 2, t.b.Last<Prepared>().value_ballot, {{0, 0, 1}, {1, 0, 1}}});
  t.c.Send(Need{0, 2, t.c.Last<Prepared>().value_ballot, {{0, 0, 1}, {1, 0, 1}}});
  EXPECT_EQ(t.b.lane().last, 2u);
  EXPECT_EQ(t.b.lane().delivered[2].at({0, 0}), (Reduced{7, 3})) << "the value that was adopted";
}

TEST(Recovery, AHolderThatIsNoLongerListedEndsTheWaitToo) {
  OneHolder t;
  std::map<WorkerId, Hello> hellos;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) hellos[worker->id] = worker->MakeHello();
  const LaneHistory& a = hellos["a"].lanes[0];
  ASSERT_TRUE(a.staged.has_value());
  Orphan orphan{"model", 2, a.staged->ballot, ExtendChain(a.chain, 2, a.staged->value), {"a"}};
  // The job went on without a in a pause.
  for (const char* id : {"b", "c"}) {
    hellos[id].membership = {{hellos[id].membership.generation.term, 99}, {{"b", "c"}}};
    hellos[id].lanes[0].staged.reset();
  }
  RecoveryFacts facts;
  facts.max_workers = 3;
  facts.orphans = {orphan};
  const RecoveryDecision decision = DecideRecovery(hellos, facts, Rules{});
  EXPECT_EQ(decision.step, RecoveryStep::kRecover);
  EXPECT_THAT(decision.members, ElementsAre("b", "c", "a"));
  EXPECT_THAT(decision.lanes[0].holders, ElementsAre("a"));
  EXPECT_TRUE(Explains(decision, orphan));
  // It becomes a member only within max_workers.
  facts.max_workers = 2;
  EXPECT_FALSE(Explains(DecideRecovery(hellos, facts, Rules{}), orphan));
}

// The window passes before any worker returns, so the run counts as new for the time being.
TEST(Recovery, AnEmptyWindowDoesNotForgetWhatWasLostWithItsHolders) {
  OneHolder t;
  t.Step(WorkerExited{kJob, "a"});
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kForming);
  t.b.Connect();
  t.c.Connect();
  t.b.Connect();  // The job ended its first session when it began to recover again.
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kHalted);
  EXPECT_THAT(t.job().reason, HasSubstr("round 2 of lane model may have a verdict"));
  t.a.supplies = true;
  t.a.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 3u) << "the value that was adopted";
}

TEST(Recovery, WhatWasLostDoesNotHoldUpANewLineage) {
  OneHolder t;
  t.Step(WorkerExited{kJob, "a"});
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Restart();
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->Connect();
    worker->Register({Tensor("w"), Tensor("b")});
    worker->Ready();
  }
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  const RoundNumber first = t.a.lane().last;
  EXPECT_GT(first, 0u);
  // The job recovers once more, and has nothing from the old lineage to explain.
  Hello hello = t.c.MakeHello();
  hello.membership.generation = {t.job().term + 1, 1};
  t.c.Connect(hello);
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.a.Connect();
  t.b.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_EQ(t.job().lanes[0].next, first + 1);
}

TEST(Recovery, ThePolicyAnyGoesOnWithoutTheHolders) {
  Config config;
  config.recovery_policy = RecoveryPolicy::kAny;
  OneHolder t(config);
  t.Step(WorkerExited{kJob, "a"});
  t.b.Connect();
  t.c.Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_EQ(t.b.lane().last, 2u);
  EXPECT_THAT(t.NoteText(NoteKind::kRecovered),
              HasSubstr("lost with a, and the round is repeated"));
  EXPECT_EQ(t.LastNote(NoteKind::kRecovered).cause, NoteCause::kGoesOnWithoutMissing);
}

TEST(Recovery, WhoIsLaidOutOtherwiseJoinsAnew) {
  Committed t;
  std::map<WorkerId, Hello> hellos;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) hellos[worker->id] = worker->MakeHello();
  LaneHistory& b = hellos["b"].lanes[0];
  std::swap(b.layout[0], b.layout[1]);
  RecoveryDecision decision = DecideRecovery(hellos, RecoveryFacts{}, Rules{});
  EXPECT_THAT(decision.members, ElementsAre("a", "c"));
  // The value that b staged names tensors by b's indexes, and its ballot is the highest.
  StagedValue staged{2, {1, 2}, {1, 2}, {}};
  staged.value.outcome = Outcome::kCommitted;
  b.staged = staged;
  decision = DecideRecovery(hellos, RecoveryFacts{}, Rules{});
  EXPECT_THAT(decision.members, ElementsAre("b"));
  EXPECT_EQ(decision.lanes[0].layout, b.layout);
  EXPECT_THAT(decision.lanes[0].holders, ElementsAre("b"));
}

// A lane in which no worker staged anything must not exclude the only holder in another lane.
TEST(Recovery, WhoStagedSaysHowTheOtherLanesAreLaidOut) {
  Committed t;
  std::map<WorkerId, Hello> hellos;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    Hello hello = worker->MakeHello();
    hello.lanes.resize(1);
    hello.lanes.push_back(hello.lanes[0]);
    hello.lanes[1].name = "second";
    hello.lanes[1].lane = 1;
    hellos[worker->id] = std::move(hello);
  }
  Hello& b = hellos["b"];
  std::swap(b.lanes[1].layout[0], b.lanes[1].layout[1]);
  StagedValue staged{2, {1, 2}, {1, 2}, {}};
  staged.value.outcome = Outcome::kCommitted;
  b.lanes[0].staged = staged;
  const RecoveryDecision decision = DecideRecovery(hellos, RecoveryFacts{}, Rules{});
  EXPECT_THAT(decision.members, ElementsAre("b"));
  EXPECT_TRUE(decision.lanes[0].adopted.has_value());
  EXPECT_EQ(decision.lanes[1].layout, b.lanes[1].layout);
}

TEST(Recovery, TwoThatAreToldTheSameRuleInDifferentTerms) {
  std::vector<Term> terms;
  for (const uint64_t random : {7, 1000}) {
    Config config;
    config.term_random = random;
    Committed t(Settings(2, 4, 3), config);
    t.Crash(1);
    t.ConnectAll();
    terms.push_back(t.job().term);
  }
  EXPECT_THAT(terms, Each(Gt(1u)));
  EXPECT_NE(terms[0], terms[1]);
}

TEST(Recovery, AnAbortedValueIsAdoptedToo) {
  Committed t;
  t.c.stages = false;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Withdraw();
  ASSERT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  t.c.stages = true;
  t.Crash(5000);
  t.ConnectAll();
  EXPECT_EQ(t.a.verdict().value.outcome, Outcome::kAborted);
  EXPECT_EQ(t.c.lane().last, 2u);
}

TEST(Recovery, AMinorityIsNotEnough) {
  Committed t;
  t.Crash(5000);
  t.a.Connect();
  t.Sleep(absl::Seconds(2));
  EXPECT_THAT(t.a.Last<HeldUp>().text,
              AllOf(HasSubstr("waits up to 7s longer for the other workers: 1 of 3 members"),
                    HasSubstr("missing: b, c")));
  t.Sleep(t.config.recovery_window);
  EXPECT_EQ(t.job().state(), JobState::kHalted);
  EXPECT_EQ(t.Notes(NoteKind::kHalted), 1u);
  EXPECT_THAT(t.NoteText(NoteKind::kHalted), HasSubstr("basinctl recover"));
  EXPECT_THAT(t.a.Last<HeldUp>().text, HasSubstr("Job job is halted: 1 of 3 members"));
  t.b.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRunning) << "until the missing come back";
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "b"));
}

TEST(Recovery, AnOperatorMayGoOnWithWhoeverIsBack) {
  Committed t;
  t.Crash(5000);
  t.a.Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  t.Step(RecoverJob{kJob});
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_THAT(t.a.membership.members, ElementsAre("a"));
  EXPECT_TRUE(t.job().Paused()) << "min_workers holds all the same";
  t.Step(RecoverJob{kJob});
}

TEST(Recovery, ThePolicyAnyGoesOnByItself) {
  Config config;
  config.recovery_policy = RecoveryPolicy::kAny;
  Committed t(Settings(1, 4, 3), config);
  t.Crash(5000);
  t.a.Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  t.a.Contribute();
  EXPECT_EQ(t.a.lane().last, 2u);
}

TEST(Recovery, AProcessWithoutMemoryNeverCounts) {
  Committed t;
  t.b.Restart();
  t.c.Restart();
  t.Crash(5000);
  t.ConnectAll();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kHalted);
}

TEST(Recovery, WhoComesWithoutMemoryIsAJoinerAfterwards) {
  Committed t;
  t.c.Restart();
  t.Crash(5000);
  t.ConnectAll();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "b"));
  EXPECT_EQ(t.c.role, Role::kJoiner);
  t.c.Ready();
  t.a.Contribute();
  t.b.Contribute();
  EXPECT_EQ(t.c.role, Role::kMember);
}

TEST(Recovery, NobodyRemembersAndNothingIsWrittenDown) {
  Committed t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Restart();
  t.Crash(5000);
  t.ConnectAll();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kForming);
  EXPECT_EQ(t.Notes(NoteKind::kRecovered), 1u);
  EXPECT_EQ(t.LastNote(NoteKind::kRecovered).cause, NoteCause::kNewRun);
  EXPECT_EQ(t.a.role, Role::kJoiner);
}

TEST(Recovery, FreshByFlagIsVoidedByAHelloWithHistory) {
  Committed t;
  t.Crash(5000);
  t.c.Restart();
  t.c.fresh = true;
  t.c.Connect();
  EXPECT_EQ(t.job().state(), JobState::kForming);
  t.a.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  EXPECT_EQ(t.c.ended->code, ErrorCode::kUnavailable);
  t.b.Connect();
  t.c.Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "b"));
  EXPECT_EQ(t.a.lane().next(), 2u);
}

TEST(Recovery, AFlagEndsTheWaitWhenNobodyRemembers) {
  Committed t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Restart();
  t.Crash(5000);
  t.a.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.b.fresh = true;
  t.b.Connect();
  EXPECT_EQ(t.job().state(), JobState::kForming);
}

TEST(Recovery, AnEvictedWorkerIsNotAMemberAfterwards) {
  Committed t;
  t.Step(EvictWorker{kJob, "c", "operator"});
  t.a.Contribute();
  t.b.Contribute();
  t.Crash(5000);
  t.ConnectAll();
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "b"));
  EXPECT_EQ(t.c.role, Role::kJoiner) << "one verdict behind, and it never staged it";
}

TEST(Recovery, AJoinerThatOnlyKnowsTheChainProvesTheVerdict) {
  Committed t;
  TestWorker& j = t.Join("A");  // Its id is the lowest, so its history would be found first.
  j.fresh = false;
  // Only j receives the verdict that makes it a member; the others stage and receive nothing more.
  std::map<WorkerId, TestWorker::LaneView> before;
  t.a.stages = false;
  t.Round();
  t.a.lane().staged = StagedValue{2, t.a.lane().prepared->ballot, t.a.lane().prepared->value_ballot,
                                  t.a.lane().prepared->value};
  const Membership members = t.a.membership;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) before[worker->id] = worker->lane();
  t.a.Stage();
  ASSERT_EQ(j.role, Role::kMember);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    worker->lane() = before[worker->id];
    worker->membership = members;
  }
  t.a.stages = true;
  t.Crash(5000);
  j.Connect();
  t.ConnectAll();
  EXPECT_THAT(j.membership.members, ElementsAre("a", "b", "c", "A"));
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) {
    EXPECT_EQ(worker->role, Role::kMember) << worker->id;
    EXPECT_EQ(worker->lane().last, 2u) << worker->id;
    EXPECT_EQ(worker->lane().chain, j.lane().chain) << worker->id;
  }
}

// The members have ruled on a call. Then a worker joins, which does not name the call's lane.
struct CalledBeforeAJoiner : Committed {
  CalledBeforeAJoiner() {
    for (TestWorker* worker : {&a, &b, &c}) worker->Register({Tensor("x")}, kCall, LaneKind::kCall);
    for (TestWorker* worker : {&a, &b, &c}) worker->Contribute(Spec(ReduceOp::kSum), kCall);
    j.fresh = false;
    for (TestWorker* worker : {&a, &b, &c}) worker->Contribute();
    EXPECT_EQ(j.role, Role::kMember);
    EXPECT_EQ(a.lane(kCall).last, 1u);
  }
  void CallAll() {
    j.Register({Tensor("x")}, kCall, LaneKind::kCall);
    for (TestWorker* worker : {&a, &b, &c, &j}) worker->Contribute(Spec(ReduceOp::kSum), kCall);
  }
  void CrashWithoutTheLaneOfTheJoiner() {
    j.lanes.erase(kCall);  // A client keeps only lanes that its trainer has named.
    Crash(5000);
    ConnectAll();
    j.Connect();
  }
  static constexpr char kCall[] = "call/x";
  TestWorker& j = Join("j");
};

TEST(Recovery, Fault_A1_AJoinerNeedsNoLaneOfCallsBeforeIt) {
  CalledBeforeAJoiner t;
  t.CrashWithoutTheLaneOfTheJoiner();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "b", "c", "j"));
  EXPECT_EQ(t.j.role, Role::kMember);
  for (TestWorker* worker : {&t.a, &t.b, &t.c, &t.j}) worker->Contribute();
  EXPECT_EQ(t.a.lane().last, 3u);
  EXPECT_EQ(t.j.lane().chain, t.a.lane().chain);
  t.CallAll();
  EXPECT_EQ(t.a.lane(t.kCall).last, 2u);
  EXPECT_EQ(t.j.lane(t.kCall).last, 2u);
}

TEST(Recovery, Fault_A1_AJoinerThatWasCountedInACallNeedsItsVerdict) {
  CalledBeforeAJoiner t;
  t.CallAll();
  ASSERT_EQ(t.a.lane(t.kCall).last, 2u);
  t.CrashWithoutTheLaneOfTheJoiner();
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "b", "c"));
  EXPECT_NE(t.j.role, Role::kMember);
}

TEST(Recovery, Fault_A1_AJoinerWithoutTheLaneOfACallInFlightJoinsAnew) {
  CalledBeforeAJoiner t;
  StagedValue value{2, {1, 1}, {1, 1}, {}};
  value.value.outcome = Outcome::kCommitted;
  t.a.lane(t.kCall).staged = value;
  t.CrashWithoutTheLaneOfTheJoiner();
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "b", "c"));
  EXPECT_NE(t.j.role, Role::kMember);
}

// Nobody remembers a verdict: one member has staged the first call of the run, and has not heard
// that it was committed, and the other one was replaced after that.
TEST(Recovery, Fault_A1_TheFirstCallGoesOnWithoutAJoinerThatWaitsElsewhere) {
  constexpr char kCall[] = "call/x";
  Cluster t(Settings(2, 2, 2));
  TestWorker& a = t.Join("a");
  TestWorker& b = t.Join("b");
  ASSERT_EQ(a.role, Role::kMember);
  for (TestWorker* worker : {&a, &b}) worker->Register({Tensor("x")}, kCall, LaneKind::kCall);
  for (TestWorker* worker : {&a, &b}) worker->Contribute(Spec(ReduceOp::kSum), kCall);
  ASSERT_EQ(a.lane(kCall).last, 1u);
  const VerdictRecord record = a.verdict(kCall);
  b.Restart();
  b.fresh = false;
  b.Connect();
  b.Register({Tensor("w"), Tensor("b")});
  b.Ready();
  ASSERT_EQ(b.role, Role::kMember);
  ASSERT_TRUE(b.lacks_state);
  // The verdict did not reach a.
  TestWorker::LaneView& call = a.lane(kCall);
  call.last = call.chain = 0;
  call.verdicts.clear();
  call.staged = StagedValue{1, record.ballot, record.value_ballot, record.value};
  b.lanes.erase(kCall);  // A client keeps only lanes that its trainer has named.
  t.Crash(5000);
  a.Connect();
  b.Connect();
  ASSERT_EQ(t.job().state(), JobState::kRunning);
  ASSERT_EQ(b.role, Role::kMember);
  EXPECT_EQ(a.lane(kCall).last, 0u) << "b may still make the call";
  b.Send(Get{{kLane, "w", 0}, std::nullopt, std::nullopt, 0, 0, absl::Seconds(10)});
  EXPECT_EQ(a.lane(kCall).last, 1u);
}

TEST(Recovery, AJoinerWithoutALaneOfGradientsJoinsAnew) {
  CalledBeforeAJoiner t;
  t.j.lanes.erase(kLane);
  t.CrashWithoutTheLaneOfTheJoiner();
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "b", "c"));
}

TEST(Recovery, AForkedHistoryIsFatal) {
  Committed t;
  t.c.lane().verdicts.clear();
  t.c.lane().chain ^= 1;
  t.Crash(5000);
  t.ConnectAll();
  ASSERT_TRUE(t.c.ended.has_value());
  EXPECT_EQ(t.c.ended->code, ErrorCode::kLineageConflict);
  EXPECT_EQ(t.Notes(NoteKind::kLineageConflict), 1u);
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "b"));
  // The same happens after the recovery.
  t.c.Connect();
  EXPECT_EQ(t.c.ended->code, ErrorCode::kLineageConflict);
}

TEST(Recovery, AForkOneVerdictBackIsFatalToo) {
  Committed t;
  t.Round();
  t.c.lane().last = 1;
  t.c.lane().chain ^= 1;
  t.c.lane().verdicts.clear();
  t.Crash(5000);
  t.ConnectAll();
  EXPECT_EQ(t.c.ended->code, ErrorCode::kLineageConflict);
}

TEST(Recovery, Fault_A5_ToldOfAHigherTermItStepsDown) {
  Committed t;
  Hello hello = t.c.MakeHello();
  hello.membership.generation = {9000, 1};
  hello.incarnation = {9000, 3};
  t.c.Connect(hello);
  EXPECT_EQ(t.Notes(NoteKind::kSteppedDown), 1u);
  EXPECT_EQ(t.a.ended->code, ErrorCode::kUnavailable);
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.a.Connect();
  t.b.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_GT(t.job().term, 9000u);
  t.a.Contribute();
  EXPECT_EQ(t.job().lanes[0].next, 2u);
}

// A process that was never a member here names a higher term.
struct Stranger : Committed {
  Stranger() : x(Worker("x")) {
    hello = x.MakeHello();
    hello.membership = {{9000, 1}, {{"x", "y", "z"}}};
    hello.incarnation = {9000, 3};
  }
  TestWorker& x;
  Hello hello;
};

TEST(Stranger, Fault_A6_DoesNotStopWhatIsRunning) {
  Stranger t;
  t.x.Connect(t.hello);
  ASSERT_TRUE(t.x.ended.has_value());
  EXPECT_EQ(t.x.ended->code, ErrorCode::kLineageConflict);
  EXPECT_THAT(t.x.ended->text,
              HasSubstr("worker x has been in term 9000, and 3 of 3 members are connected"));
  EXPECT_EQ(t.Notes(NoteKind::kSteppedDown), 0u);
  EXPECT_EQ(t.Notes(NoteKind::kLineageConflict), 1u);
  EXPECT_FALSE(t.a.ended.has_value());
  t.Round();
  EXPECT_EQ(t.a.lane().last, 2u);
}

TEST(Stranger, Fault_A6_ATermThatNobodyCanHaveIsRefusedAndItsAnswerIsNot) {
  Stranger t;
  t.hello.membership.generation.term = Term{1} << 62;
  t.x.Connect(t.hello);
  EXPECT_EQ(t.x.ended->code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(t.x.ended->text, HasSubstr("an impossible term"));
  // This is the highest plausible term; the term that the members then receive is plausible as
  // well.
  t.a.Cut();
  t.b.Cut();
  t.hello.membership.generation.term = t.job().term + (Term{1} << 40);
  t.x.Connect(t.hello);
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.c.Connect();
  t.Step(RecoverJob{kJob});
  ASSERT_GT(t.c.incarnation.term, Term{1} << 40);
  t.c.Cut();
  t.c.Connect();
  EXPECT_NE(t.c.session, 0u);
}

TEST(Stranger, Fault_A4_TriesAgainWhereTheMembersMayHaveLeftDuringAPause) {
  Stranger t;
  t.Stall(absl::Seconds(30));
  t.Step(Tick{});
  t.x.Connect(t.hello);
  EXPECT_EQ(t.x.ended->code, ErrorCode::kUnavailable);
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  t.a.Cut();
  t.b.Cut();
  t.x.Connect(t.hello);
  EXPECT_EQ(t.Notes(NoteKind::kSteppedDown), 1u);
}

TEST(Stranger, Fault_A5_IsBelievedWhenMostMembersAreNotHere) {
  Stranger t;
  t.a.Cut();
  t.b.Cut();
  t.x.Connect(t.hello);
  EXPECT_EQ(t.Notes(NoteKind::kSteppedDown), 1u);
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
}

// A worker joined under another aggregator and received the verdicts of these members there.
TEST(Stranger, Fault_A5_IsBelievedWhenItKnowsTheChain) {
  Stranger t;
  t.hello.lanes = t.a.MakeHello().lanes;
  t.x.Connect(t.hello);
  EXPECT_EQ(t.Notes(NoteKind::kSteppedDown), 1u);
}

TEST(Recovery, AWorkerAheadOfTheJobIsInConflict) {
  Committed t;
  t.c.Cut();
  t.c.lane().last = 7;
  t.c.lane().verdicts.clear();
  t.c.Connect();
  EXPECT_EQ(t.c.ended->code, ErrorCode::kLineageConflict);
  EXPECT_THAT(t.c.ended->text, HasSubstr("which ends at round 1"));
}

TEST(Recovery, AReplacementDoesNotPushOutAProcessThatRemembers) {
  Committed t;
  t.Crash(5000);
  t.a.Connect();
  TestWorker twin = t.a;
  Hello hello = twin.MakeHello();
  hello.nonce = 5;
  hello.membership = {};
  hello.incarnation = {};
  hello.lanes.clear();
  const SessionId session = t.NewSession();
  t.Step(SessionOpened{session, 1});
  t.ClearLog();
  t.Step(MessageReceived{session, hello});
  ASSERT_EQ(t.Actions<EndSession>().size(), 1u);
  EXPECT_EQ(t.Actions<EndSession>()[0].session, session);
  EXPECT_EQ(t.Actions<EndSession>()[0].error.code, ErrorCode::kUnavailable);
  // A newer session of the same process replaces the older one.
  const SessionId first = t.a.session;
  t.a.Connect();
  bool ended = false;
  for (const EndSession& end : t.Actions<EndSession>()) ended |= end.session == first;
  EXPECT_TRUE(ended);
  t.b.Connect();
  t.c.Connect();
  EXPECT_EQ(t.a.role, Role::kMember);
  EXPECT_NE(t.a.session, 0u);
}

TEST(Recovery, WhatWasSaidStaysTrueWhenTheSessionIsLost) {
  Committed t;
  t.Crash(5000);
  t.a.Connect();
  t.a.Cut();
  t.b.Connect();
  t.c.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_THAT(t.b.membership.members, ElementsAre("a", "b", "c"));
  t.a.Connect();
  EXPECT_EQ(t.a.role, Role::kMember);
  t.Round();
  EXPECT_EQ(t.a.lane().last, 2u);
}

TEST(Recovery, WhoDoesNotComeBackIsLostAfterItsLease) {
  Committed t;
  t.Crash(5000);
  t.ConnectAll();
  t.a.Cut();
  t.b.Contribute();
  t.c.Contribute();
  t.Sleep(t.config.lease + absl::Seconds(1));
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 2u);
}

// ---- hellos that promise nothing

TEST(Promise, WhoIsLostWithoutOneMakesTheJobRecoverOnceMore) {
  Committed t;
  t.Crash(5000);
  t.a.Connect();
  t.a.Cut();
  t.b.Connect();
  t.c.Connect();
  t.b.Contribute();
  t.c.Contribute();
  t.Sleep(t.config.lease + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  EXPECT_THAT(t.job().reason, HasSubstr("worker a was lost before it knew"));
  t.b.Connect();
  t.c.Connect();
  t.Sleep(t.config.recovery_window);
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 2u) << "a majority is back";
}

// The loss lets the chunks of the other two be reduced, and the job recovers at once. The round
// begins anew with another worker, and the earlier sum must not become a part of it.
TEST(Promise, AReductionThatEndsAfterTheJobHasRecoveredOnceMoreIsOfNoUse) {
  Committed t;
  t.Crash(5000);
  t.a.Connect();
  t.a.Cut();
  t.b.Connect();
  t.c.Connect();
  t.reduces = false;
  t.b.Contribute();
  t.c.Contribute();
  const Term before = t.job().term;
  t.Sleep(t.config.lease + absl::Seconds(1));
  ASSERT_EQ(t.job().state(), JobState::kRecovering);
  const std::vector<Shell::Reduction> late = std::exchange(t.reductions, {});
  ASSERT_FALSE(late.empty());
  t.a.Connect();
  t.b.Connect();
  t.Sleep(t.config.recovery_window);
  EXPECT_GT(t.job().term, before);
  t.a.Contribute();
  for (const Shell::Reduction& reduction : late) t.Finish(reduction);
  t.FinishReduces();
  ASSERT_EQ(t.a.lane().last, 2u);
  EXPECT_EQ(t.a.lane().delivered[2].at({0, 0}), (Reduced{3, 2}));
}

// A second aggregator recovers with the hellos that all workers have sent it. Before they read its
// welcome, a and b return to the first aggregator, where they have a verdict without c.
struct WentBack : Committed {
  explicit WentBack(bool c_has_staged = false, Config config = {})
      : Committed(Settings(2, 4, 3), std::move(config)) {
    if (c_has_staged) {
      a.stages = b.stages = false;
      Round();
      a.stages = b.stages = true;
    }
    early_a = a.MakeHello();
    early_b = b.MakeHello();
    const Hello early_c = c.MakeHello();
    Step(WorkerExited{kJob, "c"});
    if (c_has_staged) {
      a.Stage();
      b.Stage();
    } else {
      a.Contribute();
      b.Contribute();
    }
    EXPECT_EQ(b.lane().last, 2u);
    late_a = a.MakeHello();
    late_b = b.MakeHello();
    Crash(5000);
    for (TestWorker* worker : {&a, &b}) {
      worker->sees_layouts = worker->repushes = worker->stages = worker->heartbeats = false;
    }
    prepared = c.Count<Prepared>();
    a.Connect(early_a);
    b.Connect(early_b);
    c.Connect(early_c);
    EXPECT_EQ(job().state(), JobState::kRunning);
  }
  void ExpectVerdictIsKept() {
    c.Connect();
    EXPECT_EQ(job().state(), JobState::kRunning);
    EXPECT_EQ(job().lanes[0].chain, late_a.lanes[0].chain);
    EXPECT_NE(a.session, 0u) << a.ended->text;
    EXPECT_NE(b.session, 0u) << b.ended->text;
  }
  Hello early_a;
  Hello early_b;
  Hello late_a;
  Hello late_b;
  size_t prepared = 0;  // How often the first aggregator asked c to stage.
};

Config AbortsOnLoss() {
  Config config;
  config.loss_policy = LossPolicy::kAbort;
  return config;
}

TEST(Promise, Fault_A5_NobodyStagesWhatTheOthersMayNotKnowOf) {
  WentBack t(false, AbortsOnLoss());
  t.c.Contribute();
  t.a.Close();
  t.b.Close();
  t.Sleep(t.config.closed_lease + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  EXPECT_EQ(t.c.Count<Prepared>(), t.prepared);
  t.a.Connect(t.late_a);
  t.b.Connect(t.late_b);
  t.ExpectVerdictIsKept();
}

TEST(Promise, Fault_A5_ALaterVerdictIsHeardUntilTheRecoveryStands) {
  WentBack t;
  t.a.Connect(t.late_a);
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.b.Connect(t.late_b);
  t.ExpectVerdictIsKept();
}

TEST(Promise, Fault_A5_ALaterStagedValueIsHeardUntilTheRecoveryStands) {
  WentBack t;
  Hello staged = t.late_a;
  LaneHistory& lane = staged.lanes[0];
  const VerdictRecord verdict = lane.verdicts.back();
  lane.verdicts.pop_back();
  lane.last_verdict = 1;
  lane.chain = lane.verdicts.back().chain;
  lane.staged = StagedValue{2, verdict.ballot, verdict.value_ballot, verdict.value};
  t.a.Connect(staged);
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
}

TEST(Promise, Fault_A5_TheHolderOfAnAdoptedValueThatIsLostWithoutOneIsWaitedFor) {
  WentBack t(true);
  t.Step(WorkerExited{kJob, "c"});
  EXPECT_THAT(t.NoteText(NoteKind::kRecovering), HasSubstr("its result was lost with c"));
  t.a.Connect(t.early_a);
  t.b.Connect(t.early_b);
  t.Sleep(t.config.recovery_window);
  EXPECT_EQ(t.job().state(), JobState::kHalted);
  t.a.Connect(t.late_a);
  t.b.Connect(t.late_b);
  t.ExpectVerdictIsKept();
}

// Only a knows that it is the only member. When it is lost before it has promised, the others
// remember an older list and must not go on below the verdict that a has.
TEST(Promise, Fault_A5_TheListOfARecoveryThatDidNotStandIsKept) {
  Committed t(Settings(1, 4, 3));
  const Hello early_b = t.b.MakeHello();
  const Hello early_c = t.c.MakeHello();
  t.Step(WorkerExited{kJob, "b"});
  t.Step(WorkerExited{kJob, "c"});
  t.a.Contribute();
  t.a.Contribute();
  ASSERT_EQ(t.job().membership().members, std::vector<WorkerId>{"a"});
  const uint64_t chain = t.job().lanes[0].chain;
  t.Crash(5000);
  t.a.sees_layouts = t.a.repushes = t.a.stages = t.a.heartbeats = false;
  t.a.Connect();
  ASSERT_EQ(t.job().state(), JobState::kRunning);
  t.Step(WorkerExited{kJob, "a"});
  ASSERT_EQ(t.job().state(), JobState::kRecovering);
  t.b.Connect(early_b);
  t.c.Connect(early_c);
  t.Sleep(t.config.recovery_window);
  EXPECT_EQ(t.job().state(), JobState::kHalted);
  EXPECT_THAT(t.job().reason, HasSubstr("missing: a"));
  t.a.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_EQ(t.job().lanes[0].chain, chain);
}

TEST(Promise, AnAdoptedValueIsPreparedOnceAllHavePromised) {
  WentBack t(true);
  ASSERT_TRUE(t.round()->adopted.has_value());
  EXPECT_EQ(t.c.Count<Prepared>(), t.prepared);
  t.a.Send(Heartbeat{});
  EXPECT_EQ(t.c.Count<Prepared>(), t.prepared) << "b may be gone";
  t.b.Send(Heartbeat{});
  EXPECT_EQ(t.c.Count<Prepared>(), t.prepared + 1);
}

// Nobody is asked for anything before that, so nobody is late, and the holder must stay.
TEST(Promise, Fault_A5_TheHolderOfAnAdoptedValueIsNotLateBeforeItIsAsked) {
  Config config;
  config.late_policy = LatePolicy::kEvict;
  config.evict_late_after = absl::Seconds(20);
  config.lease = absl::Minutes(5);
  WentBack t(true, config);
  const size_t lost = t.Notes(NoteKind::kWorkerLost);
  t.Sleep(absl::Minutes(1));
  EXPECT_EQ(t.Notes(NoteKind::kWorkerLost), lost);
  ASSERT_EQ(t.job().state(), JobState::kRunning);
  t.a.Send(Heartbeat{});
  t.b.Send(Heartbeat{});
  EXPECT_EQ(t.c.Count<Prepared>(), t.prepared + 1);
}

TEST(Recovery, LanesKeepTheirNumbers) {
  Committed t;
  t.a.Register({Tensor("x")}, "call/x", LaneKind::kCall);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Register({Tensor("y")}, "second");
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute(Spec(ReduceOp::kSum), "second");
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->lanes.erase("call/x");
  t.Crash(5000);
  t.ConnectAll();
  EXPECT_EQ(t.a.lane("second").index, 2u);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute(Spec(ReduceOp::kSum), "second");
  EXPECT_EQ(t.a.lane("second").last, 2u);
  t.a.Send(basin::Begin{1, 1, Spec(ReduceOp::kSum), {}, 0, {}});
  EXPECT_EQ(t.a.rejected(), ErrorCode::kNotFound) << "nobody remembers the lane of that number";
}

TEST(Recovery, TwoLanesWithOneNumberAreToldApartByName) {
  Committed t;
  Hello hello = t.a.MakeHello();
  hello.lanes.push_back(LaneHistory{});
  hello.lanes.back().name = "x";
  hello.lanes.back().lane = 1;
  Hello other = t.b.MakeHello();
  other.lanes.push_back(LaneHistory{});
  other.lanes.back().name = "y";
  other.lanes.back().lane = 1;
  t.Crash(5000);
  t.a.Connect(hello);
  t.b.Connect(other);
  t.c.Connect();
  EXPECT_EQ(t.a.lane("x").index, 1u);
  EXPECT_EQ(t.b.lane("x").index, 1u);
  EXPECT_EQ(t.b.lane("y").index, 2u);
}

TEST(Recovery, HellosThatCannotBeAreRefused) {
  const std::pair<std::function<void(Hello&)>, const char*> cases[] = {
      {[](Hello& h) { h.nonce = 0; }, "has no nonce"},
      {[](Hello& h) { h.membership.generation.term = ~Term{0}; }, "an impossible term"},
      {[](Hello& h) { h.lanes[0].verdicts[0].next.generation.term = ~Term{0}; },
       "an impossible term"},
      {[](Hello& h) {
         h.membership.members = {{"a", "a"}};
       },
       "names a member twice"},
      {[](Hello& h) { h.membership.members = std::vector<WorkerId>(20000, "x"); },
       "too many members"},
      {[](Hello& h) { h.lanes[0].name = ""; }, "an impossible first round"},
      {[](Hello& h) { h.lanes[0].lane = ~0u; }, "an impossible first round"},
      {[](Hello& h) { h.lanes.push_back(h.lanes[0]); }, "an impossible first round"},
      {[](Hello& h) { h.lanes.resize(3000); }, "too many lanes"},
      {[](Hello& h) { h.lanes[0].layout[0].dtype = DType::kUnspecified; }, "without a size"},
      {[](Hello& h) { h.lanes[0].layout[1] = h.lanes[0].layout[0]; }, "has two tensors w"},
      {[](Hello& h) { h.lanes[0].layout[0].shape = {uint64_t{1} << 50}; }, "is larger than"},
      {[](Hello& h) { h.lanes[0].layout.resize(70000); }, "more tensors"},
      {[](Hello& h) { h.lanes[0].last_verdict = 9; }, "does not end with the verdict"},
      {[](Hello& h) { h.lanes[0].verdicts.resize(3); }, "more verdicts than"},
      {[](Hello& h) {
         VerdictRecord last = h.lanes[0].verdicts[0];
         h.lanes[0].verdicts[0].round = 7;
         h.lanes[0].verdicts.push_back(last);
       },
       "are not consecutive"},
  };
  for (const auto& [change, text] : cases) {
    Committed t;
    Hello hello = t.a.MakeHello();
    change(hello);
    t.Crash(5000);
    t.a.Connect(hello);
    ASSERT_TRUE(t.a.ended.has_value()) << text;
    EXPECT_EQ(t.a.ended->code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(t.a.ended->text, HasSubstr(text));
    EXPECT_EQ(t.core->FindJob(kJob), nullptr);
  }
}

// Only `a` received the first generation before the aggregator was lost.
struct SentToOne : Cluster {
  SentToOne() : Cluster(Settings(2, 3, 3)) {
    for (const char* id : {"a", "b", "c"}) {
      Worker(id).Connect();
      (*this)[id].Register({Tensor("w")});
      (*this)[id].fresh = false;
    }
    for (const char* id : {"b", "c"}) {
      (*this)[id].Ready();
      (*this)[id].Cut();
    }
    (*this)["a"].Ready();
  }
};

TEST(Recovery, Fault_A1_AGenesisOfWhichOnlySomeWereToldIsDoneAgain) {
  SentToOne t;
  ASSERT_EQ(t["a"].role, Role::kMember);
  ASSERT_EQ(t["b"].membership.generation.term, 0u);
  const Generation before = t["a"].membership.generation;
  t.Crash(2);
  for (const char* id : {"a", "b"}) t[id].Connect();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t["c"].Connect();
  EXPECT_EQ(t.job().state(), JobState::kForming) << "nobody can have lost anything";
  for (const char* id : {"a", "b", "c"}) t[id].Ready();
  EXPECT_THAT(t["c"].membership.members, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(before < t["a"].membership.generation);
  for (const char* id : {"a", "b", "c"}) t[id].Register({Tensor("w")});
  for (const char* id : {"a", "b", "c"}) t[id].Contribute();
  EXPECT_EQ(t["a"].lane().delivered[1].at({0, 0}), (Reduced{7, 3}));
}

TEST(Recovery, Fault_A1_AProcessThatRestartedAfterGenesisMayHaveForgotten) {
  SentToOne t;
  t["a"].Cut();  // It receives no list without c.
  t["c"].Restart();
  t["c"].Connect();  // Its welcome comes after the first generation.
  t.Crash(2);
  for (const char* id : {"a", "b", "c"}) t[id].Connect();
  EXPECT_EQ(t.job().state(), JobState::kRecovering);
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_EQ(t.job().state(), JobState::kHalted);
}

TEST(Recovery, Fault_A1_AGenesisThatWasFollowedByARoundIsNotDoneAgain) {
  SentToOne t;
  t.Step(WorkerExited{kJob, "c"});
  t["b"].Connect();
  t["a"].Contribute();
  t["b"].Contribute();
  ASSERT_EQ(t["a"].lane().last, 1u);
  t["b"].Restart();
  t.Crash(2);
  for (const char* id : {"a", "b", "c"}) t[id].Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_NE(t.job().state(), JobState::kForming);
}

TEST(Recovery, TheNumberOfHellosIsBounded) {
  Config config;
  config.max_workers = 2;
  Cluster t(Settings(1, 2, 2), config);
  for (const char* id : {"a", "b", "c"}) {
    t.Worker(id).fresh = false;
    t[id].Connect();
  }
  EXPECT_FALSE(t["b"].ended.has_value());
  EXPECT_EQ(t["c"].ended->code, ErrorCode::kResourceExhausted);
}

// The job holds the histories of its workers until it decides, so they are charged like all memory.
TEST(Recovery, HeldHellosAreChargedToTheMemory) {
  Committed t;
  const uint64_t before = t.core->reserved_bytes();
  t.Crash(5000);
  EXPECT_EQ(t.core->reserved_bytes(), 0u);
  t.a.Connect();
  const uint64_t one = t.core->reserved_bytes();
  EXPECT_GT(one, sizeof(Hello));
  t.b.Connect();
  EXPECT_GT(t.core->reserved_bytes(), one + sizeof(Hello));
  t.a.Cut();
  t.a.Connect();
  t.a.Cut();
  t.a.Connect();
  EXPECT_LT(t.core->reserved_bytes(), 3 * one) << "what it replaces is given back";
  t.c.Connect();
  ASSERT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_EQ(t.core->reserved_bytes(), before);
}

TEST(Recovery, Fault_A7_HellosThatDoNotFitAreRefusedAndNamed) {
  Committed t;
  // The memory has room for one history like that below, but not for two.
  t.Crash(5000);
  t.a.Connect();
  const uint64_t one = t.core->reserved_bytes();
  t.config.memory_bytes = LeastLaneMemory(t.config, 4, t.config.frame_bytes).reserved;
  const auto hello_of = [&](TestWorker& worker) {
    Hello hello = worker.MakeHello();
    // The whole hello takes more than half of the memory.
    hello.run = "";
    hello.lanes[0].held.assign(t.config.memory_bytes / sizeof(ChunkRange) / 2, ChunkRange{0, 0, 1});
    return hello;
  };
  t.Crash(5001);
  t.a.Connect(hello_of(t.a));
  t.b.Connect(hello_of(t.b));
  EXPECT_FALSE(t.a.ended.has_value());
  ASSERT_TRUE(t.b.ended.has_value());
  EXPECT_EQ(t.b.ended->code, ErrorCode::kUnavailable) << "its client retries";
  EXPECT_THAT(t.b.ended->text, HasSubstr("give the aggregator more memory"));
  EXPECT_THAT(t.job().reason, HasSubstr("no memory for the history of 1 worker"));
  EXPECT_GT(t.core->reserved_bytes(), t.config.memory_bytes / 2);
  EXPECT_LT(one, t.core->reserved_bytes());
  // With histories that fit, the job goes on.
  t.a.Cut();
  t.ConnectAll();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
}

// The job still holds the hellos while it builds the lanes.
TEST(Recovery, TheLanesMustFitBesideTheHeldHellos) {
  Committed t;
  t.Crash(5000);
  t.a.Connect();
  t.b.Connect();
  const uint64_t two = t.core->reserved_bytes();
  t.config.memory_bytes = LeastLaneMemory(t.config, 4, t.config.frame_bytes).reserved;
  t.Crash(5001);
  t.a.Connect();
  Hello large = t.b.MakeHello();
  const uint64_t left = t.config.memory_bytes - two - sizeof(Hello);
  large.lanes[0].held.assign((left - 2000) / sizeof(ChunkRange), ChunkRange{0, 0, 1});
  t.b.Connect(large);
  ASSERT_FALSE(t.b.ended.has_value());
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  EXPECT_LE(t.core->reserved_bytes(), t.config.memory_bytes);
}

TEST(Recovery, TwoWorkersNeverKeepOneIncarnation) {
  Committed t;
  t.b.incarnation = t.a.incarnation;
  t.Crash(5000);
  t.ConnectAll();
  EXPECT_NE(t.a.incarnation, t.b.incarnation);
}

TEST(Recovery, AHaltedJobGivesWayToANewRunWhenNobodyWaits) {
  Committed t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->run = "one";
  t.Crash(5000);
  t.a.Connect();
  TestWorker& n = t.Worker("n");
  n.run = "two";
  t.Join("n");
  EXPECT_EQ(n.ended->code, ErrorCode::kRunConflict);
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  ASSERT_EQ(t.job().state(), JobState::kHalted);
  t.a.Cut();
  t.Join("n");
  EXPECT_EQ(t.job().state(), JobState::kForming);
  EXPECT_EQ(t.job().run, "two");
}

TEST(Recovery, AHaltedJobThatEverybodyLeftIsForgotten) {
  Committed t;
  t.Crash(5000);
  t.a.Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  t.a.Cut();
  t.Sleep(t.config.idle_job_timeout + absl::Seconds(1));
  EXPECT_EQ(t.core->FindJob(kJob), nullptr);
}

}  // namespace
}  // namespace basin::aggregator
