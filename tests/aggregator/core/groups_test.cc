// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Workers of one node, which reduce among themselves, become members together.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void StartAgain(TestWorker& worker) {
  worker.Restart();
  worker.Connect();
  worker.Ready();
}

// A worker without a group trains alone, and a node of two joins.
struct NodeJoins : Cluster {
  explicit NodeJoins(JobSettings settings = Settings(1, 4, 1)) : Cluster(settings), a(Join("a")) {}

  TestWorker& OfNode(const WorkerId& id) {
    Worker(id).group = {"node-1", 2};
    return Join(id);
  }
  // A round of all members.
  void Round() {
    const std::vector<WorkerId> members = job().membership().members.ids();
    for (const WorkerId& id : members) Worker(id).Contribute();
  }
  TestWorker& a;
};

TEST(Groups, JoinAtTheBoundaryAtWhichAllAreReady) {
  NodeJoins t;
  t.Round();
  TestWorker& x = t.OfNode("x");
  t.Round();
  EXPECT_THAT(t.a.membership.members, ElementsAre("a")) << "x waits for y";
  EXPECT_EQ(x.role, Role::kJoiner);
  t.OfNode("y");
  t.Round();
  EXPECT_THAT(t.a.membership.members, ElementsAre("a", "x", "y"));
  EXPECT_EQ(x.role, Role::kMember);
}

TEST(Groups, StartTogether) {
  Cluster c(Settings(1, 4, 2));
  c.Join("a");
  TestWorker& x = c.Worker("x");
  x.group = {"node-1", 2};
  x.Connect();
  x.Ready();
  EXPECT_EQ(c.job().state(), JobState::kForming) << "two are ready, and one of them waits";
  c.Sleep(absl::Seconds(2));
  EXPECT_EQ(
      x.Last<HeldUp>().text,
      "Job job starts with 2 workers, and 1 is ready: a. x waits for the other workers of the "
      "same node, with which they join.");
  c.Worker("y").group = {"node-1", 2};
  c.Join("y");
  EXPECT_EQ(c.job().state(), JobState::kRunning);
  EXPECT_THAT(x.membership.members, ElementsAre("a", "x", "y"));
}

TEST(Groups, ThatDoNotFitStayOut) {
  NodeJoins t(Settings(1, 2, 1));
  t.Round();
  TestWorker& x = t.OfNode("x");
  t.OfNode("y");
  t.Round();
  EXPECT_THAT(t.a.membership.members, ElementsAre("a"));
  EXPECT_NE(x.role, Role::kMember);
  t.a.Send(Finished{});
  t.Round();
  EXPECT_THAT(x.membership.members, ElementsAre("x", "y")) << "the place of a is free";
}

TEST(Groups, ThatDoNotFitAreTheReasonWhyAJobDoesNotStart) {
  Cluster c(Settings(1, 3, 3));
  for (const auto& [id, node] : std::map<WorkerId, std::string>{
           {"w", "node-1"}, {"x", "node-1"}, {"y", "node-2"}, {"z", "node-2"}}) {
    c.Worker(id).group = {node, 2};
    c.Join(id);
  }
  EXPECT_EQ(c.job().state(), JobState::kForming);
  c.Sleep(absl::Seconds(2));
  EXPECT_EQ(c["w"].Last<HeldUp>().text,
            "Job job starts with 3 workers, and 4 are ready: w, x, y, z. Workers of one node join "
            "together, and max_workers is 3, too few for the next node.");
}

TEST(Groups, AWorkerWhoseOthersDoNotComeJoinsAlone) {
  NodeJoins t;
  t.Round();
  TestWorker& x = t.OfNode("x");
  t.Sleep(t.config.group_timeout - absl::Seconds(1));
  t.Round();
  EXPECT_EQ(x.role, Role::kJoiner);
  t.Sleep(absl::Seconds(1));
  EXPECT_THAT(t.NoteText(NoteKind::kWorkerReady),
              HasSubstr("joins without its group node-1: not all 2 workers of it have come"));
  EXPECT_EQ(t.LastNote(NoteKind::kWorkerReady).cause, NoteCause::kJoinsAlone);
  t.Round();
  EXPECT_THAT(x.membership.members, ElementsAre("a", "x"));
  t.OfNode("y");
  t.Round();
  EXPECT_THAT(x.membership.members, ElementsAre("a", "x", "y")) << "all of the group are here";
}

TEST(Groups, AProcessThatIsStartedAgainJoinsItsNodeAtOnce) {
  NodeJoins t;
  TestWorker& x = t.OfNode("x");
  TestWorker& y = t.OfNode("y");
  t.Round();
  t.Round();
  ASSERT_EQ(y.role, Role::kMember);
  t.Step(WorkerExited{kJob, "y"});
  t.Round();
  EXPECT_THAT(x.membership.members, ElementsAre("a", "x"));
  StartAgain(y);
  t.Round();
  EXPECT_THAT(x.membership.members, ElementsAre("a", "x", "y"));
}

// The next aggregator learns the groups of the members from their hellos.
TEST(Groups, AreKnownAfterARestartOfTheAggregator) {
  NodeJoins t;
  TestWorker& x = t.OfNode("x");
  TestWorker& y = t.OfNode("y");
  t.Round();
  t.Round();
  t.Crash(t.config.term + 1);
  for (TestWorker* worker : {&t.a, &x, &y}) worker->Connect();
  t.Round();
  t.Step(WorkerExited{kJob, "y"});
  t.Round();
  ASSERT_THAT(x.membership.members, ElementsAre("a", "x"));
  StartAgain(y);
  t.Round();
  EXPECT_THAT(x.membership.members, ElementsAre("a", "x", "y"));
}

}  // namespace
}  // namespace basin::aggregator
