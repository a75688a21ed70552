// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How much the connection of a worker may bring beside messages.

#include "aggregator/transport/overhead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "aggregator/transport/kernel_view.h"
#include "runtime/mutex.h"
#include "tests/aggregator/transport/connection.h"
#include "tests/runtime/await.h"

namespace basin::aggregator {
namespace {

using testing::HasSubstr;

constexpr uint64_t kWindow = uint64_t{1} << 20;

class OverheadTest : public testing::Test {
 protected:
  // The connection of a worker with one call.
  std::shared_ptr<OverheadGuard::Traffic> Watch(const Connection& connection) {
    guard_.Add(connection.descriptor(), connection.peer());
    return guard_.Introduced(connection.peer());
  }
  std::string AwaitViolation() {
    MutexLock lock(mutex_);
    while (violation_.empty()) changed_.Wait(mutex_);
    return violation_;
  }
  bool noticed() {
    MutexLock lock(mutex_);
    return !violation_.empty();
  }

  Mutex mutex_;
  Condition changed_;
  std::string violation_;
  OverheadGuard guard_{kWindow, 2, [this](const std::string& address, const std::string& what) {
                         EXPECT_EQ(address, "127.0.0.1");
                         MutexLock lock(mutex_);
                         violation_ = what;
                         changed_.NotifyAll();
                       }};
};

// A connection beside it that floods shows that it was looked at, many times.
TEST_F(OverheadTest, MessagesAreNoOverhead) {
  Connection worker;
  const auto traffic = Watch(worker);
  ASSERT_NE(traffic, nullptr);
  Connection flood;
  Watch(flood);
  for (uint64_t i = 1; i <= 64; ++i) {
    ASSERT_TRUE(worker.Send(kWindow / 2));
    Await([&] { return KernelViewOf(worker.descriptor()).received == i * kWindow / 2; });
    ++traffic->messages;
    traffic->bytes += kWindow / 2;
  }
  while (flood.Send(kWindow / 4)) {
  }
  EXPECT_THAT(AwaitViolation(), HasSubstr("bytes that belong to no message"));
  EXPECT_TRUE(worker.IsOpen());
}

TEST_F(OverheadTest, Fault_N12_WhatIsOnItsWayIsBoundedByTheWindow) {
  Connection worker;
  Watch(worker);
  ASSERT_TRUE(worker.Send(kWindow));
  Connection flood;
  Watch(flood);
  while (flood.Send(kWindow / 4)) {
  }
  AwaitViolation();
  EXPECT_FALSE(flood.IsOpen());
  EXPECT_TRUE(worker.IsOpen());
}

// The peer learns of the end a while later.
TEST_F(OverheadTest, Fault_N12_ACallThatIsOverHasMessagesOnTheirWay) {
  Connection worker;
  ++Watch(worker)->ended;
  ASSERT_TRUE(worker.Send(kWindow));
  Connection flood;
  ++Watch(flood)->ended;
  while (flood.Send(kWindow / 4)) {
  }
  AwaitViolation();
  EXPECT_FALSE(flood.IsOpen());
  EXPECT_TRUE(worker.IsOpen());
}

TEST_F(OverheadTest, Fault_N12_ManyCallsAtOnceAreAFlood) {
  Connection worker;
  Watch(worker);
  while (!noticed()) guard_.Began(worker.peer());
  EXPECT_THAT(AwaitViolation(), HasSubstr("calls at once"));
  EXPECT_FALSE(worker.IsOpen());
}

TEST_F(OverheadTest, NoMoreAreWatchedThanMayBe) {
  Connection first;
  Connection second;
  Connection third;
  EXPECT_NE(Watch(first), nullptr);
  EXPECT_NE(Watch(second), nullptr);
  EXPECT_EQ(Watch(third), nullptr);
  guard_.Began(third.peer());
  guard_.Forget(first.peer());
  EXPECT_NE(Watch(third), nullptr);
}

}  // namespace
}  // namespace basin::aggregator
