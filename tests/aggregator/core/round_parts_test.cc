// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The parts of a round: its members and their counts, their agreement, flow control, the results
// that are held for them, and the chunks that they lack of a prepared value.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "aggregator/core/agreement.h"
#include "aggregator/core/flow_control.h"
#include "aggregator/core/held_results.h"
#include "aggregator/core/roster.h"
#include "aggregator/core/supplies.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr TensorIndex kLarge = 0;  // Chunks 0 to 2.
constexpr TensorIndex kSmall = 1;  // Chunk 3.
const absl::Time kStart = absl::FromUnixSeconds(1000);

absl::Time At(int seconds) { return kStart + absl::Seconds(seconds); }

RoundMember Member(Slot slot, std::string id) {
  RoundMember member;
  member.slot = slot;
  member.id = std::move(id);
  return member;
}

// Members "a", "b" and "c" in slots 0 to 2, with a lane of two tensors.
class RoundParts : public testing::Test {
 protected:
  RoundParts() {
    layout.Append({"large", DType::kU8, {2 * kChunkBytes + 1}});
    layout.Append({"small", DType::kU8, {1}});
    for (RoundMember& member : roster) member.Grow(layout, BytesFrom(layout, Shares(), 0));
  }

  void Begin(Slot slot, ReduceOp op, uint64_t samples = 1) {
    basin::Begin begin;
    begin.spec.op = op;
    begin.spec.weight_by = WeightBy::kSamples;
    begin.counts.samples = samples;
    roster.At(slot).contribution.OnBegin(begin);
    ASSERT_TRUE(roster.Apply(roster.At(slot), ContributionInput::kBegin));
  }

  Layout layout;
  Roster roster{{Member(0, "a"), Member(1, "b"), Member(2, "c")}};
};

// ---- members

TEST_F(RoundParts, AMemberIsCountedInEachOfItsStates) {
  EXPECT_EQ(roster.contributors(), 3u);
  EXPECT_EQ(roster.alive(), 3u);
  EXPECT_EQ(roster.unstaged(), 3u);
  Begin(0, ReduceOp::kSum);
  EXPECT_EQ(roster.begun(), 1u);
  roster.Apply(roster.At(0), ContributionInput::kCommit);
  roster.Apply(roster.At(0), ContributionInput::kComplete);
  EXPECT_EQ(roster.effective(), 1u);
  roster.Apply(roster.At(0), StagingInput::kAsk);
  roster.Apply(roster.At(0), StagingInput::kStage);
  EXPECT_EQ(roster.unstaged(), 2u);
  roster.Apply(roster.At(1), ContributionInput::kWithdraw);
  EXPECT_EQ(roster.contributors(), 2u);
  roster.Apply(roster.At(1), PresenceInput::kLeaveOut);
  EXPECT_EQ(roster.there(), 2u);
  EXPECT_EQ(roster.receivers(), 2u);
  EXPECT_EQ(roster.alive(), 3u) << "it is away, but receives the verdict";
}

TEST_F(RoundParts, AnInputThatTheTableLacksChangesNoCount) {
  EXPECT_FALSE(roster.Apply(roster.At(0), ContributionInput::kComplete));
  EXPECT_EQ(roster.effective(), 0u);
  EXPECT_EQ(roster.contributors(), 3u);
}

TEST_F(RoundParts, ALostMemberLeavesItsSlotAndItsContribution) {
  roster.Apply(roster.At(1), PresenceInput::kLose);
  EXPECT_FALSE(roster.Has(1));
  EXPECT_EQ(roster.alive(), 2u);
  EXPECT_EQ(roster.receivers(), 2u);
  EXPECT_EQ(roster.contributors(), 3u) << "it counts until the round drops it";
}

TEST_F(RoundParts, AWorkerThatComesBackIsInTheListTwice) {
  roster.Apply(roster.At(1), PresenceInput::kLose);
  roster.Add({Member(1, "b"), Member(3, "aa")});
  std::vector<std::string> ids;
  for (const RoundMember& member : roster) ids.push_back(member.id);
  EXPECT_THAT(ids, ElementsAre("a", "aa", "b", "b", "c"));
  EXPECT_TRUE(roster.At(1).alive());
  EXPECT_EQ(roster.At(3).id, "aa");
  EXPECT_EQ(roster.alive(), 4u);
}

TEST_F(RoundParts, SkippersAreFoundByTheirPositionAmongTheContributors) {
  roster.At(0).contribution.OnSkip(layout, Shares(), kSmall);
  roster.At(2).contribution.OnSkip(layout, Shares(), kSmall);
  EXPECT_THAT(roster.SkippersOf(kSmall), ElementsAre(0u, 2u));
  roster.Apply(roster.At(1), ContributionInput::kWithdraw);
  EXPECT_THAT(roster.SkippersOf(kSmall), ElementsAre(0u, 1u));
  EXPECT_THAT(roster.SkippersOf(kLarge), IsEmpty());
}

// ---- agreement

TEST_F(RoundParts, TheMostCommonSpecIsAgreedOn) {
  Begin(0, ReduceOp::kSum);
  Begin(1, ReduceOp::kAverage);
  Begin(2, ReduceOp::kAverage);
  Agreement agreement;
  EXPECT_FALSE(agreement.made());
  EXPECT_EQ(agreement.Make(roster, std::nullopt).id, "b");
  EXPECT_TRUE(agreement.made());
  EXPECT_EQ(agreement.spec().op, ReduceOp::kAverage);
  agreement.Reopen();
  EXPECT_FALSE(agreement.made());
}

TEST_F(RoundParts, AnAverageIsDividedByThoseWhoPush) {
  for (Slot slot = 0; slot < 3; ++slot) Begin(slot, ReduceOp::kAverage);
  Agreement agreement;
  agreement.Make(roster, std::nullopt);
  EXPECT_EQ(agreement.Divisor(roster), 3u);
  EXPECT_EQ(agreement.DivisorOf(roster, kSmall, 0, 3), 3u);
  EXPECT_EQ(agreement.DivisorOf(roster, kSmall, 3, 3), 0u) << "no contributor pushes it";
  EXPECT_EQ(agreement.DivisorOf(roster, kSmall, 1, 3), 3u)
      << "with denominator ALL, skips change nothing";
}

TEST_F(RoundParts, AWeightedAverageIsDividedByTheWeightsOfThoseWhoPush) {
  for (Slot slot = 0; slot < 3; ++slot) {
    basin::Begin begin;
    begin.spec.op = ReduceOp::kWeightedAverage;
    begin.spec.weight_by = WeightBy::kSamples;
    begin.spec.denominator = Denominator::kPresent;
    begin.counts.samples = 10 * (slot + 1);
    roster.At(slot).contribution.OnBegin(begin);
    roster.Apply(roster.At(slot), ContributionInput::kBegin);
  }
  Agreement agreement;
  agreement.Make(roster, std::nullopt);
  EXPECT_EQ(agreement.Divisor(roster), 60u);
  roster.At(1).contribution.OnSkip(layout, Shares(), kSmall);
  EXPECT_EQ(agreement.DivisorOf(roster, kSmall, 1, 60), 40u);
}

// ---- what may be sent

LaneMemory Window(uint64_t bytes) {
  LaneMemory memory;
  memory.frame = kChunkBytes;
  memory.window = bytes;
  return memory;
}

TEST_F(RoundParts, AMemberWithoutRoomForItsNextFrameWaits) {
  FlowControl flow;
  const LaneMemory memory = Window(2 * kChunkBytes);
  RoundMember& a = roster.At(0);
  flow.Review(memory, At(1), roster, a);
  EXPECT_EQ(roster.free(), 3u);
  EXPECT_EQ(FlowControl::Window(memory, a, kCoordinatorShard), 2 * kChunkBytes);
  a.contribution.OnChunk(0, kChunkBytes, 1, kCoordinatorShard);
  a.contribution.OnChunk(1, kChunkBytes, 1, kCoordinatorShard);
  flow.Review(memory, At(2), roster, a);
  EXPECT_EQ(roster.waiting(), 1u);
  EXPECT_TRUE(FlowControl::LacksRoom(a));
  EXPECT_EQ(flow.wait_since(), At(2));
  EXPECT_EQ(flow.stalls(), 1u);
  EXPECT_EQ(FlowControl::News(memory, a, kCoordinatorShard, false), std::nullopt);
  a.contribution.NoteReduced(0, kChunkBytes, kCoordinatorShard);
  flow.Review(memory, At(3), roster, a);
  EXPECT_EQ(roster.waiting(), 0u);
  EXPECT_EQ(a.room.free_since, At(3));
  EXPECT_EQ(flow.wait_since(), absl::InfiniteFuture());
  EXPECT_EQ(FlowControl::News(memory, a, kCoordinatorShard, false), kChunkBytes);
  a.room.sent.Set(kCoordinatorShard, kChunkBytes);
  EXPECT_EQ(FlowControl::News(memory, a, kCoordinatorShard, false), std::nullopt)
      << "it knows this window";
}

TEST_F(RoundParts, ALostMemberNeitherAddsNorWaits) {
  FlowControl flow;
  roster.Apply(roster.At(0), PresenceInput::kLose);
  RoundMember& a = *roster.begin();
  flow.Review(Window(4 * kChunkBytes), At(1), roster, a);
  EXPECT_EQ(roster.free(), 2u);
  EXPECT_EQ(roster.waiting(), 0u);
  EXPECT_FALSE(FlowControl::LacksRoom(a));
}

// ---- results

TEST(HeldResultsTest, AChunkIsHeldUntilEveryReceiverHasIt) {
  HeldResults held;
  held.Grow(2);
  held.Start(100);
  EXPECT_EQ(held.Room(150), 50u);
  EXPECT_EQ(held.Room(50), 0u);
  held.Hold(1, 2);
  EXPECT_FALSE(held.Holds(0));
  EXPECT_TRUE(held.Holds(1));
  EXPECT_FALSE(held.Take(1));
  EXPECT_TRUE(held.Take(1));
  held.Release(100);
  EXPECT_FALSE(held.Holds(1));
  EXPECT_EQ(held.bytes(), 0u);
  EXPECT_FALSE(held.Take(1)) << "all receivers have it";
}

TEST(HeldResultsTest, ItIsFullSinceTheFirstChunkFoundNoRoom) {
  HeldResults held;
  EXPECT_FALSE(held.full());
  held.NoteFull(At(1));
  held.NoteFull(At(2));
  EXPECT_EQ(held.full_since(), At(1));
  held.NoteRoom();
  EXPECT_FALSE(held.full());
}

TEST_F(RoundParts, AMemberKeepsUpWhenItHasTakenWhatWasHeldForItAtFirst) {
  Reception& reception = roster.At(0).reception;
  reception.Owe(2, At(1));
  reception.Owe(1, At(2));
  EXPECT_EQ(reception.behind_since(), At(1));
  EXPECT_TRUE(reception.Take(0, At(3), true));
  EXPECT_FALSE(reception.Take(0, At(4), true)) << "it has this chunk already";
  EXPECT_EQ(reception.progress(), At(3));
  EXPECT_EQ(reception.behind_since(), At(1)) << "it lacks one of the first two";
  EXPECT_TRUE(reception.Take(1, At(5), true));
  EXPECT_EQ(reception.behind_since(), At(5));
  EXPECT_EQ(reception.owed(), 1u);
}

TEST_F(RoundParts, OnlySoManyRequestsCountAsProgress) {
  Reception& reception = roster.At(0).reception;
  reception.Fetched(1, At(1));
  reception.Fetched(1, At(2));
  EXPECT_EQ(reception.progress(), At(1));
  reception.ForgetFetched();
  reception.Fetched(1, At(3));
  EXPECT_EQ(reception.progress(), At(3));
}

// ---- supplies

TEST_F(RoundParts, ASupplierIsAskedOnceForEachChunk) {
  Supplies supplies;
  supplies.Want(2, 0);
  supplies.Want(1, 0);
  EXPECT_THAT(supplies.Ask(1), ElementsAre(1u, 2u));
  EXPECT_THAT(supplies.Ask(1), IsEmpty());
  supplies.Want(3, 0);
  EXPECT_THAT(supplies.Ask(1), ElementsAre(3u));
  EXPECT_THAT(supplies.Ask(2), ElementsAre(1u, 2u, 3u)) << "a new supplier is asked for all";
  supplies.ForgetSupplier(2);
  EXPECT_THAT(supplies.Ask(2), ElementsAre(1u, 2u, 3u)) << "the request may be lost";
}

TEST_F(RoundParts, AChunkThatWasRelayedIsAskedForAgainByThoseWhoComeLater) {
  Supplies supplies;
  supplies.Want(1, 0);
  supplies.Ask(2);
  std::set<Slot> to;
  supplies.Relay(1, to);
  supplies.Relay(7, to);
  EXPECT_THAT(to, ElementsAre(0u));
  supplies.Want(1, 1);
  EXPECT_THAT(supplies.Ask(2), ElementsAre(1u));
}

TEST_F(RoundParts, NobodyWantsAChunkThatAllHaveOrThatTheLostWanted) {
  Supplies supplies;
  supplies.Want(1, 0);
  supplies.Want(1, 1);
  EXPECT_TRUE(supplies.Got(1, 0));
  EXPECT_FALSE(supplies.Got(1, 0));
  EXPECT_FALSE(supplies.empty());
  supplies.Forget(1);
  EXPECT_TRUE(supplies.empty());
}

TEST_F(RoundParts, AChunkIsLostWhenAllWhoTakePartLackIt) {
  Supplies supplies;
  supplies.Want(1, 0);
  supplies.Want(1, 1);
  EXPECT_FALSE(supplies.SomethingIsLost(roster)) << "c may have it";
  roster.Apply(roster.At(2), PresenceInput::kLose);
  EXPECT_TRUE(supplies.SomethingIsLost(roster));
}

}  // namespace
}  // namespace basin::aggregator
