// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How gRPC is set up on both ends, in one place, because the ends must agree: a client that pings
// more often than the server allows is thrown out (GOAWAY, "too_many_pings"), and a message that
// one end may send the other must take.
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
  // A peer whose machine is gone answers no ping: its connections end after the sum of the two.
  absl::Duration keepalive_time = absl::Seconds(3);
  absl::Duration keepalive_timeout = absl::Seconds(2);

  // What a peer may send on one stream before it is read. Fixed: gRPC's own estimate grows to
  // 25 MB for each slow stream, beyond any budget of ours.
  uint32_t window_bytes = uint32_t{4} << 20;
};

// What only a server has.
struct GrpcServerSettings {
  GrpcSettings common;

  // gRPC's memory for messages on their way; connections beyond it are ended. A backstop: what is
  // granted as credit must be well below, or legal streams die. 0: no limit.
  uint64_t quota_bytes = 0;

  // A connection that says nothing is dropped.
  absl::Duration handshake_timeout = absl::Seconds(10);

  // Of one connection. A worker opens one for each of its streams.
  uint32_t streams_per_connection = 16;
};

void Apply(const GrpcServerSettings& settings, grpc::ServerBuilder& builder);

// For a channel that has its TCP connection to itself.
grpc::ChannelArguments ClientArguments(const GrpcSettings& settings);

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_SETTINGS_H_
