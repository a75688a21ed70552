// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// For protobuf 3.21.

#include "proto/wire/protobuf_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"

namespace basin::wire {
namespace {

// Protobuf's handler is a plain function without data, so the receiver of the lines is a global.
const std::function<void(const std::string& text)>* taker = nullptr;

void Handle(google::protobuf::LogLevel, const char* file, int line, const std::string& message) {
  (*taker)(absl::StrCat(message, " (", file, ":", line, ")"));
}

}  // namespace

ProtobufLog::ProtobufLog(std::function<void(const std::string& text)> take)
    : take_(std::move(take)) {
  taker = &take_;
  google::protobuf::SetLogHandler(Handle);
}

ProtobufLog::~ProtobufLog() {
  google::protobuf::SetLogHandler(nullptr);
  taker = nullptr;
}

}  // namespace basin::wire
