// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace basin {
namespace {

// A connection that comes from this address (pretended_peers.cc).
class Connected {
 public:
  explicit Connected(const char* host) : peer_(Socket(host)) {
    const int listener = Socket("127.0.0.1");
    EXPECT_EQ(listen(listener, 1), 0);
    const sockaddr_in at = NameOf(listener);
    EXPECT_EQ(connect(peer_, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    descriptor_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
  }
  ~Connected() {
    close(peer_);
    close(descriptor_);
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;

  int descriptor() const { return descriptor_; }
  std::string port() const { return std::to_string(ntohs(NameOf(peer_).sin_port)); }

 private:
  static int Socket(const char* host) {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, host, &address.sin_addr), 1);
    EXPECT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return descriptor;
  }
  static sockaddr_in NameOf(int descriptor) {
    sockaddr_in address = {};
    socklen_t length = sizeof address;
    EXPECT_EQ(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length), 0);
    return address;
  }

  const int peer_;
  int descriptor_ = -1;
};

TEST(PeerTest, ANameHasAnAddress) {
  EXPECT_EQ(AddressIn("ipv4:10.0.0.1:5000"), "10.0.0.1");
  EXPECT_EQ(AddressIn("ipv6:%5B2001:db8::1%5D:5000"), "2001:db8::1");
  EXPECT_EQ(AddressIn("ipv6:%5Bfe80::1%252%5D:5000"), "fe80::1%2");
  EXPECT_EQ(AddressIn("elsewhere"), "elsewhere");
  EXPECT_EQ(AddressIn(""), "");
}

// A host chooses freely among the addresses of its /64.
TEST(PeerTest, Fault_S6_TheAddressesOfAHostCountTogether) {
  EXPECT_EQ(SourceOf("2001:db8:1:2::7"), "2001:db8:1:2::/64");
  EXPECT_EQ(SourceOf("2001:db8:1:2:ffff:ffff:ffff:ffff"), "2001:db8:1:2::/64");
  EXPECT_EQ(SourceOf("2001:db8:1:3::7"), "2001:db8:1:3::/64");
  EXPECT_EQ(SourceOf("fd00:0:0:1::7"), "fd00:0:0:1::/64");
}

TEST(PeerTest, AddressesThatAHostHasOnlyOneOfCountAlone) {
  EXPECT_EQ(SourceOf("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(SourceOf("::ffff:10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(SourceOf("::1"), "::1");
  EXPECT_EQ(SourceOf("unknown"), "unknown");
  EXPECT_EQ(SourceOf(""), "");
}

// All hosts of a link have the prefix fe80::/64.
TEST(PeerTest, HostsOfALinkCountAlone) {
  EXPECT_EQ(SourceOf("fe80::1"), "fe80::1");
  EXPECT_EQ(SourceOf("fe80::1%2"), "fe80::1%2");
  EXPECT_EQ(SourceOf("febf::1%2"), "febf::1%2");
}

// Under another name than gRPC's, the connection of a worker would stay a newcomer.
TEST(PeerTest, ASocketHasTheNameThatGrpcGivesIt) {
  const Connected global("127.1.2.7");
  EXPECT_EQ(PeerOf(global.descriptor()), "ipv6:%5B2001:db8:1:2::7%5D:" + global.port());
  EXPECT_EQ(AddressOf(global.descriptor()), "2001:db8:1:2::7");
  const Connected neighbour("127.2.5.7");
  EXPECT_EQ(PeerOf(neighbour.descriptor()), "ipv6:%5Bfe80::7%255%5D:" + neighbour.port());
  EXPECT_EQ(AddressOf(neighbour.descriptor()), "fe80::7%5");
  const Connected mapped("127.3.0.7");
  EXPECT_EQ(PeerOf(mapped.descriptor()), "ipv4:10.3.0.7:" + mapped.port());
  EXPECT_EQ(AddressOf(mapped.descriptor()), "10.3.0.7");
  const Connected plain("127.0.0.1");
  EXPECT_EQ(PeerOf(plain.descriptor()), "ipv4:127.0.0.1:" + plain.port());
}

TEST(PeerTest, AConnectionThatIsOverHasNoName) {
  EXPECT_EQ(PeerOf(-1), "");
  EXPECT_EQ(AddressOf(-1), "unknown");
}

}  // namespace
}  // namespace basin
