// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The local socket: which peers may share memory with the aggregator, and what ends a connection.

#include "aggregator/transport/local.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/mutex.h"
#include "runtime/shared_memory/socket.h"
#include "tests/runtime/await.h"

namespace basin::aggregator {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Kind = SegmentMessage::Kind;

constexpr SessionToken kToken = 0x1234567812345678;

class LocalSocketTest : public testing::Test {
 protected:
  LocalSocketTest() {
    auto started = LocalServer::Start("", 1 << 30, counters_, [this](const std::string& what) {
      MutexLock lock(mutex_);
      reports_.push_back(what);
    });
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    server_->Admit(kToken);
  }

  std::unique_ptr<Segments> Connect() const {
    const auto socket = ConnectLocal(server_->name());
    EXPECT_TRUE(socket.ok()) << socket.status();
    return std::make_unique<Segments>(socket.value_or(-1));
  }
  // A connection that was accepted with this token; null if it was refused.
  std::unique_ptr<Segments> Open(SessionToken token) const {
    auto end = Connect();
    EXPECT_TRUE(end->Send({Kind::kToken, token, 0}).ok());
    const auto answer = end->ReceiveOpening();
    if (!answer.ok()) return nullptr;
    EXPECT_EQ(answer->kind, Kind::kWelcome);
    return end;
  }
  // How many have room in a socket whose other end does not read.
  static uint64_t MessagesInASocket() {
    std::array<int, 2> sockets;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()), 0);
    const Segments one(sockets[0]);
    const Segments other(sockets[1]);
    uint64_t sent = 0;
    while (one.Send({Kind::kMapped, 0, 0}).ok()) ++sent;
    return sent;
  }
  std::vector<std::string> reports() const {
    MutexLock lock(mutex_);
    return reports_;
  }

  TransportCounters counters_;
  mutable Mutex mutex_;
  std::vector<std::string> reports_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LocalServer> server_;
};

TEST_F(LocalSocketTest, ASessionSharesWhatItsWorkerOffers) {
  EXPECT_EQ(server_->Find(kToken), nullptr);
  const auto worker = Open(kToken);
  ASSERT_NE(worker, nullptr);
  const auto segment = *Segment::Create(4096);
  segment->writable()[5] = 'x';
  worker->Offer(segment);
  ASSERT_TRUE(worker->Receive().ok());
  const auto places = worker->Find({std::string_view(segment->data() + 5, 1)});
  ASSERT_TRUE(places.has_value());
  const auto payload = server_->Find(kToken)->At(places->front());
  ASSERT_TRUE(payload.ok()) << payload.status();
  EXPECT_EQ((*payload)->pieces()[0], "x");
  server_->Forget(kToken);
  EXPECT_EQ(server_->Find(kToken), nullptr);
  EXPECT_EQ((*payload)->pieces()[0], "x") << "a payload keeps what it refers to";
  EXPECT_EQ(worker->Receive().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Open(kToken), nullptr) << "the session is over";
  EXPECT_EQ(counters_.local_refused, 0u) << "it came late, which is no violation";
}

// More answers than the socket has room for wait in the server until the worker reads them.
TEST_F(LocalSocketTest, AWorkerThatIsSlowToReadGoesOnSharing) {
  const auto worker = Open(kToken);
  ASSERT_NE(worker, nullptr);
  const auto segment = *Segment::Create(4096);
  worker->Offer(segment);
  ASSERT_TRUE(worker->Receive().ok());
  // Each of these is answered by one message: the server has no device.
  const uint64_t last = MessagesInASocket() + kMaxSegments / 2;
  for (uint64_t number = 1001; number <= 1000 + last; ++number) {
    while (!worker->Send({Kind::kOfferDevice, number, 4096}).ok()) {
      pollfd room = {worker->socket(), POLLOUT, 0};
      ASSERT_EQ(poll(&room, 1, -1), 1);
    }
  }
  const auto unread = [&] {
    int bytes = 0;
    EXPECT_EQ(ioctl(worker->socket(), SIOCOUTQ, &bytes), 0);
    return bytes;
  };
  Await([&] { return unread() == 0; });
  for (uint64_t answer = 1; answer <= last; ++answer) ASSERT_TRUE(worker->Receive().ok());
  const auto next = *Segment::Create(4096);
  while (!worker->Offer(next)) ASSERT_TRUE(worker->Receive().ok());
  const std::string_view bytes(next->data(), next->size());
  while (!worker->Find({bytes}).has_value()) ASSERT_TRUE(worker->Receive().ok());
  EXPECT_EQ(counters_.local_refused, 0u);
}

TEST_F(LocalSocketTest, ItsDirectoryIsForItsUserAloneAndGoesWithIt) {
  const std::string directory = server_->name().substr(0, server_->name().rfind('/'));
  struct stat status = {};
  ASSERT_EQ(stat(directory.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  server_.reset();
  EXPECT_NE(stat(directory.c_str(), &status), 0);
}

TEST_F(LocalSocketTest, Fault_N10_AWrongTokenIsRefusedAndCounted) {
  EXPECT_EQ(Open(kToken + 1), nullptr);
  EXPECT_EQ(counters_.local_refused, 1u);
  EXPECT_THAT(reports(), Contains(HasSubstr("token of no session")));
  ASSERT_NE(Open(kToken), nullptr);
}

TEST_F(LocalSocketTest, Fault_N10_ATokenIsPresentedOnce) {
  const auto worker = Open(kToken);
  ASSERT_NE(worker, nullptr);
  EXPECT_EQ(Open(kToken), nullptr);
  EXPECT_EQ(counters_.local_sessions, 1u);
}

TEST_F(LocalSocketTest, Fault_N10_AnotherFirstMessageIsRefused) {
  for (const Kind kind : {Kind::kWelcome, Kind::kOffer, Kind::kMapped}) {
    const auto stranger = Connect();
    EXPECT_TRUE(stranger->Send({kind, kToken, 4096}).ok());
    EXPECT_FALSE(stranger->ReceiveOpening().ok());
  }
  EXPECT_EQ(counters_.local_refused, 3u);
  EXPECT_EQ(server_->Find(kToken), nullptr);
}

TEST_F(LocalSocketTest, Fault_N10_SilenceIsEnded) {
  const auto silent = Connect();
  EXPECT_FALSE(silent->ReceiveOpening().ok());  // Returns when the server has closed it.
  EXPECT_EQ(counters_.local_refused, 1u);
  EXPECT_THAT(reports(), Contains(HasSubstr("no token in time")));
}

TEST_F(LocalSocketTest, Fault_N10_StrangersDoNotKeepAWorkerOut) {
  std::vector<std::unique_ptr<Segments>> strangers;
  for (int i = 0; i < 300; ++i) {
    const auto socket = ConnectLocal(server_->name());
    if (!socket.ok()) break;  // The backlog is full.
    strangers.push_back(std::make_unique<Segments>(*socket));
  }
  EXPECT_GT(strangers.size(), 128u);
  // A worker that finds no place trains over the network. Later sessions find one.
  for (const auto& stranger : strangers) EXPECT_FALSE(stranger->ReceiveOpening().ok());
  EXPECT_NE(Open(kToken), nullptr);
}

TEST_F(LocalSocketTest, Fault_N10_ABrokenRuleEndsTheConnectionAndNothingElse) {
  const auto worker = Open(kToken);
  ASSERT_NE(worker, nullptr);
  const auto segment = *Segment::Create(4096);
  worker->Offer(segment);
  ASSERT_TRUE(worker->Receive().ok());
  const auto places = worker->Find({std::string_view(segment->data(), 4096)});
  ASSERT_TRUE(places.has_value());
  EXPECT_TRUE(worker->Send({Kind::kOffer, 2, 4096}).ok());  // Without a descriptor.
  EXPECT_EQ(worker->Receive().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(counters_.local_refused, 1u);
  // Frames that are on their way still find what was shared.
  EXPECT_TRUE(server_->Find(kToken)->At(places->front()).ok());
}

}  // namespace
}  // namespace basin::aggregator
