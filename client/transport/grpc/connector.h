// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The worker's channels over gRPC: a session is a call of basin.v1.Session/Run, a data stream one
// of basin.v1.Exchange/Run, each on a TCP connection of its own. Messages are gRPC's bytes as they
// are: what is sent of a trainer's memory is sent from there, what is received is kept as it came.
//
// Ownership: gRPC's threads exist while a connector does. What a channel was lent, it lets go of
// when gRPC has; a channel that is closed gets it back at once, by cutting its connection.
// Thread contract: as in channel.h. The destructor ends what is left of the connections.
// Failure: as in channel.h; failure.h makes the sentences.

#ifndef BASIN_CLIENT_TRANSPORT_GRPC_CONNECTOR_H_
#define BASIN_CLIENT_TRANSPORT_GRPC_CONNECTOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "client/transport/channel.h"
#include "client/transport/grpc/call.h"
#include "runtime/grpc/settings.h"

namespace basin::client {

class GrpcConnector : public Connector {
 public:
  // `address`: host:port, or another target that gRPC understands. Resolved anew for each
  // connection, so an aggregator may move.
  explicit GrpcConnector(std::string address, const GrpcSettings& settings = {},
                         const CallWindow& window = {});
  ~GrpcConnector() override;
  GrpcConnector(const GrpcConnector&) = delete;
  GrpcConnector& operator=(const GrpcConnector&) = delete;

  // The session is up at once: the hello waits for the connection, which may yet fail.
  std::shared_ptr<SessionChannel> OpenSession(std::shared_ptr<SessionListener> listener) override;
  std::shared_ptr<StreamChannel> OpenStream(uint32_t stream, SessionToken token,
                                            std::shared_ptr<StreamListener> listener) override;

 private:
  const CallOptions options_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_GRPC_CONNECTOR_H_
