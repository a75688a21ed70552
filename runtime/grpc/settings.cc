// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/settings.h"

#include "grpc/grpc.h"
#include "grpcpp/resource_quota.h"
#include "protocol/limits/limits.h"

namespace basin {
namespace {

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

template <typename Set>
void SetKeepalive(absl::Duration time, absl::Duration timeout, Set set) {
  set(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(time));
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(timeout));
  // From 1.60 on, gRPC gives the answer to a ping this time, whatever the ping is for.
  set("grpc.http2.ping_timeout_ms", Milliseconds(timeout));
  // No limit of our own on pings without data: a worker that computes for minutes sends none.
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

// The settings of both ends; `set` is called with the name and the value of an argument.
template <typename Set>
void SetCommon(const GrpcSettings& settings, Set set) {
  SetKeepalive(settings.keepalive_time, settings.keepalive_timeout, set);
  set(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, static_cast<int>(settings.window_bytes));
  // A message in one frame of HTTP/2. Each frame ends a slice of what arrives, and by default
  // frames have 16 KiB: the reduction would find a piece that ends in one slice of a worker and
  // another that ends in another's every 8 KiB, and gather each in a copy.
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, static_cast<int>(kMaxMessageBytes));
  set(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, static_cast<int>(kMaxMessageBytes));
  set(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, static_cast<int>(kMaxMessageBytes));
  set(GRPC_ARG_MAX_METADATA_SIZE, static_cast<int>(kMaxMetadataBytes));
  // From 1.58 on, gRPC refuses only some calls above the limit, but all above this one.
  set("grpc.absolute_max_metadata_size", static_cast<int>(kMaxMetadataBytes));
}

}  // namespace

void ApplyKeepalive(absl::Duration time, absl::Duration timeout, grpc::ServerBuilder& builder) {
  SetKeepalive(time, timeout,
               [&](const char* name, int value) { builder.AddChannelArgument(name, value); });
}

void Apply(const GrpcServerSettings& settings, grpc::ServerBuilder& builder) {
  SetCommon(settings.common,
            [&](const char* name, int value) { builder.AddChannelArgument(name, value); });
  // The default is five minutes, and would disconnect every client of Basin. Half the interval of
  // the clients, so that network jitter does not count as abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(settings.common.keepalive_time / 2));
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Milliseconds(settings.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(settings.streams_per_connection));
  // Two servers on one port would share its connections at random; the second must fail instead.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Gradients do not shrink, and a small compressed message can stand for a huge one.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  if (settings.quota_bytes > 0) {
    grpc::ResourceQuota quota("basin");
    quota.Resize(settings.quota_bytes);
    builder.SetResourceQuota(quota);
  }
}

grpc::ChannelArguments ClientArguments(const GrpcSettings& settings) {
  grpc::ChannelArguments arguments;
  SetCommon(settings, [&](const char* name, int value) { arguments.SetInt(name, value); });
  // Channels to one address share a connection otherwise.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Retries would keep copies of sent messages; Basin resends by itself.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // DNS has only the address of the service, which may change with a pod.
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 1000);
  // A proxy that the environment names is for the internet, not for the aggregator.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

}  // namespace basin
