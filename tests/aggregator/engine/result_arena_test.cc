// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The halves of a lane's result memory: which round gets which, and when a reader detects a change.

#include "aggregator/engine/result_arena.h"

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/time/time.h"
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
    mirror.ReferTo(session, 1);
    EXPECT_TRUE(worker_->Receive().ok());
    EXPECT_TRUE(session->Receive().ok());
  }
  // Answers what was reclaimed.
  void Release() {
    EXPECT_TRUE(worker_->Receive().ok());
    EXPECT_TRUE(session->Receive().ok());
  }
  void Die() {
    worker_.reset();
    EXPECT_FALSE(session->Receive().ok());
  }

  std::shared_ptr<Segments> session;

 private:
  EmulatedOpener opener_;
  std::unique_ptr<Segments> worker_;
};

// An arena, and what makes mirrors for it.
class MirroredArena : public testing::Test {
 protected:
  // Takes the half of the next round; it gets this mirror, and another is asked for or not.
  void ExpectNext(const std::shared_ptr<Mirror>& mirror, bool requested) {
    half_.reset();
    half_ = arena_->Take(++round_);
    ASSERT_NE(half_, nullptr);
    EXPECT_EQ(half_->mirror(), mirror) << round_;
    EXPECT_EQ(arena_->RequestMirror(now_), requested) << round_;
    EXPECT_FALSE(arena_->RequestMirror(now_)) << "once is enough";
  }
  std::shared_ptr<Mirror> Add() {
    auto mirror = std::make_shared<Mirror>(device_->AllocateShared(arena_->mirror_bytes()).value());
    arena_->AddMirror(mirror, now_);
    return mirror;
  }

  absl::Time now_ = absl::UnixEpoch();
  uint64_t round_ = 0;
  const std::shared_ptr<ResultArena> arena_ = Arena();
  std::shared_ptr<ResultHalf> half_;
  const std::unique_ptr<kernels::cuda::Device> device_ =
      kernels::cuda::MakeEmulatedDevice(std::make_shared<kernels::cuda::FaultPlan>());
};

TEST_F(MirroredArena, OneThatNobodyReadsIsUsedAgain) {
  ExpectNext(nullptr, true);
  const auto first = Add();
  for (int round = 0; round < 4; ++round) ExpectNext(first, false);
  EXPECT_EQ(arena_->mirrored_bytes(), arena_->mirror_bytes());
}

TEST_F(MirroredArena, OneThatIsStillReadIsNotWritten) {
  ExpectNext(nullptr, true);
  const auto first = Add();
  ExpectNext(first, false);
  Reader reader(*first);
  EXPECT_NE(first->ReferTo(reader.session, half_->version()), 0u);
  ExpectNext(nullptr, true);
  const auto second = Add();
  ExpectNext(second, false);
  // What was released in time is used again.
  reader.Release();
  ExpectNext(first, false);
}

TEST_F(MirroredArena, AHalfThatIsHeldKeepsItsMirror) {
  ExpectNext(nullptr, true);
  const auto first = Add();
  ExpectNext(first, false);
  const auto held = half_;
  ExpectNext(nullptr, true);
}

TEST_F(MirroredArena, LateReadersDoNotTakeTheMemoryOfTheDevice) {
  std::vector<std::unique_ptr<Reader>> readers;
  for (size_t i = 0; i < kMostMirrors; ++i) {
    ExpectNext(nullptr, true);
    const auto mirror = Add();
    ExpectNext(mirror, false);
    readers.push_back(std::make_unique<Reader>(*mirror));
    EXPECT_NE(mirror->ReferTo(readers.back()->session, half_->version()), 0u);
  }
  for (int round = 0; round < 3; ++round) ExpectNext(nullptr, false);
  EXPECT_EQ(arena_->mirrored_bytes(), kMostMirrors * arena_->mirror_bytes());
  // What they read is lost with them, and makes room for others.
  readers[1]->Die();
  ExpectNext(nullptr, true);
  EXPECT_EQ(arena_->mirrored_bytes(), (kMostMirrors - 1) * arena_->mirror_bytes());
}

TEST_F(MirroredArena, MemoryThatWasRefusedIsAskedForLater) {
  ExpectNext(nullptr, true);
  arena_->AddMirror(nullptr, now_);
  ExpectNext(nullptr, false);
  now_ += absl::Minutes(1);
  ExpectNext(nullptr, true);
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
