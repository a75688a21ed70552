// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/core/local_group.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accelerator/node/core/node.h"

namespace basin::accelerator::node {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LocalGroupTest : public testing::Test {
 protected:
  // All ranks are in one group that is ready, with this leader.
  void ExpectGroup(const std::vector<LocalRank>& ranks, LocalRank leader) {
    for (const LocalRank rank : ranks) {
      const Node::Process& process = node_.At(rank);
      ASSERT_EQ(process.core->phase(), GroupPhase::kReady) << "rank " << rank;
      EXPECT_EQ(process.ready->leader, leader);
      EXPECT_EQ(process.ready->members.size(), ranks.size());
      EXPECT_EQ(process.core->epoch(), node_.At(leader).core->epoch());
    }
  }
  // The last round of these ranks that is over.
  void ExpectOver(const std::vector<LocalRank>& ranks, GroupRound round, bool reduced) {
    for (const LocalRank rank : ranks) {
      ASSERT_EQ(node_.At(rank).core->ended(), round) << "rank " << rank;
      EXPECT_EQ(node_.At(rank).over[round], reduced) << "rank " << rank;
    }
  }
  void StartAll() {
    for (LocalRank rank = 0; rank < 4; ++rank) node_.Start(rank);
    node_.Quiesce();
  }
  void BeginRound() {
    for (LocalRank rank = 0; rank < 4; ++rank) {
      if (node_.Alive(rank)) node_.BeginRound(rank);
    }
  }

  Node node_{4};
};

TEST_F(LocalGroupTest, Item3_TheRanksOfANodeFormOneGroupAndTheLowestLeads) {
  StartAll();
  ExpectGroup({0, 1, 2, 3}, 0);
  // Places are in the order of the worker ids: worker-0 is rank 1, worker-3 rank 0.
  EXPECT_EQ(node_.At(1).communicator->index, 0);
  EXPECT_EQ(node_.At(1).communicator->leader, 1);
  BeginRound();
  node_.Quiesce();
  for (LocalRank rank = 0; rank < 4; ++rank) EXPECT_EQ(node_.At(rank).core->ended(), 1u);
}

TEST_F(LocalGroupTest, Item3_ARankThatDoesNotComeIsNamedAndWaitedForNoLongerThanAllowed) {
  for (LocalRank rank = 1; rank < 3; ++rank) node_.Start(rank);
  node_.Quiesce();
  EXPECT_EQ(node_.At(1).core->phase(), GroupPhase::kGathering);
  node_.NextDeadline();
  node_.Quiesce();
  for (const LocalRank rank : {1, 2}) {
    EXPECT_EQ(*node_.At(rank).failed,
              absl::DeadlineExceededError(
                  "local ranks 0, 3 have not come within 1m, of the 4 of this node; start all of "
                  "them, or set BASIN_LOCAL_GROUP to off"));
  }
}

TEST_F(LocalGroupTest, Item3_ARankThatComesLateIsWaitedFor) {
  for (LocalRank rank = 1; rank < 4; ++rank) node_.Start(rank);
  node_.Quiesce();
  node_.now += absl::Seconds(59);
  node_.Start(0);
  node_.Quiesce();
  ExpectGroup({0, 1, 2, 3}, 0);
}

TEST_F(LocalGroupTest, Item3_ARankThatStartsWhenThereIsAGroupIsRefused) {
  StartAll();
  node_.Kill(0);
  node_.Quiesce();
  BeginRound();
  node_.Start(0);
  node_.Quiesce();
  EXPECT_EQ(node_.At(0).failed->code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(node_.At(0).failed->message()), HasSubstr("have a group already"));
  ExpectGroup({1, 2, 3}, 1);
  ExpectOver({1, 2, 3}, 1, true);
}

// It would wait for ever.
TEST_F(LocalGroupTest, Item3_ARankThatConnectsWhileTheGroupFormsIsRefusedWhenItHas) {
  for (LocalRank rank = 0; rank < 4; ++rank) node_.Start(rank);
  while (!node_.At(0).communicator) ASSERT_TRUE(node_.Something([](uint32_t) { return 0u; }, true));
  node_.Kill(3);
  node_.Start(3);
  node_.Quiesce();
  while (!node_.At(3).failed && node_.NextDeadline()) node_.Quiesce();
  if (node_.At(3).failed) {
    EXPECT_EQ(node_.At(3).failed->code(), absl::StatusCode::kFailedPrecondition);
    ExpectGroup({0, 1, 2}, 0);
  } else {
    ExpectGroup({0, 1, 2, 3}, 0);
  }
}

TEST_F(LocalGroupTest, Fault_A13_WhereARankIsLostInARoundEachContributesForItself) {
  StartAll();
  BeginRound();
  node_.Kill(2);
  node_.Quiesce();
  ExpectGroup({0, 1, 3}, 0);
  ExpectOver({0, 1, 3}, 1, false);
  BeginRound();
  node_.Quiesce();
  ExpectOver({0, 1, 3}, 2, true);
}

TEST_F(LocalGroupTest, Fault_A13_WhereTheLeaderIsLostInARoundEachContributesForItself) {
  StartAll();
  BeginRound();
  node_.Kill(0);
  node_.Quiesce();
  ExpectGroup({1, 2, 3}, 1);
  ExpectOver({1, 2, 3}, 1, false);
  BeginRound();
  node_.Quiesce();
  ExpectOver({1, 2, 3}, 2, true);
}

// The leader has the sums, and is lost when it has told some of the others.
TEST_F(LocalGroupTest, Fault_A13_ALeaderThatHasNotToldAllHasContributedForNobody) {
  StartAll();
  BeginRound();
  node_.dies_after = 2;
  EXPECT_TRUE(node_.EndRound(0));
  EXPECT_FALSE(node_.Alive(0));
  node_.Quiesce();
  ExpectGroup({1, 2, 3}, 1);
  int told = 0;
  for (const LocalRank rank : {1, 2, 3}) {
    ASSERT_EQ(node_.At(rank).core->ended(), 1u);
    told += node_.At(rank).over[1] ? 1 : 0;
  }
  EXPECT_EQ(told, 2);
  BeginRound();
  node_.Quiesce();
  ExpectOver({1, 2, 3}, 2, true);
}

// What the leader has told is received before its end, also by a rank that the next leader reaches
// first.
TEST_F(LocalGroupTest, Fault_A13_ARoundThatTheLeaderHasContributedToIsReducedForAll) {
  StartAll();
  BeginRound();
  ASSERT_TRUE(node_.EndRound(0));
  node_.Kill(0);
  while (node_.Deliver(0, 1)) {
  }
  while (node_.Deliver(0, 2)) {
  }
  // Everything but the connection from rank 0 to rank 3.
  for (int i = 0; i < 100; ++i) {
    for (const LocalRank from : {1, 2, 3}) {
      for (const LocalRank to : {1, 2, 3}) node_.Deliver(from, to);
      node_.DeliverId(from);
      node_.Form(from);
    }
  }
  ASSERT_EQ(node_.At(3).core->ended(), 0u);
  node_.Quiesce();
  ExpectGroup({1, 2, 3}, 1);
  ExpectOver({1, 2, 3}, 1, true);
}

// Whether the leader had begun it or not.
TEST_F(LocalGroupTest, Fault_A13_ARoundThatSomeHaveBegunWhenTheCommunicatorFailsIsReducedByNobody) {
  for (const LocalRank begins : {0, 2}) {
    StartAll();
    const GroupRound round = node_.At(0).core->ended() + 1;
    node_.BeginRound(begins);
    node_.Quiesce();
    EXPECT_TRUE(node_.FailCommunicator(1));
    node_.Quiesce();
    ExpectGroup({0, 1, 2, 3}, 0);
    ExpectOver({0, 1, 2, 3}, round, false);
    BeginRound();
    node_.Quiesce();
    ExpectOver({0, 1, 2, 3}, round + 1, true);
  }
}

// A rank that learns of it before it begins the round must not begin the next one in that epoch.
TEST_F(LocalGroupTest, Fault_A13_ACommunicatorThatFailsCostsOneRoundOfARankThatComesLate) {
  StartAll();
  for (const LocalRank rank : {0, 1, 3}) node_.BeginRound(rank);
  EXPECT_TRUE(node_.FailCommunicator(1));
  ASSERT_TRUE(node_.Deliver(1, 0));
  while (node_.Deliver(0, 2)) {
  }
  ExpectOver({2}, 1, false);
  node_.BeginRound(2);
  node_.Quiesce();
  ExpectGroup({0, 1, 2, 3}, 0);
  ExpectOver({0, 1, 2, 3}, 1, false);
  BeginRound();
  node_.Quiesce();
  ExpectOver({0, 1, 2, 3}, 2, true);
}

TEST_F(LocalGroupTest, Item3_BetweenRoundsTheGroupFormsAgainAndNoneIsLost) {
  StartAll();
  EXPECT_TRUE(node_.FailCommunicator(3));
  node_.Quiesce();
  ExpectGroup({0, 1, 2, 3}, 0);
  BeginRound();
  node_.Quiesce();
  ExpectOver({0, 1, 2, 3}, 1, true);
}

// However often: the communicator is in order.
TEST_F(LocalGroupTest, Item3_ATrainerThatGivesUpEndsTheRoundForAllAndNotTheGroup) {
  StartAll();
  for (GroupRound round = 1; round <= 10; ++round) {
    BeginRound();
    EXPECT_TRUE(node_.GiveUp(static_cast<LocalRank>(round % 4)));
    node_.Quiesce();
    ExpectGroup({0, 1, 2, 3}, 0);
    ExpectOver({0, 1, 2, 3}, round, false);
  }
  BeginRound();
  node_.Quiesce();
  ExpectOver({0, 1, 2, 3}, 11, true);
}

TEST_F(LocalGroupTest, Fault_A13_ACommunicatorThatFailsIsFormedAgain) {
  node_.failing_forms = 1;
  StartAll();
  ExpectGroup({0, 1, 2, 3}, 0);
  BeginRound();
  EXPECT_TRUE(node_.FailCommunicator(3));
  node_.Quiesce();
  ExpectGroup({0, 1, 2, 3}, 0);
  ExpectOver({0, 1, 2, 3}, 1, false);
}

TEST_F(LocalGroupTest, Fault_A13_AfterSeveralFailuresEveryRankGetsATypedError) {
  node_.failing_forms = 1000;
  StartAll();
  while (node_.NextDeadline()) node_.Quiesce();
  for (LocalRank rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(node_.At(rank).failed) << rank;
    EXPECT_EQ(node_.At(rank).failed->code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(node_.At(rank).failed->message()),
                AllOf(HasSubstr("failed 3 times"), HasSubstr("unhandled system error")));
  }
}

TEST_F(LocalGroupTest, Fault_A13_AnIdThatCannotBeMadeIsTheSameErrorOnEveryRank) {
  node_.failing_ids = 1000;
  StartAll();
  while (node_.NextDeadline()) node_.Quiesce();
  for (LocalRank rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(node_.At(rank).failed) << rank;
    EXPECT_EQ(node_.At(rank).failed->code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(node_.At(rank).failed->message()), HasSubstr("no network"));
  }
}

TEST_F(LocalGroupTest, Item3_RanksThatDisagreeAreNamedWithTheirValues) {
  for (LocalRank rank = 0; rank < 4; ++rank) {
    node_.agreed["LOCAL_WORLD_SIZE"] = rank == 3 ? "8" : "4";
    node_.Start(rank);
  }
  node_.Quiesce();
  while (node_.NextDeadline()) node_.Quiesce();
  for (LocalRank rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(node_.At(rank).failed) << rank;
    EXPECT_EQ(*node_.At(rank).failed,
              absl::InvalidArgumentError(
                  "the ranks of this node disagree on LOCAL_WORLD_SIZE: 4 (local ranks 0, 1, 2), 8 "
                  "(local rank 3); start them with the same value"));
  }
}

TEST_F(LocalGroupTest, Item3_ARankThatDisagreesDoesNotDisturbAGroup) {
  StartAll();
  node_.Kill(3);
  node_.Quiesce();
  node_.agreed["BASIN_JOB"] = "k";
  node_.Start(3);
  node_.Quiesce();
  ExpectGroup({0, 1, 2}, 0);
  EXPECT_EQ(node_.At(3).failed->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(node_.At(3).failed->message()),
              HasSubstr("BASIN_JOB: j (local ranks 0, 1, 2), k (local rank 3)"));
}

// In whatever order they come, the others do not wait.
TEST_F(LocalGroupTest, Fault_A13_ARankThatCannotTakePartIsTheErrorOfAllAtOnce) {
  const absl::Time began = node_.now;
  for (LocalRank first = 0; first < 4; ++first) {
    for (LocalRank unfit = 0; unfit < 4; ++unfit) {
      node_.now += absl::Hours(1);
      const absl::Time start = node_.now;
      for (LocalRank i = 0; i < 4; ++i) {
        const LocalRank rank = (first + i) % 4;
        node_.cannot =
            rank == unfit ? absl::FailedPreconditionError("there is no NCCL") : absl::OkStatus();
        node_.Start(rank);
        node_.Quiesce();
      }
      ASSERT_EQ(node_.now, start) << "nobody waits";
      for (LocalRank rank = 0; rank < 4; ++rank) {
        ASSERT_TRUE(node_.At(rank).failed) << "rank " << rank << " without " << unfit;
        EXPECT_EQ(*node_.At(rank).failed,
                  absl::FailedPreconditionError(
                      rank == unfit
                          ? "there is no NCCL"
                          : absl::StrCat("local rank ", unfit, " (worker-", (unfit * 7 + 3) % 10,
                                         ") cannot take part in the local group: there "
                                         "is no NCCL")));
        node_.Kill(rank);
      }
    }
  }
  EXPECT_GT(node_.now, began);
}

// Each tells all others, also after it was told.
TEST_F(LocalGroupTest, Fault_A13_SeveralRanksThatCannotTakePartTellAll) {
  node_.cannot = absl::FailedPreconditionError("there is no NCCL");
  for (const LocalRank rank : {0, 2}) node_.Start(rank);
  node_.Quiesce();
  for (const LocalRank rank : {0, 2}) EXPECT_FALSE(node_.At(rank).failed);
  node_.cannot = absl::OkStatus();
  for (const LocalRank rank : {1, 3}) {
    node_.Start(rank);
    node_.Quiesce();
    ASSERT_TRUE(node_.At(rank).failed);
    EXPECT_THAT(std::string(node_.At(rank).failed->message()),
                HasSubstr("cannot take part in the local group: there is no NCCL"));
  }
  for (const LocalRank rank : {0, 2}) EXPECT_TRUE(node_.At(rank).failed);
}

TEST_F(LocalGroupTest, Fault_A13_ARankThatCannotTakePartTellsForALimitedTime) {
  node_.cannot = absl::FailedPreconditionError("there is no NCCL");
  node_.Start(2);
  node_.Quiesce();
  EXPECT_FALSE(node_.At(2).failed);
  node_.NextDeadline();
  EXPECT_EQ(*node_.At(2).failed, node_.cannot);
}

// Its process takes the place of a member that was lost.
TEST_F(LocalGroupTest, Fault_A13_ARankThatCannotTakePartDoesNotDisturbAGroup) {
  StartAll();
  node_.Kill(2);
  node_.Quiesce();
  node_.cannot = absl::FailedPreconditionError("there is no NCCL");
  node_.Start(2);
  node_.Quiesce();
  EXPECT_EQ(*node_.At(2).failed, node_.cannot);
  BeginRound();
  node_.Quiesce();
  ExpectGroup({0, 1, 3}, 0);
  for (const LocalRank rank : {0, 1, 3}) EXPECT_EQ(node_.At(rank).core->ended(), 1u);
}

TEST_F(LocalGroupTest, ARankThatLeavesIsLeftOut) {
  StartAll();
  node_.Give(1, LeaveGroup{});
  EXPECT_EQ(node_.At(1).core->phase(), GroupPhase::kLeft);
  node_.Quiesce();
  ExpectGroup({0, 2, 3}, 0);
}

}  // namespace
}  // namespace basin::accelerator::node
