// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The messages of a shard's stream: shard_messages.h <-> basin/v1/shard.proto.
//
// As for a session (proto/wire/session.h), decoding checks every name, enum, number and count
// before it allocates memory for it.
//
// Thread contract: pure functions.
// Failure: INVALID_ARGUMENT names the field and the rule. Encoding fails with RESOURCE_EXHAUSTED
// when one event or action alone is larger than a gRPC message.

#ifndef BASIN_AGGREGATOR_SHARD_WIRE_CODEC_H_
#define BASIN_AGGREGATOR_SHARD_WIRE_CODEC_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregator/engine/shard_messages.h"

namespace basin::aggregator {

// The gRPC messages of one of these, in order: several, if it is larger than one.
absl::StatusOr<std::vector<std::string>> Encode(const FromShard& in);
absl::StatusOr<std::vector<std::string>> Encode(const ToShard& in);

// One gRPC message.
absl::StatusOr<FromShard> DecodeFromShard(std::string_view bytes);
absl::StatusOr<ToShard> DecodeToShard(std::string_view bytes);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_SHARD_WIRE_CODEC_H_
