// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The text of a worker's trace, piece by piece, and its bound. The pieces follow each other in the
// file. Without the last one the array of events is not closed, which the format allows.
//
// Thread contract: one thread. No I/O.

#ifndef BASIN_CLIENT_TRANSPORT_TIMELINE_TEXT_H_
#define BASIN_CLIENT_TRANSPORT_TIMELINE_TEXT_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "client/transport/moments.h"
#include "client/transport/timeline.h"

namespace basin::client {

class TimelineText {
 public:
  // A trace never gets longer than `max_bytes`. REQUIRES: at least kLeastBytes.
  TimelineText(TimelineProcess process, uint64_t max_bytes)
      : process_(std::move(process)), max_bytes_(max_bytes) {}

  // The beginning of the file, with the names of the process.
  std::string Begin();
  // The records, and how many were dropped before them. If they do not fit, those that do, a marker
  // and the end; full() is true then, and nothing may follow.
  std::string Next(const Timeline::Batch& batch, absl::Time now);
  // A marker and the end of the array. REQUIRES: !full().
  std::string End(absl::Time now);

  bool full() const { return full_; }

  static constexpr uint64_t kLeastBytes = 4096;

 private:
  TraceEvent Marker(const std::string& what, absl::Time now) const;
  // Returns whether the event fits, beside the end.
  bool Append(const TraceEvent& event, std::string& text);

  const TimelineProcess process_;
  const uint64_t max_bytes_;
  uint64_t bytes_ = 0;
  std::set<LaneHandle> named_;
  bool full_ = false;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_TIMELINE_TEXT_H_
