// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Generated classes to and from bytes, within the size that a message may have.
//
// Internal to the wire layer.
//
// Thread contract: pure functions.

#ifndef BASIN_PROTO_WIRE_BYTES_H_
#define BASIN_PROTO_WIRE_BYTES_H_

#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"

namespace basin::wire {

// RESOURCE_EXHAUSTED when it is larger than a message may be.
absl::Status CheckSize(const google::protobuf::MessageLite& message);

// INVALID_ARGUMENT when it is larger than a message may be, or is none of this type.
absl::Status Parse(std::string_view bytes, google::protobuf::MessageLite* message);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_BYTES_H_
