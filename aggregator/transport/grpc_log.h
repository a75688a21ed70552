// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// gRPC's own log.
//
// Thread contract: called before gRPC is used.
//
// Each way of gRPC to log has a file of its own, which CMake chooses.

#ifndef BASIN_AGGREGATOR_TRANSPORT_GRPC_LOG_H_
#define BASIN_AGGREGATOR_TRANSPORT_GRPC_LOG_H_

namespace basin::aggregator {

// Drops the lines that gRPC writes to standard error, unless GRPC_VERBOSITY or GRPC_TRACE asks for
// them: each failed handshake of a stranger is one, without its address. The transport reports
// peers itself, at a limited rate.
void SilenceGrpcLog();

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_GRPC_LOG_H_
