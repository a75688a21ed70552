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

// What a message of a session will take of memory once it is read and decoded; `message` says of
// which type it is. INVALID_ARGUMENT when there are more than `most` bytes, or a list is too long.
absl::StatusOr<uint64_t> Weigh(std::string_view bytes, size_t most,
                               const google::protobuf::Message& message);

// INVALID_ARGUMENT when there are more than `most` bytes, or it is none of this type. REQUIRES:
// what protobuf makes of them is bounded: they are few, or were weighed.
absl::Status Parse(std::string_view bytes, size_t most, google::protobuf::MessageLite* message);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_BYTES_H_
