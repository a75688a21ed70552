// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/bytes.h"

#include "absl/strings/str_cat.h"

namespace basin::wire {

absl::Status CheckSize(const google::protobuf::MessageLite& message, size_t most) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(message.GetTypeName(), " would have ", bytes, " bytes, more than ", most));
}

absl::Status Parse(std::string_view bytes, size_t most, google::protobuf::MessageLite* message) {
  if (bytes.size() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(message->GetTypeName(), " has ", bytes.size(), " bytes, more than ", most));
  }
  if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("not a ", message->GetTypeName()));
  }
  return absl::OkStatus();
}

}  // namespace basin::wire
