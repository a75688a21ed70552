// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Generated classes to and from bytes, within a size.
//
// Internal to the wire layer.
//
// Thread contract: pure functions.

#ifndef BASIN_PROTO_WIRE_BYTES_H_
#define BASIN_PROTO_WIRE_BYTES_H_

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"

namespace basin::wire {

// RESOURCE_EXHAUSTED when it would have more than `most` bytes.
absl::Status CheckSize(const google::protobuf::MessageLite& message, size_t most);

// INVALID_ARGUMENT when there are more than `most` bytes, or it is none of this type.
absl::Status Parse(std::string_view bytes, size_t most, google::protobuf::MessageLite* message);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_BYTES_H_
