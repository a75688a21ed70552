// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// absl::Status <-> grpc::Status, with the typed detail (detail.h) going along. The codes are the
// same numbers in both.
//
// Thread contract: pure functions.

#ifndef BASIN_PROTO_STATUS_STATUS_H_
#define BASIN_PROTO_STATUS_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace basin {

grpc::Status ToGrpc(const absl::Status& status);

// A code that gRPC does not have becomes UNKNOWN.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace basin

#endif  // BASIN_PROTO_STATUS_STATUS_H_
