// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The lanes of a job: their indexes, which are open, and how much memory they hold.

#include "aggregator/core/lanes.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "aggregator/core/round_intake.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using testing::HasSubstr;

const absl::Time kLastUsed = absl::FromUnixSeconds(1000);

// Opens a round that one worker has begun.
void Open(Lane& lane, const Config& config, std::vector<Action>& actions) {
  static const JobName* const name = new JobName("job");
  static const Membership* const membership = new Membership();
  static const Lanes* const lanes = new Lanes();
  Workers workers;
  const Slot slot = workers.Add("a");
  workers.Apply(slot, WorkerInput::kRecover);
  RoundMember member;
  member.slot = slot;
  member.id = "a";
  lane.round.emplace(lane.next, Ballot{1, 1}, std::vector<RoundMember>{member}, lane.layout,
                     lane.shares, kLastUsed);
  const JobContext job{
      1, *name, workers, *membership, *lanes, true, LossPolicy::kShrink, LatePolicy::kWait};
  const RoundScope scope{kLastUsed, config, actions, job, 0, lane, false};
  OnBegin(*lane.round, scope, slot, Begin{});
}

struct LanesTest : testing::Test {
  LanesTest() {
    memory.total = uint64_t{1} << 30;
    config.memory_bytes = memory.total;
  }
  std::string Charge(Lane& lane, const TensorSpec& spec) {
    std::string why = lanes.Charge(
        config, 4, memory, lane, &spec, [this] { ++drops; }, [] { return false; });
    if (why.empty()) lane.Append(spec);
    return why;
  }
  Config config;
  MemoryBudget memory;
  std::vector<Action> actions;
  Lanes lanes;
  int drops = 0;
};

const TensorSpec kTensor{"w", DType::kU8, {3 * kChunkBytes}};

TEST_F(LanesTest, ALaneKeepsItsPlace) {
  lanes.Add("g", LaneKind::kGradient);
  lanes.Add("call/x", LaneKind::kCall, 3);
  EXPECT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes.IndexOf("call/x"), 3u);
  EXPECT_EQ(lanes.IndexOf("h"), std::nullopt);
  EXPECT_EQ(lanes.Named("h"), nullptr);
  EXPECT_FALSE(lanes.Has(1)) << "nobody uses this place";
  const std::vector<StartRound> start = lanes.StartRounds();
  ASSERT_EQ(start.size(), 2u) << "a place without a name is not named";
  EXPECT_EQ(start[1].index, 3u);
  lanes.RemoveLast();
  EXPECT_EQ(lanes.size(), 1u);
  EXPECT_EQ(lanes.Named("call/x"), nullptr);
}

TEST_F(LanesTest, NoOtherLaneGetsThePlaceOfOneThatIsGone) {
  lanes.Add("call/x", LaneKind::kCall);
  Lane& lane = lanes.Add("call/y", LaneKind::kCall);
  ASSERT_EQ(Charge(lane, kTensor), "");
  lane.next = 7;
  lanes.Ask(1, {0});
  lanes.Remove(1, 1, memory, actions);
  EXPECT_EQ(memory.reserved, 0u);
  EXPECT_TRUE(lanes.asked().empty());
  ASSERT_EQ(actions.size(), 2u) << "the engine keeps nothing of it";
  EXPECT_EQ(std::get<IdleLane>(actions[0]).lane, 1u);
  EXPECT_EQ(std::get<NameTensors>(actions[1]).lane, 1u);
  EXPECT_TRUE(lanes.IsGone(1));
  EXPECT_FALSE(lanes.IsGone(2)) << "it was never here";
  EXPECT_TRUE(lanes.AnyRoundEver()) << "also in one that is gone";
  EXPECT_EQ(lanes.Add("call/y", LaneKind::kCall).index, 2u);
}

TEST_F(LanesTest, AboveHalfOfTheNamesTheOldestIdleCallMayGo) {
  config.max_lane_names = 4;
  lanes.Add("g", LaneKind::kGradient);
  lanes.Add("call/x", LaneKind::kCall).last_used = kLastUsed + absl::Seconds(1);
  EXPECT_EQ(lanes.LeastUsedOfTooMany(config, 4), nullptr);
  lanes.Add("call/y", LaneKind::kCall).last_used = kLastUsed;
  ASSERT_NE(lanes.LeastUsedOfTooMany(config, 4), nullptr);
  EXPECT_EQ(lanes.LeastUsedOfTooMany(config, 4)->name, "call/y");
  std::vector<Action> opened;
  Open(lanes[2], config, opened);
  EXPECT_EQ(lanes.LeastUsedOfTooMany(config, 4)->name, "call/x") << "a round uses the other";
  lanes.Ask(1, {0});
  EXPECT_EQ(lanes.LeastUsedOfTooMany(config, 4), nullptr) << "one is on its way";
  lanes.Keep(1);
  EXPECT_EQ(lanes.LeastUsedOfTooMany(config, 4)->name, "call/x");
  config.max_lane_names = 100;
  EXPECT_EQ(lanes.LeastUsedOfTooMany(config, 4), nullptr);
  config.max_history_bytes = 1000;
  EXPECT_NE(lanes.LeastUsedOfTooMany(config, 4), nullptr) << "a hello could get too long";
}

TEST_F(LanesTest, AVerdictOfTheLastOpenGradientLaneIsABoundary) {
  lanes.Add("g", LaneKind::kGradient);
  lanes.Add("h", LaneKind::kGradient);
  lanes.Add("call/x", LaneKind::kCall);
  EXPECT_FALSE(lanes.AnyRoundEver());
  EXPECT_TRUE(lanes.IsBoundary(lanes[0]));
  EXPECT_FALSE(lanes.IsBoundary(lanes[2])) << "a call is none in a job that trains";
  Open(lanes[1], config, actions);
  EXPECT_TRUE(lanes.AnyOpen());
  EXPECT_TRUE(lanes.AnyRoundEver());
  EXPECT_FALSE(lanes.IsBoundary(lanes[0]));
  EXPECT_TRUE(lanes.IsBoundary(lanes[1]));
  EXPECT_TRUE(lanes.AnyOpenBesides(lanes[0]));
  EXPECT_FALSE(lanes.AnyOpenBesides(lanes[1]));
  EXPECT_NE(lanes.RoundOf({1, 1}), nullptr);
  EXPECT_EQ(lanes.RoundOf({1, 2}), nullptr);
  EXPECT_EQ(lanes.RoundOf({9, 1}), nullptr);
  EXPECT_FALSE(lanes.AnyPaced());
  lanes[1].paced = true;
  EXPECT_TRUE(lanes.AnyPaced());

  Lanes calls;
  calls.Add("call/x", LaneKind::kCall);
  EXPECT_TRUE(calls.IsBoundary(calls[0])) << "there is no gradient lane";
}

TEST_F(LanesTest, WhatIsChargedIsGivenBack) {
  Lane& lane = lanes.Add("g", LaneKind::kGradient);
  ASSERT_EQ(Charge(lane, kTensor), "");
  EXPECT_EQ(lane.tracking, TrackingBytes(4, 3));
  EXPECT_EQ(memory.reserved, lane.tracking + lane.layout_bytes.held);
  const uint64_t for_four = memory.reserved;
  lanes.Recharge(4, 8, memory);
  EXPECT_EQ(memory.reserved - for_four, TrackingBytes(8, 3) - TrackingBytes(4, 3));
  lanes.Recharge(8, 4, memory);
  EXPECT_EQ(memory.reserved, for_four);
  EXPECT_EQ(lanes.ReservedFor(8, 4) - lanes.ReservedFor(4, 4),
            TrackingBytes(8, 3) - TrackingBytes(4, 3));
  lanes.Drop(1, memory, actions);
  EXPECT_EQ(memory.reserved, 0u);
  EXPECT_EQ(lanes.size(), 0u);
}

TEST_F(LanesTest, WhatDoesNotFitIsExplained) {
  Lane& lane = lanes.Add("g", LaneKind::kGradient);
  config.max_job_bytes = 1000;
  EXPECT_THAT(Charge(lane, kTensor), HasSubstr("a job may have 1000 (limits.job_memory)"));
  config.max_job_bytes = 0;
  memory.total = 1000;
  EXPECT_THAT(Charge(lane, kTensor), HasSubstr("the aggregator has 1000"));
  EXPECT_EQ(drops, 0);
  memory.total = uint64_t{1} << 30;
  memory.reserved = memory.total;
  EXPECT_THAT(Charge(lane, kTensor), HasSubstr("0 of 1073741824 bytes are free"));
  EXPECT_EQ(drops, 1) << "values that are kept go first";
  EXPECT_EQ(lane.tracking, 0u);
}

TEST_F(LanesTest, TheQuotaBoundsTheRoom) {
  Lane& lane = lanes.Add("g", LaneKind::kGradient);
  EXPECT_EQ(lanes.Room(config, memory), memory.total);
  lane.tracking = 600;
  config.max_job_bytes = 1000;
  EXPECT_EQ(lanes.RoomInQuota(config), 400u);
  EXPECT_EQ(lanes.DescribeRoom(config, memory), "400 of 1000 bytes (limits.job_memory) are free");
  lane.tracking = 1600;
  EXPECT_EQ(lanes.RoomInQuota(config), 0u);
}

TEST_F(LanesTest, AnIdleCallGivesItsMemoryBack) {
  Lane& lane = lanes.Add("call/x", LaneKind::kCall);
  ASSERT_EQ(Charge(lane, kTensor), "");
  lane.last_used = kLastUsed;
  config.idle_lane_timeout = absl::Minutes(10);
  EXPECT_EQ(lanes.IdleDue(config), kLastUsed + absl::Minutes(10));
  std::vector<Action> actions;
  lanes.ExpireIdle(config, kLastUsed + absl::Minutes(9), 1, memory, actions);
  EXPECT_FALSE(lane.expired);
  EXPECT_TRUE(actions.empty());
  lanes.ExpireIdle(config, kLastUsed + absl::Minutes(10), 1, memory, actions);
  lanes.ExpireIdle(config, kLastUsed + absl::Minutes(20), 1, memory, actions);
  EXPECT_TRUE(lane.expired);
  ASSERT_EQ(actions.size(), 1u) << "the engine is told once";
  EXPECT_EQ(std::get<IdleLane>(actions[0]).lane, 0u);
  EXPECT_EQ(memory.reserved, lane.layout_bytes.held) << "its tensors keep their names";
  EXPECT_EQ(lanes.IdleDue(config), absl::InfiniteFuture());
  EXPECT_FALSE(Lanes::NeedsMemory(config, lane));
}

TEST_F(LanesTest, TheNumberOfLanesAndTheSizeOfAHelloAreBounded) {
  config.max_lanes = 2;
  lanes.Add("g", LaneKind::kGradient);
  lanes.Add("h", LaneKind::kGradient);
  EXPECT_THAT(lanes.MakeRoom(config, 1, memory, actions), HasSubstr("its limit of 2 lanes"));
  EXPECT_TRUE(actions.empty());
  EXPECT_EQ(lanes.WhyNotRemembered(config, 4), "");
  config.max_history_bytes = 1;
  EXPECT_THAT(lanes.WhyNotRemembered(config, 4), HasSubstr("2 lanes and 4 workers"));
}

TEST_F(LanesTest, TheCallThatWasUsedLeastRecentlyMakesRoom) {
  config.max_lanes = 3;
  lanes.Add("g", LaneKind::kGradient);
  lanes.Add("call/x", LaneKind::kCall).last_used = kLastUsed + absl::Seconds(2);
  lanes.Add("call/y", LaneKind::kCall).last_used = kLastUsed + absl::Seconds(1);
  EXPECT_EQ(lanes.MakeRoom(config, 1, memory, actions), "");
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(std::get<IdleLane>(actions[0]).lane, 2u);
  EXPECT_FALSE(lanes[1].expired);
  EXPECT_TRUE(lanes[2].expired);
  EXPECT_EQ(lanes.MakeRoom(config, 1, memory, actions), "") << "there is room";
  EXPECT_EQ(actions.size(), 1u);
  lanes.Add("call/z", LaneKind::kCall).last_used = kLastUsed + absl::Seconds(3);
  std::vector<Action> opened;
  Open(lanes[1], config, opened);
  EXPECT_EQ(lanes.MakeRoom(config, 1, memory, actions), "");
  EXPECT_TRUE(lanes[3].expired) << "that of a round in flight stays";
}

TEST_F(LanesTest, AHelloMayKnowMoreThanTheRecoveryDid) {
  Lane& lane = lanes.Add("g", LaneKind::kGradient);
  lane.next = 5;
  Hello hello;
  hello.lanes.emplace_back();
  LaneHistory& history = hello.lanes.back();
  history.name = "g";
  history.last_verdict = 4;
  EXPECT_FALSE(lanes.Lack(hello, false, 1));
  history.last_verdict = 5;
  EXPECT_TRUE(lanes.Lack(hello, false, 1)) << "a verdict that is not known here";
  EXPECT_FALSE(lanes.Lack(hello, true, 1)) << "after that it can only be a fork";
  history.last_verdict = 4;
  history.staged.emplace();
  history.staged->round = 5;
  EXPECT_TRUE(lanes.Lack(hello, false, 1)) << "it has staged a value";
  EXPECT_FALSE(lanes.Lack(hello, true, 1));
  history.name = "call/x";
  history.kind = LaneKind::kCall;
  EXPECT_FALSE(lanes.Lack(hello, false, 1)) << "a call that all have let go";
}

}  // namespace
}  // namespace basin::aggregator
