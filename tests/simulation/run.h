// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Runs a scenario, and shrinks one that fails.
//
// Thread contract: pure functions; runs share nothing.

#ifndef BASIN_TESTS_SIMULATION_RUN_H_
#define BASIN_TESTS_SIMULATION_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/checker.h"
#include "tests/simulation/coverage.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/trace.h"

namespace basin::simulation {

// The differences between a scenario and what its seed draws.
struct Options {
  uint64_t seed = 0;
  std::optional<std::vector<uint32_t>> faults;  // Only these, by position; all if absent.
  std::optional<uint32_t> rounds;               // At most this many per lane.
  PlantedBug bug = PlantedBug::kNone;
  bool late = false;    // Late workers are left out, with every seed.
  bool names = false;   // There are calls under many names, with every seed.
  bool shards = false;  // There are shards.
};

struct Result {
  Violation violation;
  uint64_t trace_hash = 0;
  Coverage coverage;
  SimTime ended = 0;
  std::vector<std::string> lines;  // As many as `detail` asks for.
  bool failed() const { return violation.invariant != Invariant::kNone; }
};

Scenario MakeScenario(const Options& options);

Result Simulate(const Options& options, Detail detail);

// Returns the fewest faults and rounds with which the same invariant still fails, as far as
// `max_runs` runs show. It leaves faults out in halves, quarters and so on down to single ones
// (delta debugging: Zeller and Hildebrandt, 2002), and then rounds. Runs that never end take
// longest, so no run begins after half a minute.
// REQUIRES: Simulate(options) fails with `invariant`.
Options Shrink(const Options& options, Invariant invariant, uint32_t max_runs);

// The command that repeats the run.
std::string ReplayCommand(const Options& options);

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_RUN_H_
