// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The halves of a lane's result memory: which round gets which, and when a reader detects a change.

#include "aggregator/engine/result_arena.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "tests/aggregator/engine/in_process.h"

namespace basin::aggregator {
namespace {

std::shared_ptr<ResultArena> Arena() {
  auto arena = ResultArena::Create(
      PlacesOf({{"a", DType::kF32, {100'000}}, {"b", DType::kU8, {3}}, {"c", DType::kF64, {2}}}),
      {});
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *arena;
}

TEST(ResultArena, ChunksHaveTheirPlaces) {
  const auto half = Arena()->Take(1);
  ASSERT_NE(half, nullptr);
  EXPECT_EQ(half->PlaceOf(0, 0), Segment::kVersionBytes);
  EXPECT_EQ(half->PlaceOf(0, 1), Segment::kVersionBytes + kChunkBytes);
  EXPECT_EQ(half->PlaceOf(1, 0), Segment::kVersionBytes + 400'000);
  EXPECT_EQ(half->PlaceOf(2, 0) % sizeof(double), 0u);
  EXPECT_EQ(half->PlaceOf(2, 0) + 16, half->size());
  EXPECT_TRUE(half->Has(2));
  EXPECT_FALSE(half->Has(3)) << "it was added to the lane later";
}

TEST(ResultArena, ATensorWithoutAPlaceTakesNoMemory) {
  ResultPlaces places;
  places.AddNone();
  places.Add({"b", DType::kU8, {3}});
  EXPECT_EQ(places.end, Segment::kVersionBytes + 3);
  const auto arena = *ResultArena::Create(places, {});
  EXPECT_FALSE(arena->Has(0));
  EXPECT_TRUE(arena->Take(1)->Has(1));
}

TEST(ResultArena, ItsMemoryIsCountedOnceFromTheRequestUntilNothingHoldsIt) {
  const Gauge gauge = NewGauge();
  const ResultPlaces places = PlacesOf({{"a", DType::kF32, {1000}}});
  const uint64_t bytes = 2 * places.end;
  ResultArena::Charges charges = ResultArena::ChargesFor(places, gauge);
  EXPECT_EQ(*gauge, bytes) << "it is being made";
  auto arena = *ResultArena::Create(places, std::move(charges));
  EXPECT_EQ(*gauge, bytes);
  auto half = arena->Take(1);
  arena.reset();
  EXPECT_EQ(*gauge, bytes / 2) << "a result is still held";
  half.reset();
  EXPECT_EQ(*gauge, 0u);
}

TEST(ResultArena, RoundsTakeTurns) {
  const auto arena = Arena();
  const char* last = nullptr;
  for (uint64_t round = 1; round < 6; ++round) {
    const auto half = arena->Take(round);
    ASSERT_NE(half, nullptr) << round;
    EXPECT_NE(half->data(), last) << round;
    last = half->data();
  }
  // After a round without results too.
  EXPECT_NE(arena->Take(9)->data(), last);
}

TEST(ResultArena, AHalfThatSomebodyHoldsIsNotUsedAgain) {
  const auto arena = Arena();
  auto first = arena->Take(1);
  auto second = arena->Take(2);
  EXPECT_EQ(arena->Take(3), nullptr);
  second.reset();
  EXPECT_EQ(arena->Take(3), nullptr) << "it would be the half of the round before";
  first.reset();
  EXPECT_NE(arena->Take(3), nullptr);
}

TEST(ResultArena, AnotherAttemptHasTheHalfOfItsRound) {
  const auto arena = Arena();
  auto before = arena->Take(1);
  const char* data = before->data();
  auto attempt = arena->Take(2);
  EXPECT_EQ(arena->Take(2), nullptr) << "a reduction of the former attempt still writes to it";
  attempt.reset();
  attempt = arena->Take(2);
  ASSERT_NE(attempt, nullptr);
  EXPECT_NE(attempt->data(), data);
}

TEST(ResultArena, AReaderSeesThatAHalfWasUsedAgain) {
  const auto arena = Arena();
  auto half = arena->Take(1);
  const auto mapped = *Segment::Open(half->segment()->descriptor(), half->size());
  const SharedPayload payload(mapped, {mapped->data() + 64, 8}, half->version());
  EXPECT_TRUE(payload.intact());
  arena->Take(2);
  EXPECT_TRUE(payload.intact());
  half.reset();
  arena->Take(3);
  EXPECT_FALSE(payload.intact());
}

}  // namespace
}  // namespace basin::aggregator
