// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How much a connection may send before its first valid message.

#include "aggregator/transport/newcomers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/mutex.h"
#include "tests/aggregator/transport/connection.h"

namespace basin::aggregator {
namespace {

using testing::Each;
using testing::HasSubstr;

class NewcomersTest : public testing::Test {
 protected:
  std::string AwaitViolation() {
    MutexLock lock(mutex_);
    while (violation_.empty()) changed_.Wait(mutex_);
    return violation_;
  }

  Mutex mutex_;
  Condition changed_;
  std::string violation_;
  Newcomers newcomers_{10,
                       [this](const std::string& address, const std::string& what, bool flooded) {
                         EXPECT_EQ(address, "127.0.0.1");
                         EXPECT_TRUE(flooded);
                         MutexLock lock(mutex_);
                         violation_ = what;
                         changed_.NotifyAll();
                       },
                       [](const std::string&) {}};
};

// Newcomers of which one address may have few.
struct Crowded {
  explicit Crowded(size_t most)
      : newcomers(
            most,
            [this](const std::string& address, const std::string& what, bool flooded) {
              EXPECT_FALSE(flooded);
              MutexLock lock(mutex);
              addresses.push_back(address);
              violations.push_back(what);
              changed.NotifyAll();
            },
            [](const std::string&) {}) {}
  void AwaitViolations(size_t count) {
    MutexLock lock(mutex);
    while (violations.size() < count) changed.Wait(mutex);
    EXPECT_EQ(violations.size(), count);
  }

  Mutex mutex;
  Condition changed;
  std::vector<std::string> violations;
  std::vector<std::string> addresses;
  Newcomers newcomers;
};

// A first message comes right behind the headers of its call. On a busy machine the kernel has all
// of it before gRPC has begun the call.
TEST_F(NewcomersTest, TheFirstMessageMayComeBeforeItsCall) {
  Connection busy;
  newcomers_.Add(busy.descriptor());
  ASSERT_TRUE(busy.Send(60 * 1024));
  Connection flood;
  newcomers_.Add(flood.descriptor());
  while (flood.Send(1024)) {
  }
  // Both were looked at when this one was cut off.
  EXPECT_THAT(AwaitViolation(), HasSubstr("bytes before its first valid message, for 0 calls"));
  EXPECT_TRUE(busy.IsOpen());
}

// gRPC would read on until it came to the end of the connection.
TEST_F(NewcomersTest, Fault_N12_WhatAFloodHasSentIsDropped) {
  Connection flood("127.0.0.1", Connection::Reader::kLate);
  ASSERT_TRUE(flood.Send(100 * 1024));
  newcomers_.Add(flood.descriptor());
  AwaitViolation();
  EXPECT_EQ(flood.Waiting(), 0u);
  EXPECT_FALSE(flood.IsOpen());
}

// Each of them is within the limits of a connection.
TEST_F(NewcomersTest, Fault_N12_OneConnectionAfterTheOtherIsAFlood) {
  std::string violation;
  Newcomers newcomers(
      1000,
      [&](const std::string&, const std::string& what, bool flooded) {
        EXPECT_TRUE(flooded);
        MutexLock lock(mutex_);
        violation = what;
      },
      [](const std::string&) {});
  const auto noticed = [&] {
    MutexLock lock(mutex_);
    return !violation.empty();
  };
  while (!noticed()) {
    Connection one;
    ASSERT_TRUE(one.Send(60 * 1024));
    newcomers.Add(one.descriptor());
    one.End();
  }
  MutexLock lock(mutex_);
  EXPECT_THAT(violation, HasSubstr("one connection after the other"));
}

// What it sent at once is waiting for gRPC when it is gone.
TEST_F(NewcomersTest, Fault_N12_AFloodThatEndsAtOnceIsDropped) {
  Connection flood("127.0.0.1", Connection::Reader::kLate);
  ASSERT_TRUE(flood.Send(100 * 1024));
  flood.End();
  newcomers_.Add(flood.descriptor());
  AwaitViolation();
  EXPECT_EQ(flood.Waiting(), 0u);
}

// Long after it was opened.
TEST_F(NewcomersTest, Fault_N12_AFloodIsNoticedWhenItBegins) {
  Connection flood;
  newcomers_.Add(flood.descriptor());
  ASSERT_TRUE(flood.Send(1024));
  while (flood.Send(1024)) {
  }
  AwaitViolation();
}

// A peer with too many connections loses the oldest, and those of others stay.
TEST_F(NewcomersTest, Fault_S6_AnAddressWithTooManyConnectionsLosesTheOldest) {
  Crowded crowded(2);
  Connection first;
  Connection second;
  Connection third;
  crowded.newcomers.Add(first.descriptor());
  crowded.newcomers.Add(second.descriptor());
  EXPECT_TRUE(first.IsOpen());
  crowded.newcomers.Add(third.descriptor());
  crowded.AwaitViolations(1);
  EXPECT_FALSE(first.IsOpen());
  EXPECT_TRUE(second.IsOpen());
  EXPECT_TRUE(third.IsOpen());
  Connection fourth;
  crowded.newcomers.Add(fourth.descriptor());
  // Each of them is counted.
  crowded.AwaitViolations(2);
  EXPECT_FALSE(second.IsOpen());
  EXPECT_TRUE(third.IsOpen());
  EXPECT_THAT(crowded.violations, Each(HasSubstr("2 connections that had sent no valid message")));
  EXPECT_THAT(crowded.addresses, Each("127.0.0.1"));
}

// A handshake takes much memory and time. A peer that begins many and finishes none floods.
TEST_F(NewcomersTest, Fault_S6_HandshakesThatDoNotEndAreFewAndAreCutOff) {
  std::vector<bool> floods;
  Newcomers newcomers(
      10,
      [&](const std::string&, const std::string& what, bool flooded) {
        EXPECT_THAT(what, HasSubstr("It began 2 TLS handshakes at a time"));
        MutexLock lock(mutex_);
        floods.push_back(flooded);
        changed_.NotifyAll();
      },
      [](const std::string&) {}, 2);
  Connection worker;
  Connection first;
  Connection second;
  newcomers.Add(worker.descriptor());
  newcomers.Began(worker.peer());
  newcomers.Add(first.descriptor());
  EXPECT_TRUE(newcomers.HasRoom("127.0.0.1"));
  newcomers.Add(second.descriptor());
  const bool has_room = newcomers.HasRoom("127.0.0.1");
  EXPECT_TRUE(newcomers.HasRoom("127.0.0.2"));
  {
    MutexLock lock(mutex_);
    EXPECT_TRUE(!has_room || !floods.empty()) << "but where this took a second";
    while (floods.empty()) changed_.Wait(mutex_);
    EXPECT_TRUE(floods[0]);
  }
  EXPECT_FALSE(first.IsOpen());
  EXPECT_TRUE(worker.IsOpen());
  EXPECT_TRUE(newcomers.HasRoom("127.0.0.1"));
}

// A host has a /64 of IPv6, and could take another address for each connection.
TEST_F(NewcomersTest, Fault_S6_TheAddressesOfAHostCountTogether) {
  Crowded crowded(2);
  Connection first("127.1.2.1");
  Connection second("127.1.2.2");
  Connection elsewhere("127.1.3.1");
  Connection third("127.1.2.3");
  for (const Connection* each : {&first, &second, &elsewhere, &third}) {
    crowded.newcomers.Add(each->descriptor());
  }
  EXPECT_FALSE(first.IsOpen());
  EXPECT_TRUE(second.IsOpen());
  EXPECT_TRUE(elsewhere.IsOpen());
  EXPECT_TRUE(third.IsOpen());
  crowded.AwaitViolations(1);
  EXPECT_THAT(crowded.addresses, Each("2001:db8:1:2::1"));
}

TEST_F(NewcomersTest, Fault_S6_ConnectionsWithAValidMessageDoNotCount) {
  Crowded crowded(2);
  Connection workers[5];
  for (const Connection& worker : workers) {
    crowded.newcomers.Add(worker.descriptor());
    crowded.newcomers.Introduced(worker.peer());
  }
  Connection one;
  Connection other;
  crowded.newcomers.Add(one.descriptor());
  crowded.newcomers.Add(other.descriptor());
  Connection last;
  crowded.newcomers.Add(last.descriptor());
  crowded.AwaitViolations(1);
  EXPECT_FALSE(one.IsOpen());
  EXPECT_TRUE(other.IsOpen());
  for (const Connection& worker : workers) EXPECT_TRUE(worker.IsOpen());
}

}  // namespace
}  // namespace basin::aggregator
