// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/status_detail.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "basin/v1/admin.pb.h"
#include "proto/status/detail.h"
#include "proto/wire/bytes.h"
#include "proto/wire/types.h"

namespace basin::wire {
namespace {

// The error for a status without a detail, which gRPC itself or another service created.
ErrorCode ErrorCodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return ErrorCode::kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return ErrorCode::kInvalidArgument;
    case absl::StatusCode::kNotFound:
      return ErrorCode::kNotFound;
    case absl::StatusCode::kResourceExhausted:
      return ErrorCode::kResourceExhausted;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kAlreadyExists:
      return ErrorCode::kFailedPrecondition;
    case absl::StatusCode::kDataLoss:
      return ErrorCode::kDataCorrupt;
    case absl::StatusCode::kDeadlineExceeded:
      return ErrorCode::kDeadlineExceeded;
    default:
      return ErrorCode::kUnavailable;
  }
}

}  // namespace

absl::StatusCode StatusCodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return absl::StatusCode::kOk;
    case ErrorCode::kInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case ErrorCode::kNotFound:
      return absl::StatusCode::kNotFound;
    case ErrorCode::kResourceExhausted:
      return absl::StatusCode::kResourceExhausted;
    case ErrorCode::kDataCorrupt:
      return absl::StatusCode::kDataLoss;
    case ErrorCode::kDeadlineExceeded:
      return absl::StatusCode::kDeadlineExceeded;
    case ErrorCode::kUnavailable:
    case ErrorCode::kPaused:
      return absl::StatusCode::kUnavailable;
    case ErrorCode::kRoundAborted:
    case ErrorCode::kEvicted:
    case ErrorCode::kSuperseded:
    case ErrorCode::kLineageConflict:
      return absl::StatusCode::kAborted;
    case ErrorCode::kOutcomeUnknown:
      return absl::StatusCode::kUnknown;
    case ErrorCode::kMismatch:
    case ErrorCode::kRunConflict:
    case ErrorCode::kStale:
    case ErrorCode::kContributionChanged:
    case ErrorCode::kVersionMismatch:
    case ErrorCode::kFailedPrecondition:
      return absl::StatusCode::kFailedPrecondition;
  }
  return absl::StatusCode::kUnknown;
}

absl::Status ToStatus(const Error& error) {
  if (error.code == ErrorCode::kOk) return absl::OkStatus();
  const std::string text = EncodeText(error.text);
  absl::Status status(StatusCodeOf(error.code), text);
  v1::Error typed;
  Encode(error, &typed);
  v1::StatusDetail detail;
  detail.set_code(static_cast<int>(status.code()));
  detail.set_message(text);
  // Fails only for more than 2 GiB.
  static_cast<void>(detail.add_details()->PackFrom(typed));
  status.SetPayload(kStatusDetailUrl, absl::Cord(detail.SerializeAsString()));
  return status;
}

Error ToError(const absl::Status& status) {
  if (status.ok()) return {};
  Error error{ErrorCodeOf(status.code()),
              PrintableText({status.message().data(), status.message().size()}, kMaxTextBytes)};
  const absl::optional<absl::Cord> payload = status.GetPayload(kStatusDetailUrl);
  v1::StatusDetail detail;
  if (!payload || !Parse(std::string(*payload), kMaxMessageBytes, &detail).ok()) return error;
  for (const google::protobuf::Any& any : detail.details()) {
    v1::Error typed;
    Checker checker;
    if (!any.Is<v1::Error>() || !any.UnpackTo(&typed)) continue;
    Error decoded = Decode(typed, checker);
    if (checker.ok()) return decoded;
  }
  return error;
}

}  // namespace basin::wire
