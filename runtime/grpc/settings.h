// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How gRPC is set up on both ends, in one place, because the ends must agree: a client that pings
// more often than the server allows is disconnected (GOAWAY, "too_many_pings"), and each end must
// accept the messages that the other may send.
//
// Thread contract: plain values.

#ifndef BASIN_RUNTIME_GRPC_SETTINGS_H_
#define BASIN_RUNTIME_GRPC_SETTINGS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/channel_arguments.h"

namespace basin {

struct GrpcSettings {
  // A peer whose machine has failed answers no ping: its connections end after the sum of the two.
  absl::Duration keepalive_time = absl::Seconds(3);
  absl::Duration keepalive_timeout = absl::Seconds(2);

  // The bytes that a peer may send on one stream before they are read. Fixed: gRPC's own estimate
  // grows to 25 MB for each slow stream, which would exceed the memory budget.
  uint32_t window_bytes = uint32_t{4} << 20;
};

// Settings of servers only.
struct GrpcServerSettings {
  GrpcSettings common;

  // gRPC's memory for messages in flight; connections that exceed it are ended. A backstop: the
  // granted credit must be well below, or correct streams end. 0: no limit.
  uint64_t quota_bytes = 0;

  // A connection that sends nothing is dropped.
  absl::Duration handshake_timeout = absl::Seconds(10);

  // Streams of one connection. A worker opens a connection for each of its streams.
  uint32_t streams_per_connection = 16;
};

void Apply(const GrpcServerSettings& settings, grpc::ServerBuilder& builder);
// Only how a server notices that a peer is gone: a ping after `time`, `timeout` for its answer.
void ApplyKeepalive(absl::Duration time, absl::Duration timeout, grpc::ServerBuilder& builder);

// For a channel with its own TCP connection.
grpc::ChannelArguments ClientArguments(const GrpcSettings& settings);

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_SETTINGS_H_
