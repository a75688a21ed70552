// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The messages of a session: vocabulary <-> basin/v1/session.proto.
//
// Decoding believes nothing: every name, enum, number and count is held against the rules that
// session.proto gives, before memory is taken for it. What is decoded is a value that could have
// been encoded. Whether it makes sense in the state of the job is for the cores to say.
//
// Thread contract: pure functions.
// Failure: INVALID_ARGUMENT names the field and the rule. Encoding fails with RESOURCE_EXHAUSTED
// when the message is larger than kMaxAssembledBytes; texts are cut and made printable.

#ifndef BASIN_PROTO_WIRE_SESSION_H_
#define BASIN_PROTO_WIRE_SESSION_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/vocabulary/messages.h"

namespace basin::v1 {
class ToAggregator;
class ToWorker;
}  // namespace basin::v1

namespace basin::wire {

// As generated classes. What is decoded has no list that is longer than it may be: nothing counts
// them here, for by then they have their memory; Weigh (bytes.h) does, before they are read.
absl::Status Encode(const ToAggregator& in, v1::ToAggregator* out);
absl::Status Encode(const ToWorker& in, v1::ToWorker* out);
absl::StatusOr<ToAggregator> Decode(const v1::ToAggregator& in);
absl::StatusOr<ToWorker> Decode(const v1::ToWorker& in);

// As the bytes of a whole message. A stream carries them as session_stream.h says.
absl::StatusOr<std::string> Encode(const ToAggregator& in);
absl::StatusOr<std::string> Encode(const ToWorker& in);
absl::StatusOr<ToAggregator> DecodeToAggregator(std::string_view bytes);
absl::StatusOr<ToWorker> DecodeToWorker(std::string_view bytes);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_SESSION_H_
