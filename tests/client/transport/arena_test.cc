// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Places in shared memory: fixed while rounds end with a verdict, and others after one without.

#include "client/transport/arena.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace basin::client {
namespace {

constexpr uint64_t kArenaBytes = 100'000;
constexpr LaneHandle kArenaLane = 0;

class ArenaTest : public testing::Test {
 protected:
  ArenaTest() {
    arena_.Add(kArenaLane, 0, kArenaBytes, 4);
    arena_.Add(kArenaLane, 1, kArenaBytes + 2, 2);
    arena_.Add(kArenaLane, 2, kArenaBytes, 8);
  }
  // The place of the tensor in a round of its own that ends with a verdict, or without.
  std::optional<ArenaPlace> Round(bool verdict) {
    EXPECT_TRUE(arena_.TryBegin(kArenaLane));
    std::optional<ArenaPlace> place = arena_.Take(kArenaLane, 0);
    arena_.Free(kArenaLane, verdict);
    return place;
  }

  Arena arena_{MakeSegment};
};

TEST_F(ArenaTest, TensorsDoNotOverlapAndAreAligned) {
  ASSERT_TRUE(arena_.TryBegin(kArenaLane));
  uint64_t end = 0;
  for (TensorHandle tensor = 0; tensor < 3; ++tensor) {
    const auto place = arena_.Take(kArenaLane, tensor);
    ASSERT_TRUE(place.has_value()) << tensor;
    EXPECT_GE(place->offset, end);
    EXPECT_EQ(place->offset % (tensor == 2 ? 8 : 2), 0u);
    end = place->offset + kArenaBytes + (tensor == 1 ? 2 : 0);
    EXPECT_LE(end, place->segment->size());
  }
}

TEST_F(ArenaTest, APlaceStaysWhileRoundsHaveVerdicts) {
  const auto first = Round(true);
  const auto second = Round(true);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->at(), second->at());
}

TEST_F(ArenaTest, ATensorIsTakenOncePerRoundAndOnlyInOne) {
  EXPECT_FALSE(arena_.Take(kArenaLane, 0).has_value());
  ASSERT_TRUE(arena_.TryBegin(kArenaLane));
  EXPECT_FALSE(arena_.TryBegin(kArenaLane));
  EXPECT_TRUE(arena_.Take(kArenaLane, 0).has_value());
  EXPECT_FALSE(arena_.Take(kArenaLane, 0).has_value());
  EXPECT_FALSE(arena_.Take(kArenaLane, 99).has_value());
}

TEST_F(ArenaTest, ARoundWithoutAVerdictKeepsItsPlacesAndTakesNoMore) {
  const auto before = Round(false);
  ASSERT_TRUE(before.has_value());
  // However many rounds fail, they hold one segment.
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Round(false).has_value());
  EXPECT_FALSE(Round(true).has_value());
  const auto after = Round(true);
  ASSERT_TRUE(after.has_value());
  EXPECT_NE(after->segment, before->segment);
  EXPECT_EQ(before->segment.use_count(), 1) << "the arena has given it up";
}

// While one thread waits for memory, the tensors of others are sent from where they are.
TEST_F(ArenaTest, NoThreadWaitsForTheMemoryThatAnotherGets) {
  ASSERT_TRUE(arena_.TryBegin(kArenaLane));
  std::vector<std::optional<ArenaPlace>> taken(3);
  std::vector<std::thread> threads;
  for (TensorHandle tensor = 0; tensor < 3; ++tensor) {
    threads.emplace_back([&, tensor] { taken[tensor] = arena_.Take(kArenaLane, tensor); });
  }
  for (std::thread& thread : threads) thread.join();
  std::shared_ptr<Segment> segment;
  for (const auto& place : taken) {
    if (!place.has_value()) continue;
    if (segment == nullptr) segment = place->segment;
    EXPECT_EQ(place->segment, segment) << "one for all";
  }
  ASSERT_NE(segment, nullptr);
  arena_.Free(kArenaLane, true);
  ASSERT_TRUE(arena_.TryBegin(kArenaLane));
  for (TensorHandle tensor = 0; tensor < 3; ++tensor) {
    EXPECT_EQ(arena_.Take(kArenaLane, tensor)->segment, segment) << tensor;
  }
}

TEST_F(ArenaTest, ARoundThatTookNothingChangesNothing) {
  const auto before = Round(true);
  ASSERT_TRUE(arena_.TryBegin(kArenaLane));
  arena_.Free(kArenaLane, false);
  const auto after = Round(true);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_EQ(before->at(), after->at());
}

// All that are new get theirs together, in one segment.
TEST_F(ArenaTest, ATensorThatIsNewInARoundHasAPlaceInTheNext) {
  ASSERT_TRUE(arena_.TryBegin(kArenaLane));
  ASSERT_TRUE(arena_.Take(kArenaLane, 0).has_value());
  for (const TensorHandle tensor : {3, 4}) {
    arena_.Add(kArenaLane, tensor, 10 * kArenaBytes, 4);
    EXPECT_FALSE(arena_.Take(kArenaLane, tensor).has_value());
  }
  arena_.Free(kArenaLane, true);
  ASSERT_TRUE(arena_.TryBegin(kArenaLane));
  const auto one = arena_.Take(kArenaLane, 3);
  const auto other = arena_.Take(kArenaLane, 4);
  ASSERT_TRUE(one.has_value() && other.has_value());
  EXPECT_EQ(one->segment, other->segment);
}

TEST_F(ArenaTest, MemoryThatWasMissingIsAskedForAgainAfterPausesThatGrow) {
  bool there = false;
  uint64_t asked = 0;
  Arena arena([&](uint64_t bytes) {
    ++asked;
    return there ? MakeSegment(bytes) : nullptr;
  });
  arena.Add(kArenaLane, 0, kArenaBytes, 4);
  const auto round = [&] {
    EXPECT_TRUE(arena.TryBegin(kArenaLane));
    const bool taken = arena.Take(kArenaLane, 0).has_value();
    arena.Free(kArenaLane, true);
    return taken;
  };
  const auto rounds_until_asked = [&] {
    const uint64_t before = asked;
    uint64_t rounds = 0;
    while (asked == before && rounds < 100'000) {
      round();
      ++rounds;
    }
    return rounds;
  };
  ASSERT_EQ(rounds_until_asked(), 1u);
  const uint64_t first = rounds_until_asked();
  EXPECT_GT(first, 1u) << "a failure may take long";
  EXPECT_EQ(rounds_until_asked(), 2 * first);
  for (int failures = 0; failures < 10; ++failures) rounds_until_asked();
  const uint64_t longest = rounds_until_asked();
  EXPECT_EQ(rounds_until_asked(), longest);
  there = true;
  rounds_until_asked();
  EXPECT_TRUE(round());
}

TEST_F(ArenaTest, MemoryThatWasRefusedIsFreedAndNoOtherIsMadeAtOnce) {
  ASSERT_TRUE(arena_.TryBegin(kArenaLane));
  std::weak_ptr<Segment> segment;
  {
    const auto place = arena_.Take(kArenaLane, 0);
    ASSERT_TRUE(place.has_value());
    segment = place->segment;
    arena_.Refuse(place->segment);
  }
  EXPECT_TRUE(segment.expired());
  EXPECT_FALSE(arena_.Take(kArenaLane, 1).has_value());
  arena_.Free(kArenaLane, true);
  EXPECT_FALSE(Round(true).has_value());
}

// Rounds in which these tensors are taken.
class ArenaExpiryTest : public ArenaTest {
 protected:
  void Rounds(uint64_t count, const std::vector<TensorHandle>& tensors) {
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(arena_.TryBegin(kArenaLane));
      places_.clear();
      for (const TensorHandle tensor : tensors) {
        const std::optional<ArenaPlace> place = arena_.Take(kArenaLane, tensor);
        if (place.has_value()) places_[tensor] = *place;
      }
      arena_.Free(kArenaLane, true);
    }
  }
  // Those of the last round.
  std::map<TensorHandle, ArenaPlace> places_;
};

TEST_F(ArenaExpiryTest, AFewTensorsThatAreUsedGetASmallerSegment) {
  Rounds(1, {0, 1, 2});
  ASSERT_EQ(places_.size(), 3u);
  const std::weak_ptr<Segment> first = places_[0].segment;
  Rounds(2 * kArenaExpiry, {0});
  ASSERT_EQ(places_.size(), 1u);
  EXPECT_TRUE(first.expired());
  EXPECT_EQ(places_[0].segment->size(), kArenaBytes);
}

TEST_F(ArenaExpiryTest, ASegmentOfWhichHalfIsUsedStays) {
  Rounds(1, {0, 1, 2});
  const std::weak_ptr<Segment> first = places_[0].segment;
  Rounds(3 * kArenaExpiry, {0, 2});
  EXPECT_EQ(places_[2].segment, first.lock());
}

TEST_F(ArenaExpiryTest, ATensorThatComesBackGetsAPlaceAgain) {
  Rounds(1, {0, 1, 2});
  Rounds(2 * kArenaExpiry, {0});
  Rounds(1, {0, 1, 2});
  EXPECT_EQ(places_.size(), 1u) << "one round is over the network, so that they come together";
  Rounds(1, {0, 1, 2});
  EXPECT_EQ(places_.size(), 3u);
  EXPECT_EQ(places_[1].segment, places_[2].segment);
  // Also one that is small beside the rest, at the latest after as many rounds.
  arena_.Add(kArenaLane, 3, 20'000, 4);
  Rounds(1, {0, 1, 2, 3});
  EXPECT_EQ(places_.count(3), 0u);
  Rounds(kArenaExpiry, {0, 1, 2, 3});
  EXPECT_EQ(places_.count(3), 1u);
}

// The aggregator may still read the places of a round without a verdict.
TEST_F(ArenaExpiryTest, NothingExpiresBeforeTheNextVerdict) {
  Rounds(1, {0, 1, 2});
  const std::weak_ptr<Segment> first = places_[0].segment;
  Rounds(kArenaExpiry - 2, {0});
  places_.clear();
  Round(false);
  ASSERT_TRUE(arena_.TryBegin(kArenaLane));
  EXPECT_FALSE(first.expired());
  arena_.Free(kArenaLane, true);
  EXPECT_TRUE(first.expired());
}

}  // namespace
}  // namespace basin::client
