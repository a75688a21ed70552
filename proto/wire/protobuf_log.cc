// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/protobuf_log.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/common.h"

#if GOOGLE_PROTOBUF_VERSION < 4022000
#include "google/protobuf/stubs/logging.h"
#endif

namespace basin::wire {

#if GOOGLE_PROTOBUF_VERSION < 4022000

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

#else

ProtobufLog::ProtobufLog(std::function<void(const std::string& text)> take)
    : take_(std::move(take)) {}

ProtobufLog::~ProtobufLog() = default;

#endif

}  // namespace basin::wire
