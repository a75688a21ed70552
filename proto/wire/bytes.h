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
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/message_lite.h"

namespace basin::wire {

// RESOURCE_EXHAUSTED when it would have more than `most` bytes.
absl::Status CheckSize(const google::protobuf::MessageLite& message, size_t most);

// The memory that a session message will need once it is read and decoded; `message` determines its
// type. INVALID_ARGUMENT if it has more than `most` bytes, or a list is too long.
absl::StatusOr<uint64_t> Weigh(std::string_view bytes, size_t most,
                               const google::protobuf::Message& message);

// INVALID_ARGUMENT if there are more than `most` bytes, or they are not a message of this type.
// REQUIRES: the memory that protobuf needs is bounded: the bytes are few, or were weighed.
absl::Status Parse(std::string_view bytes, size_t most, google::protobuf::MessageLite* message);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_BYTES_H_
