// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Connections wait for their turn before gRPC gets them.

#include "aggregator/transport/preface.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/grpc/peer.h"
#include "runtime/mutex.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

int Bound(const char* host) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, host, &address.sin_addr), 1);
  EXPECT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return descriptor;
}

class PrefaceTest : public testing::Test {
 protected:
  ~PrefaceTest() override {
    Release();
    for (const int peer : peers_) close(peer);
    close(listener_);
  }

  // `most` of one address wait.
  void Start(size_t most) {
    check_.emplace(
        PrefaceCheck::Protocol::kPlain, absl::Minutes(1), most, held_back_,
        [this](int descriptor) {
          std::string address = AddressOf(descriptor);
          close(descriptor);
          MutexLock lock(mutex_);
          passed_.push_back(std::move(address));
          changed_.NotifyAll();
          while (held_) changed_.Wait(mutex_);
        },
        [this](Counter TransportCounters::*counter, const std::string& address,
               const std::string& what) {
          EXPECT_EQ(counter, &TransportCounters::floods);
          MutexLock lock(mutex_);
          refused_.emplace_back(address, what);
          changed_.NotifyAll();
        },
        [this](const std::string& source) {
          MutexLock lock(mutex_);
          return source != full_;
        });
  }
  // No more connections of this address may be passed on.
  void Fill(const std::string& address) {
    MutexLock lock(mutex_);
    full_ = address;
  }

  // A peer connects from this address, and sends these bytes. 127.1.2.3 seems to be 2001:db8:1:2::3
  // (pretended_peers.cc).
  void Connect(const char* host, std::string_view bytes = kPreface) {
    sockaddr_in address = {};
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(getsockname(listener_, any, &length), 0);
    peers_.push_back(Bound(host));
    EXPECT_EQ(connect(peers_.back(), any, length), 0);
    Send(peers_.size() - 1, bytes);
    check_->OnConnection(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
  }

  // The peer that was the `index`th to connect sends them.
  void Send(size_t index, std::string_view bytes) {
    EXPECT_EQ(send(peers_[index], bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  // The peers that gRPC has got, once there are so many.
  std::vector<std::string> AwaitPassed(size_t count) {
    MutexLock lock(mutex_);
    while (passed_.size() < count) changed_.Wait(mutex_);
    return passed_;
  }
  std::vector<std::pair<std::string, std::string>> AwaitRefused(size_t count) {
    MutexLock lock(mutex_);
    while (refused_.size() < count) changed_.Wait(mutex_);
    return refused_;
  }
  void Release() {
    MutexLock lock(mutex_);
    held_ = false;
    changed_.NotifyAll();
  }

  HeldBack held_back_;

 private:
  const int listener_ = [] {
    const int descriptor = Bound("127.0.0.1");
    EXPECT_EQ(listen(descriptor, 16), 0);
    return descriptor;
  }();
  std::vector<int> peers_;

  Mutex mutex_;
  Condition changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = true;  // Whether gRPC is busy with the first connection.
  std::string full_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> passed_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<std::string, std::string>> refused_ ABSL_GUARDED_BY(mutex_);

  std::optional<PrefaceCheck> check_;  // Ends first.
};

TEST_F(PrefaceTest, Fault_S6_AWorkerIsNotBehindAFloodFromElsewhere) {
  Start(4);
  Connect("127.0.1.1");
  AwaitPassed(1);
  for (int i = 0; i < 3; ++i) Connect("127.0.1.1");
  Connect("127.0.0.2");
  Connect("127.0.2.1");
  Release();
  EXPECT_THAT(AwaitPassed(6), ElementsAre("127.0.1.1", "127.0.0.2", "127.0.1.1", "127.0.2.1",
                                          "127.0.1.1", "127.0.1.1"));
}

TEST_F(PrefaceTest, Fault_N12_AnAddressThatHasFloodedWaits) {
  Start(4);
  Release();
  held_back_.Add("127.0.1.1");
  Connect("127.0.1.1");
  EXPECT_THAT(AwaitPassed(1), ElementsAre("127.0.1.1")) << "after a second";
  for (int i = 0; i < 8; ++i) held_back_.Add("127.0.1.1");
  Connect("127.0.1.1");
  Connect("127.0.0.2");
  EXPECT_THAT(AwaitPassed(2), ElementsAre("127.0.1.1", "127.0.0.2")) << "half a minute";
}

TEST_F(PrefaceTest, Fault_S6_AnAddressWithoutRoomWaits) {
  Start(4);
  Release();
  Connect("127.0.1.1", kPreface.substr(0, 3));
  Fill("127.0.1.1");
  Send(0, kPreface.substr(3));
  Connect("127.0.1.1");
  Connect("127.0.0.2");
  EXPECT_THAT(AwaitPassed(1), ElementsAre("127.0.0.2"));
  Fill("127.0.0.2");
  EXPECT_THAT(AwaitPassed(3), ElementsAre("127.0.0.2", "127.0.1.1", "127.0.1.1"));
}

TEST(HeldBackTest, EachFloodWithinAMinuteDoublesTheTime) {
  HeldBack held_back;
  EXPECT_LT(held_back.Until("192.0.2.1"), HeldBack::Clock::now());
  for (const int seconds : {1, 2, 4, 8, 16, 32, 32}) {
    const auto before = HeldBack::Clock::now();
    held_back.Add("192.0.2.1");
    const auto time = std::chrono::seconds(seconds);
    EXPECT_GE(held_back.Until("192.0.2.1"), before + time);
    EXPECT_LE(held_back.Until("192.0.2.1"), HeldBack::Clock::now() + time);
  }
  EXPECT_LT(held_back.Until("192.0.2.2"), HeldBack::Clock::now()) << "another address";
}

TEST_F(PrefaceTest, Fault_S6_AWorkerIsNotBehindManyThatBreakTheirSilence) {
  Start(4);
  for (int i = 0; i < 3; ++i) Connect("127.0.1.1", "");
  // Once it is passed, the others are known to be silent.
  Connect("127.0.1.1");
  AwaitPassed(1);
  for (size_t i = 0; i < 3; ++i) Send(i, kPreface);
  Connect("127.0.0.2");
  Release();
  EXPECT_THAT(AwaitPassed(5),
              ElementsAre("127.0.1.1", "127.0.1.1", "127.0.0.2", "127.0.1.1", "127.0.1.1"));
}

TEST_F(PrefaceTest, Fault_S6_WhatAFloodHasWaitingIsBounded) {
  Start(2);
  Connect("127.0.1.1");
  AwaitPassed(1);
  Connect("127.0.0.2");
  for (int i = 0; i < 5; ++i) Connect("127.0.1.1");
  const auto refused = AwaitRefused(3);
  for (const auto& [address, what] : refused) {
    EXPECT_EQ(address, "127.0.1.1");
    EXPECT_THAT(what, HasSubstr("It had 2 connections that had sent no valid message"));
  }
  Release();
  EXPECT_THAT(AwaitPassed(4), ElementsAre("127.0.1.1", "127.0.0.2", "127.0.1.1", "127.0.1.1"));
}

// A host has a /64 of IPv6, and could take another address for each connection.
TEST_F(PrefaceTest, Fault_S6_WhatTheAddressesOfAHostHaveWaitingIsBounded) {
  Start(2);
  Connect("127.0.0.1");
  AwaitPassed(1);
  Connect("127.1.2.1");
  Connect("127.1.2.2");
  Connect("127.1.3.1");
  Connect("127.1.2.3");
  const auto refused = AwaitRefused(1);
  EXPECT_EQ(refused.front().first, "2001:db8:1:2::1");
  EXPECT_THAT(refused.front().second,
              HasSubstr("It had 2 connections that had sent no valid message"));
  Release();
  EXPECT_THAT(AwaitPassed(4),
              ElementsAre("127.0.0.1", "2001:db8:1:2::2", "2001:db8:1:3::1", "2001:db8:1:2::3"));
}

TEST_F(PrefaceTest, Fault_S6_OfSilentPeersTheHostThatHasMostAddressesPays) {
  Start(3);
  Release();
  Connect("127.0.0.2", "");
  Connect("127.1.2.1", "");
  Connect("127.1.2.2", "");
  // It has its turn behind the others of its host. Once it is passed, they are known to be silent.
  Connect("127.1.2.3");
  AwaitPassed(1);
  Connect("127.0.1.2", "");
  EXPECT_EQ(AwaitRefused(1).front().first, "2001:db8:1:2::1");
}

TEST_F(PrefaceTest, Fault_S6_OfSilentPeersTheAddressThatHasMostPays) {
  Start(3);
  Release();
  Connect("127.0.0.2", "");
  Connect("127.0.1.1", "");
  Connect("127.0.1.1", "");
  // Once it is passed, the others are known to be silent.
  Connect("127.0.1.1");
  AwaitPassed(1);
  Connect("127.0.1.2", "");
  const auto refused = AwaitRefused(1);
  EXPECT_EQ(refused.front().first, "127.0.1.1");
  EXPECT_THAT(refused.front().second, HasSubstr("no address had more of them"));
}

}  // namespace
}  // namespace basin::aggregator
