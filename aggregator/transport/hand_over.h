// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Gives gRPC a connection that it has not accepted itself.

#ifndef BASIN_AGGREGATOR_TRANSPORT_HAND_OVER_H_
#define BASIN_AGGREGATOR_TRANSPORT_HAND_OVER_H_

#include "grpcpp/server_builder.h"

namespace basin::aggregator {

// gRPC owns the descriptor afterwards. `socket`: the one that has accepted it, maybe closed by now.
inline void HandOver(int fd, int socket, grpc::experimental::ExternalConnectionAcceptor& acceptor) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.fd = fd;
  // Later versions of gRPC drop connections without it, and pass it on unused.
  connection.listener_fd = socket;
  acceptor.HandleNewConnection(&connection);
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_HAND_OVER_H_
