// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The log: one JSON object per line.
//
//   {"time":"2026-11-21T15:33:05.123Z","level":"warning","event":"worker_lost","job":"vision",
//    "worker":"w-7","reason":"was silent for longer than its lease"}
//
// Logging never waits for the reader: lines go through a queue to a thread that writes them. When
// the queue is full, lines are dropped and counted, and the count is logged. The end of the process
// does not wait for long either: a reader that has stopped reading must not keep it alive.
//
// Thread contract: Write from any thread; it does not block. The destructor blocks for a second at
// most. Failure: none of its own; lines that the sink cannot write are lost.

#ifndef BASIN_AGGREGATOR_TELEMETRY_LOG_H_
#define BASIN_AGGREGATOR_TELEMETRY_LOG_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/time/time.h"
#include "aggregator/config/settings.h"
#include "protocol/ids.h"

namespace basin::aggregator {

// Empty and zero fields are omitted from the line.
struct LogLine {
  LogLevel level = LogLevel::kInfo;
  std::string event;  // In snake_case: the kinds of notes, and events of basind.
  JobName job;
  WorkerId worker;
  std::string lane;
  RoundNumber round = 0;
  std::string reason;
  std::optional<uint64_t> members = std::nullopt;  // How many a new generation has.
  // With `serving`: where basind listens, by section of its options.
  std::map<std::string, std::string> addresses = {};
  uint64_t suppressed = 0;  // Lines of this event that were left out before this one.
};

// With its line end. Names and reasons come from peers: whatever their bytes, the result is one
// line of ASCII.
std::string FormatLine(const LogLine& line, absl::Time time);

class Log {
 public:
  // Some lines; called from one thread at a time.
  using Sink = std::function<void(std::string_view lines)>;

  Log(LogLevel least, Sink sink);
  // Writes the waiting lines. A sink that does not finish within a second is left behind with its
  // thread, so its data must live as long as it does.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void Write(const LogLine& line);
  bool Wants(LogLevel level) const { return level >= least_; }

 private:
  struct Queue;

  // Constant after construction.
  const LogLevel least_;
  const std::shared_ptr<Queue> queue_;  // The thread's too, which may outlive the log.
  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_LOG_H_
