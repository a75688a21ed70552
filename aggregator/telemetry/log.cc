// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/telemetry/log.h"

#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aggregator/engine/thread_pool.h"
#include "runtime/mutex.h"

namespace basin::aggregator {
namespace {

// Some seconds of the worst that the rate limits let through.
constexpr size_t kMostWaitingBytes = size_t{4} << 20;

// For the last lines. A working reader needs less; one that has stopped must not block the end of
// the process.
constexpr std::chrono::seconds kEndWithin{1};

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
  if (line.members.has_value()) json["members"] = *line.members;
  if (!line.addresses.empty()) json["addresses"] = line.addresses;
  if (line.suppressed > 0) json["suppressed"] = line.suppressed;
  // ASCII, so that no character of a peer's turns a terminal; bytes that are no UTF-8 become
  // U+FFFD.
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// The state that the log and its thread share.
struct Log::Queue {
  explicit Queue(Sink to) : sink(std::move(to)) {}
  void Work();
  std::string Take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const Sink sink;

  Mutex mutex;
  Condition changed;
  std::string waiting ABSL_GUARDED_BY(mutex);
  uint64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  bool stopped ABSL_GUARDED_BY(mutex) = false;
};

Log::Log(LogLevel least, Sink sink)
    : least_(least), queue_(std::make_shared<Queue>(std::move(sink))) {
  thread_ = std::thread([queue = queue_] {
    NameThread("basin-log");
    queue->Work();
  });
}

Log::~Log() {
  const auto until = std::chrono::steady_clock::now() + kEndWithin;
  bool stopped = false;
  {
    MutexLock lock(queue_->mutex);
    queue_->stop = true;
    queue_->changed.NotifyAll();
    while (!queue_->stopped && std::chrono::steady_clock::now() < until) {
      queue_->changed.WaitUntil(queue_->mutex, until);
    }
    stopped = queue_->stopped;
  }
  if (stopped) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Log::Write(const LogLine& line) {
  if (!Wants(line.level)) return;
  const std::string text = FormatLine(line, absl::Now());
  MutexLock lock(queue_->mutex);
  if (queue_->waiting.size() + text.size() > kMostWaitingBytes) {
    ++queue_->dropped;
    return;
  }
  if (queue_->waiting.empty()) queue_->changed.NotifyAll();
  queue_->waiting += text;
}

std::string Log::Queue::Take() {
  std::string lines = std::exchange(waiting, {});
  if (const uint64_t count = std::exchange(dropped, 0); count > 0) {
    LogLine line;
    line.level = LogLevel::kWarning;
    line.event = "log_dropped";
    line.reason =
        absl::StrCat(count, " lines were dropped because the reader of the log is too slow.");
    lines += FormatLine(line, absl::Now());
  }
  return lines;
}

void Log::Queue::Work() {
  while (true) {
    std::string lines;
    {
      MutexLock lock(mutex);
      while (!stop && waiting.empty() && dropped == 0) changed.Wait(mutex);
      lines = Take();
      if (lines.empty()) {
        stopped = true;
        changed.NotifyAll();
        return;
      }
    }
    sink(lines);
  }
}

}  // namespace basin::aggregator
