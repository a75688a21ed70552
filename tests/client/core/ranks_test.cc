// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A worker that stands for several trainers.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/version.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

using testing::HasSubstr;

Config Node(uint32_t ranks, uint32_t local_rank = 0) {
  Config config = TestConfig();
  config.ranks = ranks;
  config.local_rank = local_rank;
  return config;
}

// A node in a job whose aggregator knows of such workers.
struct RanksTest : testing::Test {
  Harness worker{Node(3, 1)};

  static Welcome Known(const Harness& harness) {
    Welcome welcome = harness.MakeWelcome();
    welcome.features = kFeatureRanks;
    return welcome;
  }
  void BecomeMember(const MemberList& members) {
    worker.Connect(Known(worker));
    worker.RegisterModel();
    worker.Do(DeclareReady{});
    worker.Receive(MembershipChanged{
        {{kTerm, 1}, members}, Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
  }
};

TEST_F(RanksTest, HelloAndBeginReportThem) {
  worker.Do(Tick{});
  const Hello hello = worker.Do(SessionUp{}).OneSent<Hello>();
  EXPECT_EQ(hello.ranks, 3u);
  EXPECT_EQ(hello.features & kFeatureRanks, kFeatureRanks);
  worker.Receive(Known(worker));
  worker.StreamsUp();
  worker.RegisterModel();
  worker.Do(DeclareReady{});
  worker.Receive(MembershipChanged{
      {{kTerm, 1}, {{"w-0"}}}, Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
  EXPECT_EQ(worker.Do(BeginRound{0, Harness::Average(), {}, 17, {}}).OneSent<Begin>().ranks, 3u);
}

TEST_F(RanksTest, TheRankIsThatOfTheTrainer) {
  BecomeMember(MemberList::WithRanks({"w-1", "w-0", "w-2"}, {2, 3, 1}));
  EXPECT_EQ(worker.client.rank(), 3u) << "the second of 2, 3 and 4";
}

TEST_F(RanksTest, AChangeAppliesFromTheNextBeginOn) {
  BecomeMember(MemberList::WithRanks({"w-1", "w-0", "w-2"}, {2, 3, 1}));
  worker.Begin();
  const Actions set = worker.Do(SetRanks{2, 0});
  EXPECT_EQ(set.One<MembershipNow>().rank, 2u);
  EXPECT_FALSE(set.One<MembershipNow>().joined);
  // The round in flight is what it was when it began, also on another session.
  worker.Do(SessionDown{"cut"});
  EXPECT_EQ(worker.Do(SessionUp{}).OneSent<Hello>().ranks, 2u);
  Welcome welcome = Known(worker);
  welcome.role = Role::kMember;
  welcome.membership = worker.client.membership();
  welcome.layouts = {worker.MakeLayout()};
  welcome.open = {OpenRound{kLane, 1, RoundPhase::kCollect, {kTerm, 1}, {}, kWindow}};
  EXPECT_EQ(worker.Receive(welcome).OneSent<Begin>().ranks, 3u);
}

TEST_F(RanksTest, ATrainerThatHasJoinedItsNodeWaitsForItsRank) {
  const std::vector<WorkerId> ids = {"w-0", "w-1"};
  BecomeMember(MemberList::WithRanks(ids, {3, 2}));
  worker.Do(SetRanks{5, 4});
  EXPECT_EQ(worker.client.rank(), 2u) << "the ranks 3 and 4 are still those of w-1";
  worker.Receive(MembershipChanged{
      {{kTerm, 2}, MemberList::WithRanks(ids, {5, 2})}, Role::kMember, std::nullopt, {}});
  EXPECT_EQ(worker.client.rank(), 4u);
}

TEST_F(RanksTest, ThatMakeNoSenseAreRefused) {
  BecomeMember({{"w-0"}});
  for (const uint32_t ranks : {0u, kMaxRanks + 1}) {
    const Error error = worker.Do(SetRanks{ranks, 0}).One<Refused>().error;
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.text, HasSubstr("Job train, worker w-0: the worker stands for"));
    EXPECT_THAT(error.text, HasSubstr("a worker stands for 1 to 1024"));
  }
  EXPECT_THAT(
      worker.Do(SetRanks{2, 2}).One<Refused>().error.text,
      HasSubstr("has local rank 2, but stands for 2 trainers; their local ranks are 0 to 1"));
  EXPECT_EQ(worker.Do(BeginRound{0, Harness::Average(), {}, 17, {}}).OneSent<Begin>().ranks, 3u);
}

TEST_F(RanksTest, AContributionForOtherWorkersSaysSo) {
  BecomeMember({{"w-0"}});
  worker.Do(SetRanks{1, 0});
  BeginRound begin{0, Harness::Average(), {}, 17, {}, kMaxRanks};
  const Error error = worker.Do(begin).One<Refused>().error;
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.text, HasSubstr("the contribution of worker w-0 of job train has the gradients "
                                    "of 1024 trainers of other workers beside 1"));
  begin.represents = 7;
  begin.local_reduction = LocalReduction::kFast;
  begin.reduced_with = {"w-0", "w-1"};
  EXPECT_THAT(worker.Do(begin).One<Refused>().error.text,
              HasSubstr("names the worker itself among those that it was reduced with"));
  begin.reduced_with = {"w-1", "w-2"};
  const Begin sent = worker.Do(begin).OneSent<Begin>();
  EXPECT_EQ(sent.ranks, 1u);
  EXPECT_EQ(sent.represents, 7u);
  EXPECT_EQ(sent.local_reduction, LocalReduction::kFast);
  EXPECT_EQ(sent.reduced_with, begin.reduced_with);
}

TEST_F(RanksTest, AContributionForOthersIsNotSentToAnOlderAggregator) {
  Harness single;
  single.BecomeMember();
  EXPECT_EQ(single.Do(BeginRound{0, Harness::Average(), {}, 17, {}, 1}).One<Refused>().error.code,
            ErrorCode::kVersionMismatch);
  EXPECT_FALSE(single.Do(BeginRound{0, Harness::Average(), {}, 17, {}}).Has<Refused>());
}

// An aggregator that does not know of ranks would divide by the number of workers.
TEST_F(RanksTest, AnOlderAggregatorIsRefused) {
  const Actions actions = worker.Connect(worker.MakeWelcome());
  const Error error = worker.client.fatal().value_or(Error{});
  EXPECT_EQ(error.code, ErrorCode::kVersionMismatch);
  EXPECT_EQ(
      error.text,
      "Job train, worker w-0: the aggregator at a-0:7070 is too old for contributions of several "
      "trainers, and would divide wrongly. Update it, or let each trainer contribute for itself.");
}

TEST_F(RanksTest, AnOlderAggregatorHasSingleTrainersOnly) {
  Harness single;
  single.BecomeMember();
  EXPECT_EQ(single.client.rank(), 0u);
  EXPECT_EQ(single.Do(SetRanks{2, 0}).One<Refused>().error.code, ErrorCode::kVersionMismatch);
  EXPECT_EQ(single.Do(BeginRound{0, Harness::Average(), {}, 17, {}}).OneSent<Begin>().ranks, 1u);
}

// A round in flight may hold several trainers although only one is left.
TEST_F(RanksTest, AnOlderAggregatorIsRefusedAlsoAfterwards) {
  BecomeMember({{"w-0"}});
  worker.Do(SetRanks{1, 0});
  worker.Do(SessionDown{"cut"});
  worker.Connect(worker.MakeWelcome(Role::kMember));
  EXPECT_EQ(worker.client.fatal().value_or(Error{}).code, ErrorCode::kVersionMismatch);
}

}  // namespace
}  // namespace basin::client
