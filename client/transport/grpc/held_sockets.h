// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Second descriptors of gRPC's sockets, and what becomes of both in a fork.
//
// A process that is forked, such as one of a data loader, inherits all descriptors, and the kernel
// ends a connection when the last one is closed. If a fork kept them, the aggregator would not see
// that the worker's process has ended, and would wait for its lease. So in a fork these descriptors
// are no sockets any more. A fork uses no client, and gRPC has no threads there.
//
// The handlers of fork() get no argument, so the descriptors are kept for the whole process.
// Thread contract: safe from any thread. Failure: a socket that gRPC creates at the moment of the
// fork is inherited, because this library does not know it yet.

#ifndef BASIN_CLIENT_TRANSPORT_GRPC_HELD_SOCKETS_H_
#define BASIN_CLIENT_TRANSPORT_GRPC_HELD_SOCKETS_H_

namespace basin::client {

// Returns another descriptor of the socket, or -1 if none is left. Its owner releases it.
int HoldSocket(int descriptor);

// Closes a descriptor that HoldSocket has returned.
void ReleaseSocket(int descriptor);

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_GRPC_HELD_SOCKETS_H_
