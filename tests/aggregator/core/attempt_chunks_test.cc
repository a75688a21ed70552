// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The chunks of an attempt alone: which are whole, which are reduced together, and the facts about
// them. The tests of attempts within rounds are in attempt_test.cc.

#include "aggregator/core/attempt.h"

#include <limits>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

bool AllAlike(TensorIndex, TensorIndex) { return true; }

// Tensor 0 has the chunks 0 to 2; tensors 1 and 2 have the chunks 3 and 4.
struct ThreeTensors : testing::Test {
  ThreeTensors() {
    layout.Append({"z", DType::kF32, {2 * kChunkBytes / 4 + 1}});
    layout.Append({"b", DType::kF32, {1}});
    layout.Append({"a", DType::kF32, {1}});
    attempt.Grow(layout);
  }
  void Queue(const std::vector<uint32_t>& chunks) {
    for (const uint32_t flat : chunks) attempt.Queue(flat);
  }
  ChunkRanges Next(uint64_t bytes = kNoLimit, uint32_t tensors = 8) const {
    return attempt.Next(layout, Shares(), bytes, tensors, AllAlike);
  }
  // Returns the reducer's report on `ranges`. The digest of a chunk is its squared norm too.
  static ReduceDone Done(ChunkRanges ranges, ChunkDigests digests) {
    ReduceDone done;
    for (const Digest digest : digests) {
      done.facts.squared_norms.push_back({static_cast<double>(digest), 0});
    }
    done.ranges = std::move(ranges);
    done.digests = std::move(digests);
    return done;
  }
  Layout layout;
  Attempt attempt;
};
using AttemptChunks = ThreeTensors;

TEST_F(AttemptChunks, OneIsWholeWhenAllHaveItWhoDoNotSkipItsTensor) {
  EXPECT_FALSE(attempt.IsWhole(1, 3, 2));
  attempt.Arrived(3);
  EXPECT_FALSE(attempt.IsWhole(1, 3, 2));
  attempt.Skipped(1);
  EXPECT_TRUE(attempt.IsWhole(1, 3, 2));
  EXPECT_EQ(attempt.Skips(1), 1u);
  attempt.NoLongerSkipped(1);
  attempt.Arrived(3);
  EXPECT_TRUE(attempt.IsWhole(1, 3, 2));
  attempt.Left(3);
  EXPECT_FALSE(attempt.IsWhole(1, 3, 2));
  attempt.Skipped(2);
  attempt.Skipped(2);
  EXPECT_FALSE(attempt.IsWhole(2, 4, 2)) << "no contributor pushes it";
  attempt.ClearArrived();
  attempt.Skipped(1);
  EXPECT_FALSE(attempt.IsWhole(1, 3, 2));
}

TEST_F(AttemptChunks, NeighboursAreReducedTogetherUpToTheBytesAndTensors) {
  Queue({0, 1, 2, 3, 4});
  EXPECT_THAT(Next(), ElementsAre(ChunkRange{0, 0, 3}, ChunkRange{1, 0, 1}, ChunkRange{2, 0, 1}));
  EXPECT_THAT(Next(kNoLimit, 2), ElementsAre(ChunkRange{0, 0, 3}, ChunkRange{1, 0, 1}));
  EXPECT_THAT(Next(2 * kChunkBytes), ElementsAre(ChunkRange{0, 0, 2}));
  EXPECT_THAT(Next(0), ElementsAre(ChunkRange{0, 0, 1})) << "at least one chunk";
  EXPECT_THAT(attempt.Next(layout, Shares(), kNoLimit, 8,
                           [](TensorIndex, TensorIndex other) { return other != 1; }),
              ElementsAre(ChunkRange{0, 0, 3}))
      << "tensor 1 has another divisor";
}

TEST_F(AttemptChunks, TensorsDoNotDescendAndHaveNoGap) {
  Queue({4, 3});
  EXPECT_THAT(Next(), ElementsAre(ChunkRange{1, 0, 1}, ChunkRange{2, 0, 1}));
  attempt.ClearQueue();
  Queue({0, 2});
  EXPECT_THAT(Next(), ElementsAre(ChunkRange{0, 0, 1}));
  attempt.ClearQueue();
  Queue({0, 3, 1});
  EXPECT_THAT(Next(), ElementsAre(ChunkRange{0, 0, 1}, ChunkRange{1, 0, 1}))
      << "the rest of tensor 0 comes later";
}

TEST_F(AttemptChunks, OneIsReducedOnce) {
  EXPECT_TRUE(attempt.idle());
  Queue({0, 3});
  EXPECT_TRUE(attempt.AnyReady());
  attempt.Start(2);
  EXPECT_FALSE(attempt.AnyReady());
  EXPECT_FALSE(attempt.idle()) << "they are being reduced";
  EXPECT_FALSE(attempt.IsOpen(0));
  EXPECT_FALSE(attempt.IsReduced(0));
  EXPECT_FALSE(attempt.Finish(layout, Done({{2, 0, 1}}, {9}))) << "the reducer does not have it";
  EXPECT_TRUE(attempt.Finish(layout, Done({{0, 0, 1}, {1, 0, 1}}, {5, 7})));
  EXPECT_TRUE(attempt.idle());
  EXPECT_TRUE(attempt.IsReduced(0));
  EXPECT_EQ(attempt.DigestOf(3), 7u);
  EXPECT_FALSE(attempt.Finish(layout, Done({{0, 0, 1}}, {5})));
  attempt.Arrived(0);
  EXPECT_FALSE(attempt.IsWhole(0, 0, 1)) << "it is reduced already";
}

TEST_F(AttemptChunks, TheNextAttemptDoesAllThatWasStartedAgain) {
  Queue({0, 1, 3});
  attempt.Start(2);
  ASSERT_TRUE(attempt.Finish(layout, Done({{0, 0, 1}}, {5})));
  EXPECT_THAT(attempt.Started(), ElementsAre(0, 1));
  attempt.StartAgain();
  EXPECT_THAT(attempt.Started(), IsEmpty());
  EXPECT_TRUE(attempt.idle());
  EXPECT_EQ(attempt.Facts(layout).squared_norm, 0) << "the norms belong to the old attempt";
}

TEST_F(AttemptChunks, WhatIsStoppedIsIdle) {
  Queue({0, 1});
  attempt.Start(1);
  attempt.Stop();
  EXPECT_TRUE(attempt.idle());
  EXPECT_FALSE(attempt.AnyReady());
}

TEST_F(AttemptChunks, TheFactsDoNotDependOnTheOrderOfTheReductions) {
  NonFinite early;
  early.tensor = 0;
  early.worker = "a";
  NonFinite late = early;
  late.tensor = 1;
  ReduceDone first = Done({{1, 0, 1}}, {16});
  first.facts.nonfinite = late;
  first.facts.overflow = true;
  ReduceDone second = Done({{0, 0, 3}}, {1, 2, 4});
  second.facts.nonfinite = early;
  Attempt other = attempt;
  for (Attempt* each : {&attempt, &other}) {
    for (const uint32_t flat : {0u, 1u, 2u, 3u}) each->Queue(flat);
    each->Start(4);
  }
  ASSERT_TRUE(attempt.Finish(layout, first));
  ASSERT_TRUE(attempt.Finish(layout, second));
  ASSERT_TRUE(other.Finish(layout, second));
  ASSERT_TRUE(other.Finish(layout, first));
  const RoundFacts facts = attempt.Facts(layout);
  EXPECT_EQ(facts, other.Facts(layout));
  EXPECT_TRUE(facts.overflow);
  EXPECT_EQ(facts.nonfinite, early);
  EXPECT_THAT(facts.tensor_squared_norms, ElementsAre(7, 16, 0));
  EXPECT_EQ(facts.squared_norm, 23);
}

TEST_F(AttemptChunks, ALayoutThatGrowsAddsOpenChunks) {
  Queue({0});
  attempt.Start(1);
  layout.Append({"late", DType::kF32, {1}});
  attempt.Grow(layout);
  EXPECT_EQ(attempt.chunks(), 6u);
  EXPECT_TRUE(attempt.IsOpen(5));
  EXPECT_FALSE(attempt.IsOpen(0));
  EXPECT_EQ(attempt.Skips(3), 0u);
}

}  // namespace
}  // namespace basin::aggregator
