// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The file of a worker's timeline, and the thread that writes it.
//
// Thread contract: any thread may call Silence; the rest belongs to the thread that opened it.
// Failure: Open returns an error that names the option, the path and what to do. Later, one warning
// in the log, and the timeline ends: a trace is not worth a training run.

#ifndef BASIN_CLIENT_C_TIMELINE_FILE_H_
#define BASIN_CLIENT_C_TIMELINE_FILE_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "client/c/options.h"
#include "client/transport/timeline.h"
#include "client/transport/timeline_text.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"

namespace basin::c {

class TimelineFile {
 public:
  // `who`: "worker w of job j", for the log. REQUIRES: settings.timeline.path is not empty.
  static absl::StatusOr<std::unique_ptr<TimelineFile>> Open(const Settings& settings, Log log,
                                                            const std::string& who);
  // Writes what was recorded, and the end.
  ~TimelineFile();
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  const std::shared_ptr<client::Timeline>& timeline() const { return timeline_; }

  // Writes nothing to the log after this.
  void Silence();

 private:
  TimelineFile(int file, std::string path, const Settings& settings, Log log, std::string who);
  void Run();
  // Returns why it failed; empty: it did not.
  std::string Write(const std::string& text) const;
  void Report(basin_log_level level, const std::string& text);

  const int file_;
  const std::string path_;
  const uint64_t max_bytes_;
  const std::string who_;
  const MonotonicClock clock_;
  const std::shared_ptr<client::Timeline> timeline_;
  client::TimelineText text_;  // The thread's, from its start.
  Mutex mutex_;
  Log log_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace basin::c

#endif  // BASIN_CLIENT_C_TIMELINE_FILE_H_
