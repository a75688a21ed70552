// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls without a name: which lane the next one takes, and as which tensors its arrays travel.

#include "client/core/unnamed.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace basin::client {
namespace {

// The lanes of a worker that may make unnamed calls.
struct Ring {
  Ring() {
    for (uint32_t place = 0; place < kUnnamedLanes; ++place) {
      Lane& lane = lanes.emplace_back(place, UnnamedLane(place), LaneKind::kCall);
      lane.Start(1, 0);
      lane.index = place;
    }
  }
  std::optional<uint32_t> Next() const {
    std::vector<const Lane*> each;
    for (const Lane& lane : lanes) each.push_back(&lane);
    return NextPlace(each);
  }
  // The trainer begins the next call; returns its place.
  uint32_t Begin() {
    const uint32_t place = *Next();
    lanes[place].round.emplace(lanes[place].next(), BeginRound{}, false);
    return place;
  }
  // The call in flight at this place has its verdict.
  void End(uint32_t place) {
    lanes[place].last_verdict = lanes[place].round->number();
    lanes[place].round.reset();
  }
  std::vector<Lane> lanes;
};

TEST(UnnamedTest, CallsTakeThePlacesInTurns) {
  Ring ring;
  for (uint32_t call = 0; call < 3 * kUnnamedLanes; ++call) {
    const uint32_t place = ring.Begin();
    EXPECT_EQ(place, call % kUnnamedLanes);
    ring.End(place);
  }
}

TEST(UnnamedTest, TheOrderInWhichCallsEndDoesNotMatter) {
  Ring ring;
  for (uint32_t call = 0; call < kUnnamedLanes; ++call) EXPECT_EQ(ring.Begin(), call);
  for (uint32_t place = kUnnamedLanes; place > 0; --place) ring.End(place - 1);
  EXPECT_EQ(ring.Begin(), 0u);
  EXPECT_EQ(ring.Begin(), 1u);
  ring.End(1);
  EXPECT_EQ(ring.Begin(), 2u) << "the call of place 0 is still in flight";
}

// What the trainer has not taken is the outcome of its next call.
TEST(UnnamedTest, AVerdictThatCameBeforeTheCallIsThatOfTheCall) {
  Ring ring;
  ring.lanes[0].last_verdict = 1;
  ring.lanes[0].undelivered.emplace().round = 1;
  EXPECT_EQ(ring.Next(), 0u);
}

TEST(UnnamedTest, AJoinerGoesOnWithTheCallThatTheOthersHaveNotMade) {
  Ring ring;
  for (uint32_t place = 0; place < kUnnamedLanes; ++place) {
    ring.lanes[place].Start(place < 5 ? 8 : 7, 0);  // The others have made 6 calls of each, and 5.
  }
  EXPECT_EQ(ring.Next(), 5u);
  ring.lanes[5].last_verdict = 7;  // Made without it: it was waiting elsewhere.
  EXPECT_EQ(ring.Next(), 6u);
}

TEST(UnnamedTest, AJoinerSkipsACallThatEndedBeforeAnEarlierOne) {
  Ring ring;
  ring.lanes[0].Start(1, 0);  // In flight when it joined.
  ring.lanes[1].Start(2, 0);
  EXPECT_EQ(ring.Begin(), 0u);
  EXPECT_EQ(ring.Begin(), 2u);
}

TEST(UnnamedTest, TheNextPlaceIsUnknownUntilEveryLaneIsLaidOut) {
  Ring ring;
  ring.lanes[7].index.reset();
  EXPECT_EQ(ring.Next(), std::nullopt);
  ring.lanes[7].index = 7;
  ring.lanes[9].started = false;
  EXPECT_EQ(ring.Next(), std::nullopt);
  ring.lanes[9].started = true;
  EXPECT_EQ(ring.Next(), 0u);
}

TEST(UnnamedTest, PartsAreTheWholeOfEachArray) {
  for (const uint64_t elements : {0u, 1u, 2u, 3u, 1000u, 65535u, 65536u, 1000003u}) {
    const std::vector<TensorSpec> arrays = {
        {"", DType::kF32, {elements}}, {"", DType::kI64, {2, 3}}, {"", DType::kF32, {elements}}};
    std::vector<uint64_t> done(arrays.size());
    std::set<std::string> names;
    for (const CallPart& part : PartsOf(arrays)) {
      EXPECT_EQ(part.offset, done[part.array]);
      done[part.array] += part.bytes;
      EXPECT_EQ(part.bytes, TensorBytes(part.spec));
      EXPECT_EQ(part.spec.dtype, arrays[part.array].dtype);
      EXPECT_TRUE(names.insert(part.spec.name).second) << part.spec.name;
    }
    EXPECT_EQ(done, (std::vector<uint64_t>{4 * elements, 48, 4 * elements}));
  }
}

TEST(UnnamedTest, ThousandsOfShapesNeedFewTensors) {
  std::set<std::string> names;
  for (uint64_t elements = 0; elements < 10000; ++elements) {
    const std::vector<CallPart> parts = PartsOf({{"", DType::kF32, {elements}}});
    EXPECT_LE(parts.size(), kMostParts);
    for (const CallPart& part : parts) names.insert(part.spec.name);
  }
  EXPECT_EQ(names.size(), 14u);
}

TEST(UnnamedTest, AScalarHasOnePart) {
  const std::vector<CallPart> parts = PartsOf({{"", DType::kU8, {}}});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].spec, FirstUnnamedTensor());
}

TEST(UnnamedTest, ACallIsDescribedByOpDTypesAndShapes) {
  EXPECT_EQ(DescribeCall(ReduceOp::kSum, {{"", DType::kF32, {2, 3}}, {"", DType::kI64, {}}}),
            "SUM of f32[2,3], i64[]");
  EXPECT_EQ(DescribeCall(ReduceOp::kMax, {}), "MAX of nothing");
}

TEST(UnnamedTest, ALongDescriptionDiffersInEachArray) {
  const std::vector<TensorSpec> many(1000, {"", DType::kF32, {2, 3}});
  std::vector<TensorSpec> other = many;
  other.back().shape = {3, 2};
  const std::string text = DescribeCall(ReduceOp::kSum, many);
  EXPECT_LT(text.size(), 400u);
  EXPECT_NE(text, DescribeCall(ReduceOp::kSum, other));
  EXPECT_NE(HashOfCall(text), HashOfCall(DescribeCall(ReduceOp::kSum, other)));
}

}  // namespace
}  // namespace basin::client
