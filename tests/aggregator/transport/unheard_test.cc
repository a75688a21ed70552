// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What looks at the connections show of the sessions, and when the kernel is made to probe. That
// kernels do so is tested with real ones (tests/integration/test_partitions.py).

#include "aggregator/transport/unheard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "aggregator/transport/kernel_view.h"
#include "tests/aggregator/transport/connection.h"
#include "tests/runtime/await.h"

namespace basin::aggregator {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

struct One {
  SessionId session = 0;
  int unheard = 0;  // Milliseconds.
  uint32_t packets = 0;
  int descriptor = 0;
  uint32_t probes = 0;
  int round_trip = 0;  // Milliseconds.
};

class UnheardTest : public testing::Test {
 protected:
  std::vector<UnheardSession> Look(const std::vector<One>& connections,
                                   milliseconds later = milliseconds(50)) {
    now_ += later;
    probed_.clear();
    unheard_.Begin(now_);
    for (const One& one : connections) {
      KernelView view;
      view.unheard = milliseconds(one.unheard);
      view.packets = one.packets;
      view.probes = one.probes;
      view.round_trip = milliseconds(one.round_trip);
      unheard_.Add(one.session, view, one.descriptor);
    }
    return unheard_.End();
  }
  // Looks often enough for all that is seen after it to count.
  void WakeUp() {
    for (int i = 0; i < 100; ++i) Look({});
  }

  std::vector<int> probed_;  // At the last look.

 private:
  Unheard unheard_{[this](int descriptor) { probed_.push_back(descriptor); }};
  Unheard::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(UnheardTest, TheConnectionHeardLastCounts) {
  WakeUp();
  EXPECT_THAT(Look({{1, 4000, 9, 11}, {1, 400, 0, 12}}), IsEmpty());
  EXPECT_THAT(probed_, IsEmpty()) << "a data stream may rest for hours";
  const auto seen = Look({{1, 5100, 9, 11}, {1, 1500, 0, 12}, {2, 100, 0, 13}});
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].session, 1u);
  EXPECT_EQ(seen[0].unheard, absl::Milliseconds(1500));
  EXPECT_THAT(probed_, ElementsAre(11, 12));
}

TEST_F(UnheardTest, PacketsCountSinceAnyConnectionWasHeard) {
  WakeUp();
  const uint32_t most = ~uint32_t{0};
  Look({{1, 20, 100, 11}, {1, 3000, most, 12}});
  Look({{1, 70, 103, 11}, {1, 3050, most, 12}});
  auto seen = Look({{1, 1120, 105, 11}, {1, 4100, most, 12}});
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].unanswered, 2u);
  seen = Look({{1, 1170, 106, 11}, {1, 4150, most + 2, 12}});
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].unanswered, 5u);
  // An answer between two looks, and a silence of the looks after it.
  seen = Look({{1, 5300, 108, 11}, {1, 1010, most + 9, 12}});
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].unanswered, 0u);
}

TEST_F(UnheardTest, AConnectionThatEndsTakesItsPacketsAlong) {
  WakeUp();
  Look({{1, 1900, 50, 11}, {1, 1900, 70, 12}});
  auto seen = Look({{1, 1950, 60, 11}});
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].unanswered, 0u);
  seen = Look({{1, 2000, 63, 11}});
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].unanswered, 3u);
}

TEST_F(UnheardTest, AnAnswerMayBeOnItsWay) {
  WakeUp();
  EXPECT_THAT(Look({{1, 1390, 0, 11, 0, 200}}), IsEmpty());
  const auto seen = Look({{1, 1900, 0, 11, 0, 200}});
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].unheard, absl::Milliseconds(1500));
}

TEST_F(UnheardTest, ProbesAreSentAtEachLookUntilThereAreMany) {
  WakeUp();
  Look({{1, 999, 0, 11, 0}});
  EXPECT_THAT(probed_, IsEmpty());
  for (uint32_t probes : {0u, 1u, 2u}) {
    Look({{1, 1000, probes, 11, probes}});
    EXPECT_THAT(probed_, ElementsAre(11));
  }
  // The kernel would end the connection.
  Look({{1, 6000, 64, 11, 64}});
  EXPECT_THAT(probed_, IsEmpty());
}

TEST_F(UnheardTest, Fault_A4_WhatThisMachineHasSleptThroughDoesNotCount) {
  WakeUp();
  EXPECT_THAT(Look({{1, 31000, 20, 11}}, milliseconds(30000)), IsEmpty());
  EXPECT_THAT(probed_, ElementsAre(11)) << "it is asked at once";
  for (int i = 0; i < 19; ++i) EXPECT_THAT(Look({{1, 31050, 20, 11}}), IsEmpty());
  const auto seen = Look({{1, 32000, 40, 11}});
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].unheard, absl::Seconds(1)) << "since it woke";
}

// The process at the other end does nothing, but its kernel answers the probes.
TEST(KernelViewTest, Fault_W4_TheKernelOfAStoppedProcessIsHeard) {
  Connection stopped("127.0.0.1", Connection::Reader::kLate);
  ProbeWhenIdle(stopped.descriptor());
  const auto unheard = [&] { return KernelViewOf(stopped.descriptor()).unheard; };
  Await([&] { return unheard() >= milliseconds(900); });
  // This one hears at least once a second.
  Await([&] { return unheard() < milliseconds(500); });
  EXPECT_EQ(KernelViewOf(stopped.descriptor()).probes, 0u);
  EXPECT_FALSE(KernelViewOf(stopped.descriptor()).ended);
}

}  // namespace
}  // namespace basin::aggregator
