// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/event_loop.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/await.h"

namespace basin {
namespace {

using Events = EventLoop<int>;

class EventLoopTest : public testing::Test {
 protected:
  // The loop's thread adds up what it takes.
  void Start() {
    events_.Start();
    thread_ = std::thread([this] {
      std::vector<int> taken;
      while (events_.AwaitWork([this] { return Deadline(); }, taken)) {
        EXPECT_TRUE(events_.Holds());
        if (taken.empty()) ++ticks_;
        if (taken.empty()) due_ = false;
        for (const int item : taken) sum_ = sum_ + item;
        taken.clear();
        events_.LetGo(false, Deadline());
      }
    });
  }
  absl::Time Deadline() const { return due_ ? absl::InfinitePast() : absl::InfiniteFuture(); }
  ~EventLoopTest() override { events_.Stop(thread_); }

  MonotonicClock clock_;
  Events events_{clock_};
  std::thread thread_;
  std::atomic<bool> due_{false};  // The deadline has passed; else there is none.
  std::atomic<int> ticks_{0};
  std::atomic<int> sum_{0};
};

TEST_F(EventLoopTest, WhatComesBeforeStartOrAfterStopIsDropped) {
  EXPECT_FALSE(events_.Post(1));
  Start();
  EXPECT_TRUE(events_.Post(2));
  Await([this] { return sum_ == 2; });
  events_.Stop(thread_);
  EXPECT_FALSE(events_.Post(4));
  int item = 8;
  EXPECT_EQ(events_.PostOrHold(item), Events::Posting::kStopped);
  EXPECT_EQ(sum_, 2);
}

TEST_F(EventLoopTest, AThreadHoldsAnIdleLoopAndOthersPost) {
  Start();
  int item = 1;
  Await([&] { return events_.PostOrHold(item, true) == Events::Posting::kHeld; });
  EXPECT_TRUE(events_.Holds());
  EXPECT_TRUE(events_.HoldsAlone());
  EXPECT_FALSE(events_.arrived());
  std::thread([this] {
    int other = 2;
    EXPECT_EQ(events_.PostOrHold(other), Events::Posting::kPosted);
    EXPECT_FALSE(events_.Holds());
  }).join();
  EXPECT_TRUE(events_.arrived());
  int first = 0;
  events_.Peek([&first](const int& posted) { first = posted; });
  EXPECT_EQ(first, 2);
  // The loop's thread takes what this one leaves.
  events_.LetGo(false, absl::InfiniteFuture());
  Await([this] { return sum_ == 2; });
}

TEST_F(EventLoopTest, NobodyHoldsTheLoopWhileSomethingIsLeft) {
  events_.Start();  // Without the loop's thread.
  int item = 1;
  ASSERT_EQ(events_.PostOrHold(item), Events::Posting::kHeld);
  events_.LetGo(true, absl::InfiniteFuture());
  EXPECT_EQ(events_.PostOrHold(item), Events::Posting::kPosted);
  EXPECT_EQ(events_.Stop(thread_), std::vector<int>{1});
}

TEST_F(EventLoopTest, ADeadlineThatTheHolderMovesForwardWakesTheLoop) {
  Start();
  int item = 1;
  Await([&] { return events_.PostOrHold(item) == Events::Posting::kHeld; });
  due_ = true;
  events_.LetGo(false, Deadline());
  Await([this] { return ticks_ == 1; });
}

TEST_F(EventLoopTest, AFullLoopMakesPostersWait) {
  events_.Start();
  ASSERT_TRUE(events_.Post(1, 1));
  std::thread waits([this] { EXPECT_TRUE(events_.Post(2, 1)); });
  std::vector<int> taken;
  Await([&] {
    events_.Take(taken);
    return taken.size() == 2;
  });
  waits.join();
  EXPECT_EQ(taken, (std::vector<int>{1, 2}));
}

TEST_F(EventLoopTest, NothingIsLostOrHandledByTwoThreadsAtOnce) {
  Start();
  constexpr int kThreads = 4, kEach = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < kEach; ++i) {
        int item = 1;
        if (events_.PostOrHold(item) != Events::Posting::kHeld) continue;
        sum_ = sum_ + item;  // Not atomic, so that a second thread would be seen.
        events_.LetGo(false, absl::InfiniteFuture());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Await([this] { return sum_ == kThreads * kEach; });
}

}  // namespace
}  // namespace basin
