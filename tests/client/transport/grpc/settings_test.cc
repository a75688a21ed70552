// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Keepalive on both ends: the settings of a server and of a client fit each other.

#include <memory>

#include "client/transport/grpc/connector.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/grpc/settings.h"
#include "tests/client/transport/grpc/listeners.h"
#include "tests/client/transport/grpc/raw_server.h"
#include "tests/client/transport/grpc/tcp_relay.h"

namespace basin::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The shipped settings with pings ten times as often; an answer may take as long as a busy machine
// needs.
GrpcSettings Quick() {
  GrpcSettings settings;
  settings.keepalive_time /= 10;
  settings.keepalive_timeout = absl::Minutes(1);
  return settings;
}

// A frame header, and eight bytes.
constexpr uint64_t kPingBytes = 17;

TEST(Keepalive, Fault_N13_AStreamWithoutDataLivesAndIsPinged) {
  RawServer server(0, [](grpc::ServerBuilder& builder) {
    GrpcServerSettings settings;
    settings.common = Quick();
    Apply(settings, builder);
  });
  TcpRelay relay(server.port());
  GrpcConnector connector(relay.address(), {}, Quick());
  const auto ears = std::make_shared<Ears>();
  const auto session = connector.OpenSession(ears);
  const auto call = server.AwaitCall();
  // A server disconnects a client after two pings too many.
  relay.AwaitBytesToServer(relay.bytes_to_server() + 12 * kPingBytes);
  EXPECT_EQ(ears->down.size(), 0u);
  session->Send("x");
  EXPECT_THAT(call->AwaitMessage(), StartsWith("x"));  // Then its checksum.
}

// The test above can fail: a server with gRPC's own defaults disconnects such a client.
TEST(Keepalive, Fault_N13_AServerThatWasNotSetUpThrowsTheClientOut) {
  RawServer server;
  GrpcConnector connector(server.address(), {}, Quick());
  const auto ears = std::make_shared<Ears>();
  const auto session = connector.OpenSession(ears);
  server.AwaitCall();
  EXPECT_THAT(*ears->down.Await(), HasSubstr("pinged more often than it allows"));
}

TEST(Keepalive, Fault_N1_APeerThatAnswersNothingIsGivenUp) {
  RawServer server;
  TcpRelay relay(server.port());
  GrpcSettings settings = Quick();
  settings.keepalive_timeout = absl::Milliseconds(200);
  GrpcConnector connector(relay.address(), {}, settings);
  const auto ears = std::make_shared<Ears>();
  const auto session = connector.OpenSession(ears);
  server.AwaitCall();
  relay.Freeze();
  EXPECT_THAT(*ears->down.Await(), HasSubstr("did not answer a keepalive ping"));
}

}  // namespace
}  // namespace basin::client
