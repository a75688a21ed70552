// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The first steps to another machine: its name, and a TCP connection.
//
// Thread contract: safe from any thread; each blocks, Connect for at most the timeout.

#ifndef BASIN_AGGREGATOR_CTL_REACH_H_
#define BASIN_AGGREGATOR_CTL_REACH_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/text/address.h"

namespace basin::aggregator {

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

// "10.0.0.5", without the port.
std::string HostOf(const SocketAddress& address);

// The addresses of the host, in the order in which they are to be tried. Failure: UNAVAILABLE with
// the resolver's text.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const Address& address);

// The bytes of the packets of a connection, IP and TCP headers included; 0: unknown.
struct PacketSize {
  uint32_t way = 0;   // What the way to the host carries, as far as this machine knows (path MTU).
  uint32_t ends = 0;  // What both ends of the connection allow.
};

// Connects, and closes the connection. Failure: UNAVAILABLE with the system's text;
// DEADLINE_EXCEEDED.
absl::StatusOr<PacketSize> Connect(const SocketAddress& address, absl::Duration timeout);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_REACH_H_
