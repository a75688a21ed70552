// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The TCP sockets of one gRPC channel, so that they can be cut.
//
// gRPC finishes the write that is in progress before it closes a connection, also for a call that
// was cancelled and a channel that is gone. So a peer that does not read, because its machine is
// stopped or the network is broken, keeps the memory that is being written until TCP gives up,
// seconds or minutes later. That memory may belong to a trainer. Shutting the socket down ends the
// write at once.
//
// Ownership: gRPC may call back as long as it may open connections for the channel, and keeps the
// callback's data. Each socket is held by an additional descriptor (held_sockets.h).
// Thread contract: safe from any thread. Failure: if no descriptor is left, the socket is not shut
// down, and a write ends with its keepalive timeout.

#ifndef BASIN_CLIENT_TRANSPORT_GRPC_SOCKETS_H_
#define BASIN_CLIENT_TRANSPORT_GRPC_SOCKETS_H_

#include <memory>
#include <vector>

#include "grpcpp/support/channel_arguments.h"
#include "runtime/mutex.h"

namespace basin::client {

class Sockets {
 public:
  Sockets() = default;
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  // Sockets of a channel with these arguments are held by `sockets`.
  static void Watch(const std::shared_ptr<Sockets>& sockets, grpc::ChannelArguments& arguments);

  // Both directions of every connection end now, and of every one that is opened later.
  void Cut();

  // A socket that gRPC has made.
  void Add(int descriptor);

 private:
  Mutex mutex_;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<int> descriptors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_GRPC_SOCKETS_H_
