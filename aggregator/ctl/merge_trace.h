// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Joins traces into one. Processes and tracks get new numbers, because those of different machines
// may be the same, and Perfetto finds the names of tracks by their numbers alone; arrows keep
// theirs, and so lead from one trace into another.
//
// Events are read and written one at a time, so that large traces need little memory.
//
// Thread contract: one thread. Failure: INVALID_ARGUMENT names the trace, its line, and what to do.

#ifndef BASIN_AGGREGATOR_CTL_MERGE_TRACE_H_
#define BASIN_AGGREGATOR_CTL_MERGE_TRACE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace basin::aggregator {

class TraceMerger {
 public:
  // `write` takes the text of the joined trace, piece by piece.
  explicit TraceMerger(std::function<absl::Status(const std::string& text)> write)
      : write_(std::move(write)) {}

  // Adds a trace; `next_line` returns false at its end. The last line may be incomplete: its
  // process was killed while it wrote.
  absl::Status Add(const std::string& name,
                   const std::function<bool(std::string& line)>& next_line);
  // The end of the joined trace.
  absl::Status End() { return write_(any_ ? "\n]\n" : "[\n]\n"); }

 private:
  const std::function<absl::Status(const std::string&)> write_;
  bool any_ = false;
  uint64_t processes_ = 0;                   // In all traces so far.
  std::map<uint64_t, uint64_t> renumbered_;  // The processes of the present trace.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_MERGE_TRACE_H_
