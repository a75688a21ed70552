// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The calls that peers have begun on a connection, as gRPC's channelz counts them: also those that
// are reset before a handler learns of them. An answer takes tens of microseconds.
//
// Thread contract: functions, from any thread. Failure: no value where gRPC does not know the
// connection, or counts nothing.

#ifndef BASIN_AGGREGATOR_TRANSPORT_SOCKET_CALLS_H_
#define BASIN_AGGREGATOR_TRANSPORT_SOCKET_CALLS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace basin::aggregator {

// gRPC's number for the connection of a server of this process, by its name for the other end. It
// looks through all connections.
std::optional<int64_t> SocketOf(const std::string& peer);

std::optional<uint64_t> CallsBegunOn(int64_t socket);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_SOCKET_CALLS_H_
