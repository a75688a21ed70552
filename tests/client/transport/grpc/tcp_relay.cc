// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/client/transport/grpc/tcp_relay.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string_view>
#include <utility>

#include "gtest/gtest.h"
#include "tests/runtime/limit.h"

namespace basin::client {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Sockets of this process that are connected to a port of this machine.
std::vector<int> SocketsTo(int port) {
  std::vector<int> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    // gRPC's are IPv6 sockets for IPv4 too; the port stands in the same place.
    sockaddr_in6 peer{};
    socklen_t length = sizeof peer;
    if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    const bool internet = peer.sin6_family == AF_INET || peer.sin6_family == AF_INET6;
    if (internet && ntohs(peer.sin6_port) == port) sockets.push_back(descriptor);
  }
  return sockets;
}

}  // namespace

TcpRelay::TcpRelay(int port) : target_(port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // Connections inherit it.
  const int small = 4096;
  setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof address;
  EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(listen(listener_, 16), 0);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  EXPECT_EQ(pipe(wake_), 0);
  thread_ = std::thread([this] { Run(); });
}

TcpRelay::~TcpRelay() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  EXPECT_EQ(write(wake_[1], "x", 1), 1);
  thread_.join();
  for (const Pair& pair : pairs_) {
    close(pair.client);
    close(pair.server);
  }
  for (const int descriptor : {listener_, wake_[0], wake_[1]}) close(descriptor);
}

std::string TcpRelay::address() const { return "127.0.0.1:" + std::to_string(port_); }

void TcpRelay::Freeze() {
  {
    MutexLock lock(mutex_);
    freeze_ = true;
  }
  EXPECT_EQ(write(wake_[1], "x", 1), 1);
  MutexLock lock(mutex_);
  while (!frozen_) changed_.Wait(mutex_);
}

void TcpRelay::CutOldest() {
  {
    MutexLock lock(mutex_);
    cut_ = true;
  }
  EXPECT_EQ(write(wake_[1], "x", 1), 1);
  MutexLock lock(mutex_);
  while (cut_) changed_.Wait(mutex_);
}

void TcpRelay::AwaitStuck() {
  const auto limit = InAMinute();
  // The kernel does not report that a socket has become full, so it is polled.
  while (true) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit) << "The connection did not fill up.";
    for (const int descriptor : SocketsTo(port_)) {
      const int small = 4096;
      setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
      pollfd writable{descriptor, POLLOUT, 0};
      if (poll(&writable, 1, 0) == 0) return;
    }
    std::this_thread::yield();
  }
}

void TcpRelay::FlipNext(std::string bytes) {
  MutexLock lock(mutex_);
  flip_ = std::move(bytes);
}

bool TcpRelay::flipped() const {
  MutexLock lock(mutex_);
  return flipped_;
}

uint64_t TcpRelay::bytes_to_server() const {
  MutexLock lock(mutex_);
  return to_server_;
}

void TcpRelay::AwaitBytesToServer(uint64_t bytes) {
  const auto limit = InAMinute();
  MutexLock lock(mutex_);
  while (to_server_ < bytes) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit) << "The client sent " << to_server_;
    changed_.WaitUntil(mutex_, limit);
  }
}

void TcpRelay::Run() {
  while (true) {
    bool frozen;
    {
      MutexLock lock(mutex_);
      if (stop_) return;
      if (freeze_ && !frozen_) {
        frozen_ = true;
        changed_.NotifyAll();
      }
      frozen = frozen_;
      if (cut_ && !pairs_.empty()) {
        close(pairs_.front().client);
        close(pairs_.front().server);
        pairs_.erase(pairs_.begin());
      }
      cut_ = false;
      changed_.NotifyAll();
    }
    std::vector<pollfd> polled = {{wake_[0], POLLIN, 0}};
    if (!frozen) {
      polled.push_back({listener_, POLLIN, 0});
      for (const Pair& pair : pairs_) {
        polled.push_back({pair.client, POLLIN, 0});
        polled.push_back({pair.server, POLLIN, 0});
      }
    }
    poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) {
      char byte;
      EXPECT_EQ(read(wake_[0], &byte, 1), 1);
      continue;
    }
    std::vector<Pair> open;
    for (size_t i = 2; i + 1 < polled.size(); i += 2) {
      const Pair pair = pairs_[i / 2 - 1];
      bool alive = true;
      if (polled[i].revents != 0) alive = Forward(pair.client, pair.server, true);
      if (alive && polled[i + 1].revents != 0) alive = Forward(pair.server, pair.client, false);
      if (alive) {
        open.push_back(pair);
      } else {
        close(pair.client);
        close(pair.server);
      }
    }
    pairs_.swap(open);
    if (polled[1].revents != 0) Accept();
  }
}

void TcpRelay::Accept() {
  Pair pair;
  pair.client = accept(listener_, nullptr, nullptr);
  pair.server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(target_);
  if (connect(pair.server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(pair.client);
    close(pair.server);
    return;
  }
  pairs_.push_back(pair);
}

bool TcpRelay::Forward(int from, int to, bool to_server) {
  char bytes[16384];
  const ssize_t count = read(from, bytes, sizeof bytes);
  if (count <= 0) return false;
  if (to_server) {
    MutexLock lock(mutex_);
    const size_t at = flip_.empty()
                          ? std::string_view::npos
                          : std::string_view(bytes, static_cast<size_t>(count)).find(flip_);
    if (at != std::string_view::npos) {
      bytes[at] = static_cast<char>(bytes[at] ^ 4);
      flip_.clear();
      flipped_ = true;
    }
  }
  for (ssize_t at = 0; at < count;) {
    const ssize_t sent = send(to, bytes + at, static_cast<size_t>(count - at), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
  }
  if (!to_server) return true;
  MutexLock lock(mutex_);
  to_server_ += static_cast<uint64_t>(count);
  changed_.NotifyAll();
  return true;
}

}  // namespace basin::client
