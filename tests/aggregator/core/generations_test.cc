// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The generations of a job: their numbers, the donor, and the one change that waits for the disk.

#include "aggregator/core/generations.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using Kind = PendingChange::Kind;

const absl::Time kWriteDue = absl::FromUnixSeconds(1000);

// Workers a and b are members of generation 7.1, and c is ready.
struct Members : testing::Test {
  Members() {
    for (const char* id : {"a", "b", "c"}) {
      const Slot slot = workers.Add(id);
      workers.Apply(slot, WorkerInput::kAdmit);
      workers.Apply(slot, WorkerInput::kReady);
      workers[slot].incarnation = workers.NextIncarnation(7);
      workers[slot].ready_order = workers.NextReadyOrder();
      if (workers[slot].id == "c") continue;
      workers.Apply(slot, WorkerInput::kChoose);
      workers[slot].holds_state = true;
    }
    generations.Activate({{7, 1}, {{"a", "b"}}}, std::nullopt);
  }
  Workers workers;
  Generations generations;
};
using GenerationsTest = Members;

TEST_F(GenerationsTest, ANumberIsGivenOnceInATerm) {
  EXPECT_EQ(Generations().Next(7), (Generation{7, 1}));
  EXPECT_EQ(generations.Next(7), (Generation{7, 2}));
  EXPECT_EQ(generations.Next(8), (Generation{8, 1}));
  generations.Write({7, 2}, kWriteDue);
  EXPECT_EQ(generations.Next(7), (Generation{7, 3})) << "also if 7.2 comes to nothing";
  generations.ForgetMembers();
  EXPECT_TRUE(generations.current().members.empty());
  EXPECT_EQ(generations.Next(7), (Generation{7, 3}));
  generations.Recover(9, std::vector<WorkerId>{"b"});
  EXPECT_EQ(generations.current().generation, (Generation{9, 1}));
}

TEST_F(GenerationsTest, TheNextOneIsTheCurrentOneUnlessItsMembersAreOthers) {
  EXPECT_EQ(generations.Choose(workers, {false, false, 4}, 7), generations.current());
  const Membership next = generations.Choose(workers, {true, false, 4}, 7);
  EXPECT_THAT(next.members, ElementsAre("a", "b", "c"));
  EXPECT_EQ(next.generation, (Generation{7, 2}));
  // Worker b keeps its place in another life.
  const Slot b = *workers.Find("b");
  workers.Apply(b, WorkerInput::kLose);
  workers.Apply(b, WorkerInput::kAdmit);
  workers.Apply(b, WorkerInput::kReady);
  workers.Apply(*workers.Find("c"), WorkerInput::kLose);
  const Membership revived = generations.Choose(workers, {true, false, 4}, 7);
  EXPECT_EQ(revived.members, generations.current().members);
  EXPECT_EQ(revived.generation, (Generation{7, 2}));
}

TEST_F(GenerationsTest, ADonorThatHasLeftServesWhileNoMemberHasTheState) {
  const Membership next{{7, 2}, {{"a", "b", "c"}}};
  EXPECT_EQ(generations.DonorFor(next, workers, true), "a");
  generations.Activate(next, "a");
  EXPECT_EQ(generations.donor(), "a");
  const Slot a = *workers.Find("a");
  workers.Apply(a, WorkerInput::kFinish);
  workers[*workers.Find("b")].holds_state = false;
  EXPECT_EQ(generations.DonorFor(next, workers, true), "a") << "it is still here";
  workers.Apply(a, WorkerInput::kLose);
  EXPECT_EQ(generations.DonorFor(next, workers, true), std::nullopt);
}

TEST_F(GenerationsTest, OneChangeWaitsForItsGeneration) {
  EXPECT_EQ(generations.due(), absl::InfiniteFuture());
  PendingChange change;
  change.kind = Kind::kVerdict;
  change.lane = 3;
  change.next = {{7, 2}, {{"a", "c"}}};
  change.donor = "a";
  generations.Await(change, workers, kWriteDue);
  EXPECT_TRUE(generations.IsPending(Kind::kVerdict));
  EXPECT_FALSE(generations.IsPending(Kind::kMembers));
  EXPECT_TRUE(generations.HoldsVerdict(3));
  EXPECT_FALSE(generations.HoldsVerdict(2));
  EXPECT_EQ(generations.due(), kWriteDue);
  EXPECT_EQ(generations.oldest(), (Generation{7, 2}));
  EXPECT_EQ(generations.current().generation, (Generation{7, 1})) << "it is not in force yet";
  EXPECT_THAT(generations.Named(), ElementsAre("a", "b", "c"));

  EXPECT_TRUE(generations.EndWrite({7, 2}));
  EXPECT_FALSE(generations.EndWrite({7, 2})) << "once";
  EXPECT_FALSE(generations.TakePending({7, 9}).has_value()) << "another generation";
  const std::optional<PendingChange> taken = generations.TakePending({7, 2});
  ASSERT_TRUE(taken.has_value());
  EXPECT_TRUE(taken->StillMeant(workers));
  EXPECT_FALSE(generations.pending().has_value());
}

TEST_F(GenerationsTest, AChangeThatIsDroppedKeepsItsNumber) {
  PendingChange change;
  change.next = {{7, 2}, {{"a"}}};
  generations.Await(change, workers, kWriteDue);
  generations.DropPending();
  EXPECT_TRUE(generations.EndWrite({7, 2}));
  EXPECT_FALSE(generations.TakePending({7, 2}).has_value());
  EXPECT_EQ(generations.Next(7), (Generation{7, 3}));
}

}  // namespace
}  // namespace basin::aggregator
