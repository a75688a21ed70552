// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/status/status.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "proto/status/detail.h"

namespace basin {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const absl::optional<absl::Cord> detail = status.GetPayload(kStatusDetailUrl);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      detail ? std::string(*detail) : "");
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = status.error_code();
  const bool known =
      code >= grpc::StatusCode::CANCELLED && code <= grpc::StatusCode::UNAUTHENTICATED;
  absl::Status out(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                   status.error_message());
  if (!status.error_details().empty()) {
    out.SetPayload(kStatusDetailUrl, absl::Cord(status.error_details()));
  }
  return out;
}

}  // namespace basin
