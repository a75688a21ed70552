// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The memory that a session message needs once protobuf has read it and it is decoded, computed
// from its bytes alone. Two bytes can become a hundred: an empty entry of a list is a tag and a
// length. So before protobuf reads a message, the entries of each of its lists are counted against
// the list's bound, and their memory is added up.
//
// Internal to the wire layer.
//
// Thread contract: pure functions.
// Failure: INVALID_ARGUMENT, with the path of the field, for a list with more entries than it may
// have, and for a field that appears twice and is no list, which protobuf would merge into a longer
// one.

#ifndef BASIN_PROTO_WIRE_EXPANSION_H_
#define BASIN_PROTO_WIRE_EXPANSION_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"

namespace basin::wire {

// The most memory for one message: the largest message of a job needs less.
inline constexpr uint64_t kMaxExpandedBytes = uint64_t{512} << 20;

// At least the bytes that it takes; not all of it is looked at once these are more than
// kMaxExpandedBytes. REQUIRES: `type` is ToAggregator, ToWorker, FromShard or
// ToShard.
absl::StatusOr<uint64_t> ExpandedBytes(std::string_view bytes,
                                       const google::protobuf::Descriptor& type);

// The most entries of a list; 0 for a list without a bound.
uint32_t MostEntries(const google::protobuf::FieldDescriptor& list);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_EXPANSION_H_
