// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/bytes.h"

#include "absl/strings/str_cat.h"
#include "proto/wire/expansion.h"

namespace basin::wire {

absl::Status CheckSize(const google::protobuf::MessageLite& message, size_t most) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(message.GetTypeName(), " would have ", bytes, " bytes, more than ", most));
}

namespace {

absl::Status CheckBytes(std::string_view bytes, size_t most,
                        const google::protobuf::MessageLite& message) {
  if (bytes.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(message.GetTypeName(), " has ", bytes.size(), " bytes, more than ", most));
}

}  // namespace

absl::StatusOr<uint64_t> Weigh(std::string_view bytes, size_t most,
                               const google::protobuf::Message& message) {
  if (absl::Status status = CheckBytes(bytes, most, message); !status.ok()) return status;
  absl::StatusOr<uint64_t> expanded = ExpandedBytes(bytes, *message.GetDescriptor());
  if (expanded.ok() && *expanded > kMaxExpandedBytes) {
    return absl::InvalidArgumentError(absl::StrCat(message.GetTypeName(), " of ", bytes.size(),
                                                   " bytes would take more than ",
                                                   kMaxExpandedBytes, " bytes of memory"));
  }
  return expanded;
}

absl::Status Parse(std::string_view bytes, size_t most, google::protobuf::MessageLite* message) {
  if (absl::Status status = CheckBytes(bytes, most, *message); !status.ok()) return status;
  if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("not a ", message->GetTypeName()));
  }
  return absl::OkStatus();
}

}  // namespace basin::wire
