// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Typed errors as statuses: Error <-> absl::Status with the detail that travels beside a gRPC
// status (basin/v1/admin.proto, StatusDetail).
//
// Thread contract: pure functions.

#ifndef BASIN_PROTO_WIRE_STATUS_DETAIL_H_
#define BASIN_PROTO_WIRE_STATUS_DETAIL_H_

#include "absl/status/status.h"
#include "protocol/error.h"

namespace basin::wire {

// The gRPC code that stands for a typed one where only gRPC's are understood.
absl::StatusCode StatusCodeOf(ErrorCode code);

// The text is made printable and cut. OK for kOk.
absl::Status ToStatus(const Error& error);

// The detail if there is a valid one, else an error for the code.
Error ToError(const absl::Status& status);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_STATUS_DETAIL_H_
