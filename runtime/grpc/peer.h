// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The other ends of connections: gRPC's names for them, such as "ipv4:10.0.0.1:5000", their
// addresses, and which addresses the limits for an address count together.
//
// Thread contract: safe from any thread; AddressIn and SourceOf are pure.

#ifndef BASIN_RUNTIME_GRPC_PEER_H_
#define BASIN_RUNTIME_GRPC_PEER_H_

#include <string>

namespace basin {

// The name that gRPC gives to the other end of a socket; empty if the connection is over.
std::string PeerOf(int descriptor);

// The name without its kind and its port. A link-local address has its scope: "fe80::1%2".
std::string AddressIn(const std::string& peer);

// The address of the other end of a socket, or "unknown".
std::string AddressOf(int descriptor);

// What limits for "one address" count as one. A host has one address of IPv4, but all of a /64 of
// IPv6, so this is "2001:db8:1:2::/64". A link-local address stays as it is: all hosts of a link
// have the same prefix, and a flood from one of them must not take the room of the others. Such a
// host is on the same link, where it could take its neighbours' addresses of IPv4 as well.
std::string SourceOf(const std::string& address);

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_PEER_H_
