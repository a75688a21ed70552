// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Passes the notes of the core to the log, the metrics, and the watchers of events.
//
// Thread contract: OnNote from the engine's loop.

#ifndef BASIN_AGGREGATOR_TELEMETRY_REPORTER_H_
#define BASIN_AGGREGATOR_TELEMETRY_REPORTER_H_

#include <map>
#include <string>
#include <tuple>

#include "absl/time/time.h"
#include "aggregator/config/settings.h"
#include "aggregator/engine/runner.h"
#include "aggregator/telemetry/events.h"
#include "aggregator/telemetry/log.h"
#include "aggregator/telemetry/metrics.h"
#include "aggregator/telemetry/rate_limit.h"

namespace basin::aggregator {

// The level of a note: a round is only interesting for debugging; the loss of a worker is
// interesting for every operator.
LogLevel LevelOf(NoteKind kind);

class Reporter : public NoteSink {
 public:
  // REQUIRES: all of them outlive the reporter.
  Reporter(Log& log, Metrics& metrics, EventHistory& events)
      : log_(log), metrics_(metrics), events_(events) {}

  void OnNote(const Note& note, absl::Time now) override;

 private:
  // Whether the worker has withdrawn for the same reason, or was late, a moment ago.
  bool Repeats(const Note& note, absl::Time now);

  Log& log_;
  Metrics& metrics_;
  EventHistory& events_;
  std::map<NoteKind, RateLimit> limits_;
  // When job, worker and lane have said this reason.
  std::map<std::tuple<std::string, std::string, std::string, std::string>, absl::Time> withdrawn_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_REPORTER_H_
