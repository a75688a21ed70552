// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The messages of a session: protocol/messages.h <-> basin/v1/session.proto.
//
// Decoding checks every name, enum, number and count against the rules of session.proto before it
// allocates memory for it. A decoded value could have been encoded. The cores decide whether it
// makes sense in the state of the job.
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
#include "protocol/messages.h"

namespace basin::v1 {
class ToAggregator;
class ToWorker;
}  // namespace basin::v1

namespace basin::wire {

// The rules for what a trainer gives, before anything is sent: whether the aggregator would decode
// the message. Its lane and its round come from the client, and are not looked at.
absl::Status Check(const Register& call);
absl::Status Check(const Begin& call);
absl::Status Check(const Announce& call);
absl::Status Check(const Get& call);
absl::Status Check(const LeaseSamples& call);
absl::Status Check(const ReturnSamples& call);
absl::Status Check(const ReportBatch& call);

// Conversion to and from generated classes. REQUIRES: no list is longer than its bound. Lists are
// not counted here, because they already have their memory; Weigh (bytes.h) counts them before they
// are read.
absl::Status Encode(const ToAggregator& in, v1::ToAggregator* out);
absl::Status Encode(const ToWorker& in, v1::ToWorker* out);
absl::StatusOr<ToAggregator> Decode(const v1::ToAggregator& in);
absl::StatusOr<ToWorker> Decode(const v1::ToWorker& in);

// Conversion to and from the bytes of a whole message; session_stream.h sends them on a stream.
absl::StatusOr<std::string> Encode(const ToAggregator& in);
absl::StatusOr<std::string> Encode(const ToWorker& in);
absl::StatusOr<ToAggregator> DecodeToAggregator(std::string_view bytes);
absl::StatusOr<ToWorker> DecodeToWorker(std::string_view bytes);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_SESSION_H_
