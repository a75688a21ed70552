// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Metrics in the text format of Prometheus. Counters and histograms follow the notes of the core;
// gauges show a snapshot. docs/monitoring.md has the list.
//
// The label of a job is training_job, because Prometheus uses `job` itself. The series of a job
// exist from its admission to its end, so that a peer that invents names adds none.
//
// Thread contract: Count from one thread (the engine's loop); the rest from any.

#ifndef BASIN_AGGREGATOR_TELEMETRY_METRICS_H_
#define BASIN_AGGREGATOR_TELEMETRY_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/telemetry/snapshot.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/histogram.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"

namespace basin::aggregator {

// A number that another component keeps.
struct Total {
  enum class Kind : uint8_t { kCounter, kGauge };

  const char* name;
  const char* help;
  uint64_t value;
  const char* reason = "";  // A label; those of one name follow each other. Empty: no label.
  Kind kind = Kind::kCounter;
};

// What a process has done with bytes, be it the aggregator or a shard.
std::vector<Total> TotalsOfBytes(const ByteCounters& counters);

class Metrics {
 public:
  explicit Metrics(std::string version);
  ~Metrics();

  void Count(const Note& note, absl::Time now);
  // Before there is a core with notes.
  void CountStateFileFailure() { state_file_failures_.Increment(); }

  // Without a snapshot the gauges are left out. `loop_delay`: how long the oldest event has waited
  // for the loop. `totals`: counters that others keep.
  std::string Text(const std::optional<Snapshot>& snapshot, absl::Duration loop_delay,
                   const std::vector<Total>& totals = {}) const;

 private:
  struct JobSeries;

  void AddJob(const JobName& job);
  void RemoveJob(const JobName& job);
  prometheus::Counter& EventCounter(NoteKind kind);
  void CountForJob(JobSeries& series, const Note& note, absl::Time now);

  const std::string version_;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& events_;
  prometheus::Family<prometheus::Counter>& rounds_;
  prometheus::Family<prometheus::Counter>& attempts_;
  prometheus::Family<prometheus::Counter>& credit_stalls_;
  prometheus::Family<prometheus::Counter>& frames_;
  prometheus::Family<prometheus::Counter>& evictions_;
  prometheus::Family<prometheus::Counter>& contributions_;
  prometheus::Family<prometheus::Counter>& unusual_;
  prometheus::Family<prometheus::Counter>& late_;
  prometheus::Family<prometheus::Histogram>& durations_;
  prometheus::Family<prometheus::Histogram>& stragglers_;
  prometheus::Counter& state_file_failures_;

  std::map<NoteKind, prometheus::Counter*> event_counters_;
  std::map<JobName, std::unique_ptr<JobSeries>> jobs_;
};

// The CPU time, memory and files of the process. Reads /proc.
std::vector<prometheus::MetricFamily> ProcessMetrics();

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_METRICS_H_
