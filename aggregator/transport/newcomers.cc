// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/newcomers.h"

#include <fcntl.h>
// Not <netinet/tcp.h>, whose tcp_info lacks the byte counters.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/limits/limits.h"
#include "runtime/grpc/peer.h"
#include "runtime/grpc/settings.h"

namespace basin::aggregator {
namespace {

constexpr std::chrono::milliseconds kLookEvery{50};

// The preface, settings, and the headers of some calls.
constexpr uint64_t kMostBesideData = 64 << 10;

// A worker sends its first message behind the headers of its call. Where this process is short of
// time, the kernel has as much of it as the window allows before gRPC has begun the call.
constexpr uint64_t kMostBeforeACall = GrpcSettings().window_bytes + kMostBesideData;

// In addition to the received messages: one in flight, and the bytes that HTTP/2 allows beyond it.
constexpr uint64_t kMostBesideMessages = kMaxMessageBytes + kMostBeforeACall;

// A worker begins one; a probe some.
constexpr uint32_t kMostCalls = 64;

// Bytes that the kernel has received; nothing when the connection is over.
std::optional<uint64_t> ReceivedBytes(int descriptor) {
  tcp_info info = {};
  socklen_t length = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  constexpr uint8_t kEstablished = 1;
  if (info.tcpi_state != kEstablished) return std::nullopt;
  return info.tcpi_bytes_received;
}

// Ends a connection with a reset as soon as gRPC closes it. After an orderly end the kernel would
// keep what the peer had sent for a minute, and a peer that writes would wait for as long.
void CutOff(int descriptor) {
  const linger reset = {1, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  shutdown(descriptor, SHUT_RDWR);
}

}  // namespace

std::string CrowdOf(size_t most) {
  return absl::StrCat("It had ", most,
                      " connections that had sent no valid message, and opened another; the oldest "
                      "was closed.");
}

Newcomers::Newcomers(size_t most_of_an_address, Refuse refuse, Left left)
    : most_of_an_address_(most_of_an_address), refuse_(std::move(refuse)), left_(std::move(left)) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "basin-newcomers");
    Run();
  });
}

Newcomers::~Newcomers() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  for (const auto& [peer, newcomer] : newcomers_) {
    if (!newcomer.displaced()) close(newcomer.descriptor);
  }
}

void Newcomers::Add(int descriptor) {
  std::string peer = PeerOf(descriptor);
  if (peer.empty()) return;
  const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return;
  MutexLock lock(mutex_);
  const auto earlier = newcomers_.find(peer);
  if (earlier != newcomers_.end()) Forget(earlier);  // Its connection is over.
  const std::string source = SourceOf(AddressIn(peer));
  MakeRoom(source);
  Newcomer newcomer;
  newcomer.descriptor = own;
  newcomer.number = ++last_number_;
  of_source_[source].emplace(newcomer.number, peer);
  newcomers_.emplace(std::move(peer), newcomer);
  changed_.NotifyAll();
}

void Newcomers::MakeRoom(const std::string& source) {
  const auto others = of_source_.find(source);
  if (others == of_source_.end() || others->second.size() < most_of_an_address_) return;
  const auto first = others->second.begin();
  Newcomer& displaced = newcomers_.at(first->second);
  CutOff(displaced.descriptor);
  // Until the next look, a flood would displace more of them than there are descriptors.
  close(std::exchange(displaced.descriptor, -1));
  others->second.erase(first);
}

Newcomers::ByPeer::iterator Newcomers::Forget(ByPeer::iterator newcomer) {
  if (!newcomer->second.displaced()) {
    close(newcomer->second.descriptor);
    const auto others = of_source_.find(SourceOf(AddressIn(newcomer->first)));
    others->second.erase(newcomer->second.number);
    if (others->second.empty()) of_source_.erase(others);
  }
  return newcomers_.erase(newcomer);
}

void Newcomers::Began(const std::string& peer) {
  MutexLock lock(mutex_);
  const auto found = newcomers_.find(peer);
  if (found == newcomers_.end()) return;
  ++found->second.calls;
  // At once: many begin between two looks.
  if (found->second.calls == kMostCalls + 1 && !found->second.displaced()) {
    CutOff(found->second.descriptor);
  }
}

void Newcomers::Came(const std::string& peer, uint64_t bytes) {
  MutexLock lock(mutex_);
  const auto found = newcomers_.find(peer);
  if (found != newcomers_.end()) found->second.message_bytes += bytes;
}

void Newcomers::Introduced(const std::string& peer) {
  MutexLock lock(mutex_);
  const auto found = newcomers_.find(peer);
  if (found != newcomers_.end() && !found->second.displaced()) Forget(found);
}

void Newcomers::Run() {
  while (true) {
    Findings found;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && newcomers_.empty()) changed_.Wait(mutex_);
      if (!stopping_) changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kLookEvery);
      if (stopping_) return;
      found = Look();
    }
    for (const auto& [address, what] : found.violations) refuse_(address, what);
    for (const std::string& address : found.left) left_(address);
  }
}

Newcomers::Findings Newcomers::Look() {
  Findings found;
  for (auto it = newcomers_.begin(); it != newcomers_.end();) {
    const auto& [peer, newcomer] = *it;
    if (newcomer.displaced()) {
      found.violations.emplace_back(AddressIn(peer), CrowdOf(most_of_an_address_));
      it = Forget(it);
      continue;
    }
    std::string what;
    const std::optional<uint64_t> received = ReceivedBytes(newcomer.descriptor);
    if (newcomer.calls > kMostCalls) {
      what = absl::StrCat("It began ", newcomer.calls,
                          " calls on one connection, and none of them received a valid message.");
    } else if (received.has_value()) {
      const uint64_t most = newcomer.calls == 0
                                ? kMostBeforeACall
                                : kMostBesideMessages + newcomer.message_bytes / 8 * 9;
      if (*received > most) {
        what = absl::StrCat("It sent ", *received, " bytes, and only ", newcomer.message_bytes,
                            " of them are messages, of ", newcomer.calls, " calls.");
      }
    }
    const bool cut = !what.empty();
    if (cut) {
      CutOff(newcomer.descriptor);
      found.violations.emplace_back(AddressIn(peer), std::move(what));
    } else if (!received.has_value() && newcomer.calls == 0) {
      found.left.push_back(AddressIn(peer));
    }
    if (cut || !received.has_value()) {
      it = Forget(it);
    } else {
      ++it;
    }
  }
  return found;
}

}  // namespace basin::aggregator
