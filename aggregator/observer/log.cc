// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/observer/log.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aggregator/engine/workers.h"

namespace basin::aggregator {
namespace {

// Some seconds of the worst that the rate limits let through.
constexpr size_t kMostWaitingBytes = size_t{4} << 20;

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

}  // namespace

std::string FormatLine(const LogLine& line, absl::Time time) {
  nlohmann::ordered_json json;
  json["time"] = absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", time, absl::UTCTimeZone());
  json["level"] = LevelName(line.level);
  json["event"] = line.event;
  if (!line.job.empty()) json["job"] = line.job;
  if (!line.worker.empty()) json["worker"] = line.worker;
  if (!line.lane.empty()) json["lane"] = line.lane;
  if (line.round > 0) json["round"] = line.round;
  if (!line.reason.empty()) json["reason"] = line.reason;
  if (line.suppressed > 0) json["suppressed"] = line.suppressed;
  // ASCII, so that no character of a peer's turns a terminal; bytes that are no UTF-8 become
  // U+FFFD.
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Log::Log(LogLevel least, Sink sink) : least_(least), sink_(std::move(sink)) {
  thread_ = std::thread([this] {
    NameThread("basin-log");
    Work();
  });
}

Log::~Log() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

void Log::Write(const LogLine& line) {
  if (!Wants(line.level)) return;
  const std::string text = FormatLine(line, absl::Now());
  MutexLock lock(mutex_);
  if (waiting_.size() + text.size() > kMostWaitingBytes) {
    ++dropped_;
    return;
  }
  if (waiting_.empty()) wake_.NotifyAll();
  waiting_ += text;
}

std::string Log::Take() {
  std::string lines = std::exchange(waiting_, {});
  if (const uint64_t dropped = std::exchange(dropped_, 0); dropped > 0) {
    LogLine line;
    line.level = LogLevel::kWarning;
    line.event = "log_dropped";
    line.reason = absl::StrCat(dropped, " lines were dropped: the reader of the log is too slow.");
    lines += FormatLine(line, absl::Now());
  }
  return lines;
}

void Log::Work() {
  while (true) {
    std::string lines;
    {
      MutexLock lock(mutex_);
      while (!stop_ && waiting_.empty() && dropped_ == 0) wake_.Wait(mutex_);
      lines = Take();
      if (lines.empty()) return;
    }
    sink_(lines);
  }
}

}  // namespace basin::aggregator
