// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/bytes.h"

#include "absl/strings/str_cat.h"
#include "proto/limits/limits.h"

namespace basin::wire {

absl::Status CheckSize(const google::protobuf::MessageLite& message) {
  const size_t bytes = message.ByteSizeLong();
  if (bytes <= kMaxMessageBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(message.GetTypeName(), " would have ", bytes,
                                                   " bytes, more than ", kMaxMessageBytes));
}

absl::Status Parse(std::string_view bytes, google::protobuf::MessageLite* message) {
  if (bytes.size() > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(message->GetTypeName(), " has ", bytes.size(),
                                                   " bytes, more than ", kMaxMessageBytes));
  }
  if (!message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("not a ", message->GetTypeName()));
  }
  return absl::OkStatus();
}

}  // namespace basin::wire
