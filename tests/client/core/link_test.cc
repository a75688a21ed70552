// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A sender that follows a link of a given rate and delay, in simulated time.

#include "client/core/link.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "protocol/tensor.h"

namespace basin::client {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint32_t kMost = 4;  // Chunks.

// A cable: it carries one byte after the other, at its rate, but `bucket` bytes at once after a
// time in which it was idle. The answer comes a delay after the last byte.
struct Cable {
  double rate;  // Bytes per second.
  absl::Duration delay;
  uint64_t bucket = 0;
  absl::Time free = absl::UnixEpoch();

  absl::Time AnswerTo(uint64_t bytes, absl::Time now) {
    const absl::Duration allowance = absl::Seconds(static_cast<double>(bucket) / rate);
    free = std::max(free, now - allowance) + absl::Seconds(static_cast<double>(bytes) / rate);
    return std::max(free, now) + delay;
  }
};

class Sender {
 public:
  explicit Sender(Cable cable) : cable_(cable) {}

  // Sends so many bytes; returns the time that they needed, over that of the bare cable.
  double Round(uint64_t bytes) {
    const absl::Time began = now_;
    uint64_t left = bytes;
    std::vector<uint32_t> frames;
    most_in_flight_ = 0;
    while (left > 0 || !flights_.empty()) {
      while (left > 0) {
        const uint64_t frame = std::min<uint64_t>(left, link_.FrameChunks(kMost) * kChunkBytes);
        if (!link_.MaySend(frame, in_flight_, kMost)) break;
        link_.Sent(frame, in_flight_, now_);
        in_flight_ += frame;
        left -= frame;
        most_in_flight_ = std::max(most_in_flight_, in_flight_);
        flights_.push_back({frame, cable_.AnswerTo(frame, now_)});
      }
      const Flight first = flights_.front();
      flights_.pop_front();
      now_ = first.answered;
      in_flight_ -= first.bytes;
      link_.Acknowledged(first.bytes, now_);
    }
    const double took = absl::ToDoubleSeconds(now_ - began - cable_.delay);
    now_ += absl::Milliseconds(50);  // The trainer computes.
    return took * cable_.rate / static_cast<double>(bytes);
  }

  Cable& cable() { return cable_; }
  const Link& link() const { return link_; }
  uint64_t most_in_flight() const { return most_in_flight_; }

 private:
  struct Flight {
    uint64_t bytes;
    absl::Time answered;
  };
  Cable cable_;
  Link link_;
  std::deque<Flight> flights_;
  uint64_t in_flight_ = 0;
  uint64_t most_in_flight_ = 0;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

constexpr double Mbit(double rate) { return rate * 1e6 / 8; }

TEST(LinkTest, BeginsSmall) {
  const Link link;
  EXPECT_EQ(link.FrameChunks(kMost), 1u);
  EXPECT_EQ(link.Window(kMost), 2 * kChunkBytes);
  EXPECT_TRUE(link.NeedsOneStream(kMost));
}

TEST(LinkTest, ASlowLinkGetsSmallFramesAndAShortQueue) {
  for (const uint64_t bucket : {uint64_t{0}, kChunkBytes}) {
    Sender sender({Mbit(200), absl::Microseconds(200), bucket});
    for (int round = 0; round < 20; ++round) {
      EXPECT_LT(sender.Round(16 * kMiB), 1.02) << round;
      EXPECT_EQ(sender.link().FrameChunks(kMost), 1u) << round;
      EXPECT_LE(sender.most_in_flight(), 3 * kChunkBytes) << round;
      EXPECT_TRUE(sender.link().NeedsOneStream(kMost));
    }
  }
}

TEST(LinkTest, AFastLinkGetsLargeFramesAtOnce) {
  Sender sender({Mbit(40000), absl::Microseconds(300)});
  sender.Round(16 * kMiB);
  for (int round = 0; round < 20; ++round) {
    EXPECT_LT(sender.Round(64 * kMiB), 1.1) << round;
    EXPECT_EQ(sender.link().FrameChunks(kMost), kMost);
    EXPECT_FALSE(sender.link().NeedsOneStream(kMost));
  }
}

// The window must become that of the link, 7.5 MB, and stay there.
TEST(LinkTest, ALongLinkIsFilled) {
  for (const uint64_t bucket : {uint64_t{0}, kChunkBytes}) {
    Sender sender({Mbit(1000), absl::Milliseconds(60), bucket});
    sender.Round(64 * kMiB);
    for (int round = 0; round < 40; ++round) {
      EXPECT_LT(sender.Round(64 * kMiB), 1.05) << round;
      EXPECT_GE(sender.link().FrameChunks(kMost), 3u) << round;
      EXPECT_LT(sender.most_in_flight(), 3 * 7500000u) << round;
    }
  }
}

TEST(LinkTest, FollowsALinkThatChanges) {
  Sender sender({Mbit(200), absl::Microseconds(200)});
  sender.Round(16 * kMiB);
  sender.cable().rate = Mbit(4000);
  sender.Round(16 * kMiB);
  EXPECT_LT(sender.Round(16 * kMiB), 1.1);
  EXPECT_EQ(sender.link().FrameChunks(kMost), kMost);
  sender.cable().rate = Mbit(200);
  sender.Round(16 * kMiB);
  EXPECT_LT(sender.Round(16 * kMiB), 1.02);
  EXPECT_EQ(sender.link().FrameChunks(kMost), 1u);
  EXPECT_LE(sender.most_in_flight(), 3 * kChunkBytes);
}

// Rounds of one small frame tell nothing about the rate, and must not be taken for it.
TEST(LinkTest, SmallRoundsBetweenLargeOnesChangeLittle) {
  Sender sender({Mbit(1000), absl::Milliseconds(20)});
  for (int round = 0; round < 6; ++round) sender.Round(64 * kMiB);
  for (int round = 0; round < 100; ++round) sender.Round(1000);
  EXPECT_LT(sender.Round(64 * kMiB), 1.05);
}

}  // namespace
}  // namespace basin::client
