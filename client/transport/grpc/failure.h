// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Why a stream to the aggregator ended, in a text that names the aggregator, the cause and what to
// check. For some causes gRPC's own texts only describe its transport.
//
// Thread contract: pure functions.

#ifndef BASIN_CLIENT_TRANSPORT_GRPC_FAILURE_H_
#define BASIN_CLIENT_TRANSPORT_GRPC_FAILURE_H_

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace basin::client {

// Never OK: a stream that was ended without an error is UNAVAILABLE. Keeps the code and the typed
// detail. `tls`: the connection was meant to be encrypted. `shard`: its name, where the other end
// is one beside the aggregator.
absl::Status DescribeFailure(const std::string& address, bool tls, const grpc::Status& status,
                             const std::string& shard = "");

// "the aggregator at ADDRESS", or the shard.
std::string DescribePeer(const std::string& address, const std::string& shard);

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_GRPC_FAILURE_H_
