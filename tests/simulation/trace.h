// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The trace of a run: always a hash, to compare two runs, and on demand lines.
//
// Thread contract: one run, one trace, one thread.

#ifndef BASIN_TESTS_SIMULATION_TRACE_H_
#define BASIN_TESTS_SIMULATION_TRACE_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/simulation/event_queue.h"
#include "tests/simulation/random.h"

namespace basin::simulation {

enum class Detail : uint8_t {
  kNone = 0,     // Only the hash.
  kNotable = 1,  // Also decisions, faults and verdicts.
  kAll = 2,      // Also every message and frame.
};

class Trace {
 public:
  explicit Trace(Detail detail) : detail_(detail) {}

  bool shows(Detail detail) const { return detail_ >= detail; }
  uint64_t hash() const { return hash_; }
  const std::vector<std::string>& lines() const { return lines_; }

  void Fold(uint64_t word) { hash_ = Mix(hash_, word); }

  // For example: "  1.204533  w2        STAGED lane dense round 3, ballot 1000000000.1"
  void Line(SimTime time, const std::string& actor, const std::string& text) {
    lines_.push_back(
        absl::StrFormat("%4d.%06d  %-10s  %s", time / kSecond, time % kSecond, actor, text));
  }

 private:
  Detail detail_;
  uint64_t hash_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_TRACE_H_
