// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A connection of TCP without gRPC, for tests of what watches connections.
//
// Thread contract: one thread, but for its own reader.

#ifndef BASIN_TESTS_AGGREGATOR_TRANSPORT_CONNECTION_H_
#define BASIN_TESTS_AGGREGATOR_TRANSPORT_CONNECTION_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

namespace basin::aggregator {

// A connection of this process to itself: the peer sends, and what arrives is read at once.
class Connection {
 public:
  enum class Reader : uint8_t { kReads, kLate };

  // 127.1.2.3 seems to be 2001:db8:1:2::3 (pretended_peers.cc).
  explicit Connection(const char* host = "127.0.0.1", Reader reader = Reader::kReads) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener, any, length), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(getsockname(listener, any, &length), 0);
    peer_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in from = {};
    from.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, host, &from.sin_addr), 1);
    EXPECT_EQ(bind(peer_, reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
    EXPECT_EQ(connect(peer_, any, length), 0);
    descriptor_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
    if (reader == Reader::kLate) return;
    reader_ = std::thread([this] {
      std::string bytes(size_t{1} << 20, 0);
      while (recv(descriptor_, bytes.data(), bytes.size(), 0) > 0) {
      }
    });
  }
  ~Connection() {
    shutdown(descriptor_, SHUT_RDWR);
    if (reader_.joinable()) reader_.join();
    close(peer_);
    close(descriptor_);
  }

  int descriptor() const { return descriptor_; }
  // Its name for gRPC.
  std::string peer() const {
    sockaddr_in address = {};
    socklen_t length = sizeof address;
    getsockname(peer_, reinterpret_cast<sockaddr*>(&address), &length);
    return "ipv4:127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  // False when the connection is cut off before the peer has sent all of it.
  bool Send(size_t bytes) const {
    const std::string part(size_t{256} << 10, 'x');
    while (bytes > 0) {
      const ssize_t sent = send(peer_, part.data(), std::min(bytes, part.size()), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes -= static_cast<size_t>(sent);
    }
    return true;
  }
  void End() const { shutdown(peer_, SHUT_WR); }
  // What can be read of it.
  size_t Waiting() const {
    std::string bytes(size_t{1} << 20, 0);
    const ssize_t count = recv(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    return count < 0 ? 0 : static_cast<size_t>(count);
  }
  bool IsOpen() const {
    char byte = 0;
    return recv(peer_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
  }

 private:
  int peer_ = -1;
  int descriptor_ = -1;
  std::thread reader_;
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_TRANSPORT_CONNECTION_H_
