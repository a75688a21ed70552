// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Workers that stand for several trainers: ranks, divisors, and clients that are too old for them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "protocol/version.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two nodes of 2 and 3 trainers, and a single trainer.
struct Nodes : Cluster {
  explicit Nodes(JobSettings settings = Settings(1, 4, 3), Config config = {})
      : Cluster(settings, std::move(config)),
        a(JoinWith("a", 2)),
        b(JoinWith("b", 3)),
        c(JoinWith("c", 1)) {}

  TestWorker& JoinWith(const WorkerId& id, uint32_t ranks) {
    TestWorker& worker = Worker(id);
    worker.features = kFeatureRanks;
    worker.ranks = ranks;
    return Join(id);
  }
  void Round(const RoundSpec& spec = Spec(ReduceOp::kAverage)) {
    for (TestWorker* worker : {&a, &b, &c}) worker->Contribute(spec);
  }
  TestWorker& a;
  TestWorker& b;
  TestWorker& c;
};

TEST(Ranks, AreDenseAndFollowEachOther) {
  Nodes t;
  const MemberList& members = t.c.membership.members;
  EXPECT_THAT(members.ids(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(members.ranks(), ElementsAre(2, 3, 1));
  EXPECT_EQ(members.FirstRank(1), 2u);
  EXPECT_EQ(members.FirstRank(2), 5u);
  EXPECT_EQ(members.trainers(), 6u);
}

TEST(Ranks, TheDivisorCountsTrainers) {
  Nodes t;
  t.Round();
  const RoundValue& value = t.c.verdict().value;
  EXPECT_EQ(value.divisor, 6u);
  EXPECT_EQ(value.world_size, 6u);
  EXPECT_EQ(TrainersOf(value), 6u);
  ASSERT_EQ(value.contributors.size(), 3u);
  EXPECT_EQ(value.contributors[1].ranks, 3u);
  EXPECT_EQ(t.c.lane().delivered[1].begin()->second, (Reduced{7, 6})) << "each sum is added once";
  EXPECT_THAT(t.NoteText(NoteKind::kRoundCommitted), HasSubstr("3 contributors of 6 trainers"));
}

TEST(Ranks, PresentCountsTheTrainersOfThoseWhoPush) {
  Nodes t;
  const RoundSpec spec = Spec(ReduceOp::kAverage, Denominator::kPresent);
  t.a.Contribute(spec);
  t.b.Contribute(spec, kLane, {1});
  t.c.Contribute(spec);
  const RoundValue& value = t.c.verdict().value;
  EXPECT_EQ(DivisorOf(value, 0), 6u);
  EXPECT_EQ(DivisorOf(value, 1), 3u);
  EXPECT_EQ((t.c.lane().delivered[1][{1, 0}]), (Reduced{5, 3}));
}

TEST(Ranks, AWeightedAverageIsDividedByTheSumOfAllWeights) {
  Nodes t;
  const RoundSpec spec = Spec(ReduceOp::kWeightedAverage);
  t.a.Contribute(spec, kLane, {}, Counts{20, {}, {}});
  t.b.Contribute(spec, kLane, {}, Counts{30, {}, {}});
  t.c.Contribute(spec, kLane, {}, Counts{4, {}, {}});
  EXPECT_EQ(t.c.verdict().value.divisor, 54u);
  EXPECT_EQ(t.c.verdict().value.facts.totals.samples, 54u);
}

TEST(Ranks, ASumHasNoDivisor) {
  Nodes t;
  t.Round(Spec(ReduceOp::kSum));
  EXPECT_EQ(t.c.verdict().value.divisor, 1u);
}

TEST(Ranks, AutoPredivideIsForTheTrainers) {
  Nodes t;
  t.b.ranks = 13;
  RoundSpec spec = Spec(ReduceOp::kAverage);
  spec.auto_predivide = true;
  t.Round(spec);
  EXPECT_EQ(t.c.verdict().value.spec.predivide, 4.0) << "the square root of 16";
}

// Also fault of a local trainer: its node goes on without it.
TEST(Ranks, ANodeThatLostATrainerCountsLessFromItsNextBeginOn) {
  Nodes t;
  t.Round();
  t.b.ranks = 2;
  t.Round();
  const VerdictRecord record = t.c.verdict();
  EXPECT_EQ(record.value.divisor, 5u);
  EXPECT_EQ(record.value.world_size, 6u) << "that of the generation in which it was reduced";
  EXPECT_THAT(record.next.members.ranks(), ElementsAre(2, 2, 1));
  EXPECT_NE(record.next.generation, record.value.generation);
  EXPECT_EQ(t.c.membership, record.next);
  t.Round();
  EXPECT_EQ(t.c.verdict().value.world_size, 5u);
  EXPECT_EQ(t.c.verdict().next.generation, record.next.generation) << "nothing changed";
}

TEST(Ranks, ANodeThatGrowsTakesTheRanksAfterItsOwn) {
  Nodes t;
  t.Round();
  t.a.ranks = 4;
  t.Round();
  EXPECT_EQ(t.c.verdict().value.divisor, 8u);
  EXPECT_THAT(t.c.membership.members.ranks(), ElementsAre(4, 3, 1));
}

TEST(Ranks, ALostNodeTakesItsTrainersWithIt) {
  Nodes t;
  t.Round();
  t.Step(WorkerExited{kJob, "b"});
  t.a.Contribute();
  t.c.Contribute();
  EXPECT_EQ(t.c.verdict().value.divisor, 3u);
  EXPECT_THAT(t.c.membership.members.ids(), ElementsAre("a", "c"));
  EXPECT_EQ(t.c.membership.members.trainers(), 3u);
}

TEST(Ranks, ALossInTheRoundLeavesTheTrainersOfTheOthers) {
  Nodes t;
  t.a.Contribute();
  t.b.Begin();
  t.Step(WorkerExited{kJob, "b"});
  t.c.Contribute();
  EXPECT_EQ(t.c.verdict().value.divisor, 3u);
}

TEST(Ranks, OfSingleTrainersLeaveNoTrace) {
  Three t;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_THAT(t.c.membership.members.ranks(), IsEmpty());
  EXPECT_EQ(t.c.membership.members, MemberList({"a", "b", "c"}));
  EXPECT_EQ(t.c.membership.members, MemberList::WithRanks({"a", "b", "c"}, {1, 1, 1}));
}

// What a worker repeats on another session is as old as its contribution, and the hello is newer.
TEST(Ranks, ARepeatedBeginDoesNotBringTheEarlierNumberBack) {
  for (const bool crashes : {false, true}) {
    Nodes t;
    t.Round();
    t.b.Begin();
    t.b.ranks = 2;
    if (crashes) {
      t.Crash(t.config.term + 1);
      for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Connect();
      EXPECT_THAT(t.c.membership.members.ranks(), ElementsAre(2, 2, 1));
    } else {
      t.b.Cut();
      t.b.Connect();
    }
    t.a.Contribute();
    t.c.Contribute();
    for (const TensorIndex tensor : {0u, 1u}) t.b.PushTensor(tensor);
    t.b.Commit();
    EXPECT_EQ(t.c.verdict().value.divisor, 6u) << "its contribution is that of three";
    EXPECT_THAT(t.c.verdict().next.members.ranks(), ElementsAre(2, 2, 1)) << crashes;
    t.b.ranks = 4;
    t.Round();
    EXPECT_THAT(t.c.verdict().next.members.ranks(), ElementsAre(2, 4, 1))
        << "the next begin is a new one";
  }
}

TEST(Ranks, SurviveTheAggregator) {
  Nodes t;
  t.Round();
  t.Crash(t.config.term + 1);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Connect();
  EXPECT_THAT(t.c.membership.members.ranks(), ElementsAre(2, 3, 1));
  t.Round();
  EXPECT_EQ(t.c.verdict().value.divisor, 6u);
}

TEST(Ranks, WorkersAreLimitedNotTrainers) {
  Nodes t(Settings(1, 3, 3));
  EXPECT_EQ(t.c.membership.members.trainers(), 6u);
  TestWorker& spare = t.JoinWith("d", 1);
  EXPECT_EQ(spare.role, Role::kSpare);
}

TEST(Ranks, ThatMakeNoSenseAreRefused) {
  for (const uint32_t ranks : {0u, kMaxRanks + 1, ~0u}) {
    Nodes t;
    TestWorker& d = t.Worker("d");
    d.features = kFeatureRanks;
    d.ranks = ranks;
    d.Connect();
    ASSERT_TRUE(d.ended.has_value()) << ranks;
    EXPECT_EQ(d.ended->code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(d.ended->text, HasSubstr("worker d"));
    EXPECT_THAT(d.ended->text, HasSubstr("a worker stands for 1 to 1024"));

    t.a.ranks = ranks;
    t.Round();
    EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(t.a.Last<Rejected>().error.text,
                HasSubstr("Job job, lane model, round 1: the begin of worker a stands for"));
    EXPECT_EQ(t.c.verdict().value.divisor, 4u) << "the others go on";
    EXPECT_EQ(t.c.membership.members.trainers(), 6u) << "it has what it said before";
  }
}

// Three ranks of one node, each a worker of its own. The first contributes for the second, too.
struct Carried : Cluster {
  Carried() : Cluster(Settings(1, 4, 3)), a(Known("a")), b(Known("b")), c(Known("c")) {
    a.represents = 1;
  }
  TestWorker& Known(const WorkerId& id) {
    Worker(id).features = kFeatureRanks;
    return Join(id);
  }
  TestWorker& a;
  TestWorker& b;
  TestWorker& c;
};

TEST(Ranks, AContributionForOtherWorkersCountsThemInItsRoundOnly) {
  Carried t;
  t.b.Begin();
  t.b.Withdraw("in the contribution of worker a");
  t.a.Contribute(Spec(ReduceOp::kAverage), kLane, {}, Counts{20, {}, {}});
  t.c.Contribute(Spec(ReduceOp::kAverage), kLane, {}, Counts{4, {}, {}});
  const VerdictRecord record = t.b.verdict();
  EXPECT_EQ(record.value.divisor, 3u);
  EXPECT_EQ(record.value.world_size, 3u);
  EXPECT_EQ(record.value.facts.totals.samples, 24u);
  ASSERT_EQ(record.value.contributors.size(), 2u);
  EXPECT_EQ(record.value.contributors[0].ranks, 2u);
  EXPECT_EQ(record.next.generation, record.value.generation) << "it is one trainer as before";
  t.a.represents = 0;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.b.verdict().value.divisor, 3u);
  EXPECT_EQ(t.b.verdict().value.contributors.size(), 3u);
}

TEST(Ranks, TheReplyHasThePlan) {
  Carried t;
  t.a.local_reduction = LocalReduction::kDeterministic;
  t.a.reduced_with = {"b"};
  t.b.Begin();
  t.b.Withdraw("in the contribution of worker a");
  for (TestWorker* worker : {&t.a, &t.c}) worker->Contribute();
  const auto contributors = t.c.verdict().value.contributors;
  ASSERT_EQ(contributors.size(), 2u);
  EXPECT_EQ(contributors[0].local_reduction, LocalReduction::kDeterministic);
  EXPECT_EQ(contributors[0].reduced_with, std::vector<WorkerId>{"b"});
  EXPECT_EQ(contributors[1].local_reduction, LocalReduction::kUnspecified);
  EXPECT_TRUE(contributors[1].reduced_with.empty());
}

// The size of a verdict is bounded by the number of workers.
TEST(Ranks, APlanThatNamesMoreWorkersThanAJobHasIsLeftOut) {
  for (const bool too_many : {false, true}) {
    Config config;
    config.max_workers = 4;
    Cluster t(Settings(1, 4, 2), config);
    for (const char* id : {"a", "b"}) {
      t.Worker(id).features = kFeatureRanks;
      t.Join(id);
    }
    t["a"].local_reduction = LocalReduction::kFast;
    t["a"].reduced_with = {"x", "y"};
    if (too_many) t["b"].reduced_with = {"z"};
    for (const char* id : {"a", "b"}) t[id].Contribute();
    const auto contributors = t["b"].verdict().value.contributors;
    ASSERT_EQ(contributors.size(), 2u);
    EXPECT_EQ(contributors[0].reduced_with.size(), too_many ? 0u : 2u);
    EXPECT_EQ(contributors[0].local_reduction == LocalReduction::kFast, !too_many);
  }
}

TEST(Ranks, AContributionForTooManyIsRefused) {
  for (const uint32_t represents : {kMaxRanks, ~0u}) {
    Carried t;
    t.a.represents = represents;
    for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
    EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(t.a.Last<Rejected>().error.text,
                HasSubstr(absl::StrCat("the begin of worker a has the gradients of ", represents,
                                       " trainers of other workers beside 1; a contribution is")));
    EXPECT_EQ(t.c.verdict().value.divisor, 2u) << "the others go on";
  }
}

TEST(Ranks, AreRefusedForAScaleThatBelongsToEachTrainer) {
  Nodes t;
  RoundSpec spec = Spec(ReduceOp::kProduct);
  spec.prescale = 2;
  t.Round(spec);
  EXPECT_THAT(t.b.Last<Rejected>().error.text,
              HasSubstr("has prescale 2 for the PRODUCT of 3 trainers; scale the values of each"));
}

// Peers of another release.
TEST(Ranks, AWorkerOfAnOlderClientIsRefusedWhereTheyMatter) {
  Nodes t;
  TestWorker& old = t.Worker("old");
  old.Connect();
  ASSERT_TRUE(old.ended.has_value());
  EXPECT_EQ(old.ended->code, ErrorCode::kVersionMismatch);
  EXPECT_EQ(old.ended->text,
            "Job job: worker old has a client that is too old to know that worker a stands for 2 "
            "trainers; update it.");
}

// A node and a single trainer that are both needed, and a worker with an older client.
struct NodeAndOlder : Cluster {
  NodeAndOlder() : Cluster(Settings(2, 3, 2)), node(Make("node", 2)), single(Make("single", 1)) {
    Join("node");
    Join("single");
  }
  TestWorker& Make(const WorkerId& id, uint32_t ranks) {
    TestWorker& worker = Worker(id);
    worker.features = kFeatureRanks;
    worker.ranks = ranks;
    return worker;
  }
  void ExpectRefused() {
    older.Connect();
    ASSERT_TRUE(older.ended.has_value());
    EXPECT_EQ(older.ended->code, ErrorCode::kVersionMismatch);
    EXPECT_EQ(older.ended->text,
              "Job job: worker older has a client that is too old to know that worker node stands "
              "for 2 trainers, which round 1 of lane model counts; update it.");
  }
  TestWorker& node;
  TestWorker& single;
  TestWorker& older = Worker("older");
};

// The pause would make the newcomer a member of the open round at once.
TEST(Ranks, ALostNodeThatCountsKeepsOlderClientsOut) {
  NodeAndOlder t;
  t.node.Contribute();
  t.Step(WorkerExited{kJob, "node"});
  t.ExpectRefused();
  t.Make("another", 1);
  TestWorker& another = t.Join("another");
  t.single.Contribute();
  another.Contribute();
  EXPECT_EQ(t.single.verdict().value.divisor, 4u);
  t.older.Connect();
  EXPECT_FALSE(t.older.ended.has_value()) << t.older.ended->text;
}

TEST(Ranks, ALostNodeInAPreparedValueKeepsOlderClientsOut) {
  NodeAndOlder t;
  t.single.stages = false;
  t.node.Contribute();
  t.single.Contribute();
  ASSERT_EQ(t.round()->phase(), RoundPhase::kPrepared);
  t.Step(WorkerExited{kJob, "node"});
  t.ExpectRefused();
}

TEST(Ranks, Fault_A1_ALostNodeInAnAdoptedValueKeepsOlderClientsOut) {
  NodeAndOlder t;
  t.node.stages = false;
  t.node.Contribute();
  t.single.Contribute();
  t.Crash(t.config.term + 1);
  t.single.Connect();
  t.Sleep(t.config.recovery_window + absl::Seconds(1));
  t.Step(RecoverJob{kJob});
  ASSERT_EQ(t.job().state(), JobState::kRunning) << t.job().reason;
  t.ExpectRefused();
}

TEST(Ranks, ANodeIsRefusedAmongOlderClients) {
  Three t;
  TestWorker& node = t.Worker("node");
  node.ranks = 2;
  node.features = kFeatureRanks;
  node.Connect();
  ASSERT_TRUE(node.ended.has_value());
  EXPECT_EQ(node.ended->code, ErrorCode::kVersionMismatch);
  EXPECT_EQ(node.ended->text,
            "Job job: worker node stands for 2 trainers, but the client of worker a is too old to "
            "know that; update it.");
}

TEST(Ranks, ABeginOfSeveralIsRefusedAmongOlderClients) {
  Three t;
  t.a.ranks = 2;
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument) << "it used a field of no feature";
  EXPECT_THAT(t.a.Last<Rejected>().error.text, HasSubstr("did not declare that feature"));
  EXPECT_EQ(t.c.verdict().value.divisor, 2u);
}

// A worker with an older client, and a node that has grown to two trainers.
struct OlderAndNode : Cluster {
  OlderAndNode() : Cluster(Settings(1, 2, 2)), older(Join("older")), node(Make()) {
    Round();
    for (TestWorker* worker : {&older, &node}) worker->fresh = false;
  }
  TestWorker& Make() {
    Worker("node").features = kFeatureRanks;
    return Join("node");
  }
  void Round() {
    older.Contribute();
    node.Contribute();
  }
  // Both are members, the begins of two trainers are refused, and those of one trainer count.
  void ExpectThatBothStay() {
    for (const TestWorker* worker : {&older, &node}) {
      ASSERT_FALSE(worker->ended.has_value()) << worker->ended->text;
    }
    EXPECT_EQ(job().membership().members.trainers(), 2u);
    node.inbox.clear();
    node.Begin();
    older.Contribute();
    EXPECT_EQ(node.rejected(), ErrorCode::kVersionMismatch);
    EXPECT_THAT(node.Last<Rejected>().error.text,
                HasSubstr("the begin of worker node stands for 2 trainers, but the client of "
                          "worker older is too old to know that; update it."));
    EXPECT_EQ(older.verdict().value.divisor, 1u);
    node.ranks = 1;
    Round();
    EXPECT_EQ(older.verdict().value.divisor, 2u);
    EXPECT_EQ(older.verdict().next.members.trainers(), 2u);
  }
  TestWorker& older;
  TestWorker& node;
};

TEST(Ranks, ANodeThatGrowsNextToAnOlderClientStaysWithItsBeginsRefused) {
  OlderAndNode t;
  t.node.ranks = 2;
  t.ExpectThatBothStay();
}

TEST(Ranks, AContributionForOthersNextToAnOlderClientIsRefused) {
  OlderAndNode t;
  t.node.represents = 1;
  t.node.Begin();
  EXPECT_EQ(t.node.rejected(), ErrorCode::kVersionMismatch);
  t.older.Contribute();
  EXPECT_EQ(t.older.verdict().value.divisor, 1u);
}

TEST(Ranks, ANodeThatGrewWhileItWasDisconnectedStaysToo) {
  OlderAndNode t;
  t.node.Cut();
  t.node.ranks = 2;
  t.node.Connect();
  t.ExpectThatBothStay();
}

TEST(Ranks, Fault_A1_ANodeThatGrewDuringARecoveryStaysNextToAnOlderClient) {
  for (const bool node_first : {false, true}) {
    OlderAndNode t;
    t.node.Begin();
    t.Crash(t.config.term + 1);
    t.node.ranks = 2;
    (node_first ? t.node : t.older).Connect();
    (node_first ? t.older : t.node).Connect();
    ASSERT_EQ(t.job().state(), JobState::kRunning);
    EXPECT_EQ(t.job().membership().members.trainers(), 2u) << "that of the older client, and one";
    // The round in flight holds one trainer.
    for (const TensorIndex tensor : {0u, 1u}) t.node.PushTensor(tensor);
    t.node.Commit();
    t.older.Contribute();
    EXPECT_EQ(t.older.verdict().value.divisor, 2u);
    t.ExpectThatBothStay();
  }
}

// The node has a new process without memory, so it is the newcomer.
TEST(Ranks, Fault_A1_ANodeThatRestartedDuringARecoveryIsRefusedNextToAnOlderClient) {
  OlderAndNode t;
  t.Crash(t.config.term + 1);
  t.node.Restart();
  t.node.ranks = 2;
  t.node.Connect();
  t.older.Connect();
  t.Step(RecoverJob{kJob});
  ASSERT_TRUE(t.node.ended.has_value());
  EXPECT_EQ(t.node.ended->code, ErrorCode::kVersionMismatch);
  EXPECT_FALSE(t.older.ended.has_value());
  t.older.Contribute();
  EXPECT_EQ(t.older.verdict().value.divisor, 1u);
}

TEST(Ranks, AnOlderClientIsWelcomeAmongSingleTrainers) {
  Three t;
  EXPECT_EQ(t.a.welcome->features & kFeatureRanks, 0u);
  TestWorker& d = t.Worker("d");
  d.features = kFeatureRanks;
  d.Connect();
  EXPECT_EQ(d.welcome->features & kFeatureRanks, kFeatureRanks);
}

// A contribution of a node has the norm of a sum, which is no reason for an alarm.
TEST(Ranks, TheNormOfANodeIsComparedByTrainer) {
  Nodes t;
  t.a.squared_norm = 4 * 9.0;
  t.b.squared_norm = 9 * 9.0;
  t.c.squared_norm = 9.0;
  for (int i = 0; i < 30; ++i) t.Round();
  EXPECT_EQ(t.Notes(NoteKind::kContributionUnusual), 0u);
  t.b.squared_norm = 9 * 9e8;
  t.Round();
  EXPECT_THAT(t.NoteText(NoteKind::kContributionUnusual), HasSubstr("worker b"));
}

}  // namespace
}  // namespace basin::aggregator
