// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The halves of a lane's result memory: which round gets which, and when a reader detects a change.

#include "aggregator/engine/result_arena.h"

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulated_device.h"
#include "tests/runtime/shared_memory/emulated_opener.h"

namespace basin::aggregator {
namespace {

std::shared_ptr<ResultArena> Arena() {
  auto arena = ResultArena::Create(
      PlacesOf({{"a", DType::kF32, {100'000}}, {"b", DType::kU8, {3}}, {"c", DType::kF64, {2}}}));
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

// A session whose worker has mapped a mirror.
class Reader {
 public:
  explicit Reader(Mirror& mirror) {
    std::array<int, 2> sockets;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()), 0);
    session = std::make_shared<Segments>(sockets[0]);
    worker_ = std::make_unique<Segments>(sockets[1], uint64_t{1} << 30, &opener_);
    mirror.ReferTo(session);
    EXPECT_TRUE(worker_->Receive().ok());
    EXPECT_TRUE(session->Receive().ok());
  }
  void Release(uint64_t references) {
    EXPECT_TRUE(worker_->Send({SegmentMessage::Kind::kReleased, 1, references}).ok());
    EXPECT_TRUE(session->Receive().ok());
  }

  std::shared_ptr<Segments> session;

 private:
  EmulatedOpener opener_;
  std::unique_ptr<Segments> worker_;
};

TEST(ResultArena, AMirrorThatIsStillReadIsNotWrittenAgain) {
  const auto device =
      kernels::cuda::MakeEmulatedDevice(std::make_shared<kernels::cuda::FaultPlan>());
  const auto arena = Arena();
  const auto make = [&] {
    return std::make_shared<Mirror>(device->AllocateShared(arena->mirror_bytes()).value());
  };
  EXPECT_EQ(arena->Take(1)->mirror(), nullptr);
  for (int half = 0; half < 2; ++half) {
    EXPECT_TRUE(arena->LacksMirror());
    arena->AddMirror(make());
  }
  EXPECT_FALSE(arena->LacksMirror());
  const auto first = arena->Take(2)->mirror();
  const auto second = arena->Take(3)->mirror();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second);

  // One that is released in time stays.
  Reader reader(*first);
  EXPECT_NE(first->ReferTo(reader.session), 0u);
  reader.Release(1);
  EXPECT_EQ(arena->Take(4)->mirror(), first);

  EXPECT_NE(first->ReferTo(reader.session), 0u);
  EXPECT_EQ(arena->Take(5)->mirror(), second);
  EXPECT_FALSE(arena->LacksMirror());
  EXPECT_EQ(arena->Take(6)->mirror(), nullptr) << "the reader has one reference of two";
  EXPECT_TRUE(arena->LacksMirror());
  const auto third = make();
  arena->AddMirror(third);
  EXPECT_EQ(arena->Take(7)->mirror(), second);
  EXPECT_EQ(arena->Take(8)->mirror(), third);
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
