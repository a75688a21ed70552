// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// For protobuf from 22 on, which logs through Abseil.

#include <string>
#include <utility>

#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/wire/protobuf_log.h"

namespace basin::wire {
namespace {

// Abseil's log is that of the whole process, gRPC's lines among it.
class Sink : public absl::LogSink {
 public:
  explicit Sink(const std::function<void(const std::string& text)>& take) : take_(take) {}

  void Send(const absl::LogEntry& entry) override {
    if (!absl::StrContains(entry.source_filename(), "google/protobuf/")) return;
    take_(absl::StrCat(entry.text_message(), " (", entry.source_filename(), ":",
                       entry.source_line(), ")"));
  }

 private:
  const std::function<void(const std::string& text)>& take_;
};

// A global, as for other versions of protobuf.
Sink* sink = nullptr;

}  // namespace

ProtobufLog::ProtobufLog(std::function<void(const std::string& text)> take)
    : take_(std::move(take)) {
  sink = new Sink(take_);
  absl::AddLogSink(sink);
}

ProtobufLog::~ProtobufLog() {
  absl::RemoveLogSink(sink);
  delete std::exchange(sink, nullptr);
}

}  // namespace basin::wire
