// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/run.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/simulation/world.h"

namespace basin::simulation {

Scenario MakeScenario(const Options& options) {
  Scenario scenario = DrawScenario(options.seed, options.late, options.names, options.shards);
  if (options.faults.has_value()) {
    std::vector<Fault> kept;
    for (const uint32_t position : *options.faults) {
      if (position < scenario.faults.size()) kept.push_back(scenario.faults[position]);
    }
    scenario.faults = std::move(kept);
  }
  if (options.rounds.has_value()) scenario.rounds = std::min(scenario.rounds, *options.rounds);
  scenario.bug = options.bug;
  return scenario;
}

Result Simulate(const Options& options, Detail detail) {
  World world(MakeScenario(options), detail);
  world.Run(std::numeric_limits<SimTime>::max());
  Result result;
  result.violation = world.checker.violation();
  result.trace_hash = world.trace.hash();
  result.coverage = world.coverage;
  result.ended = world.queue.now();
  result.lines = world.trace.lines();
  return result;
}

Options Shrink(const Options& options, Invariant invariant, uint32_t max_runs) {
  uint32_t runs = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto fails = [&](const Options& candidate) {
    if (runs >= max_runs) return false;
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(30)) return false;
    ++runs;
    return Simulate(candidate, Detail::kNone).violation.invariant == invariant;
  };
  std::vector<uint32_t> kept;
  if (options.faults.has_value()) {
    kept = *options.faults;
  } else {
    kept.resize(MakeScenario(options).faults.size());
    std::iota(kept.begin(), kept.end(), 0);
  }
  Options best = options;
  for (size_t block = std::max<size_t>(kept.size() / 2, 1); !kept.empty();) {
    bool dropped = false;
    for (size_t at = 0; at < kept.size();) {
      const size_t end = std::min(at + block, kept.size());
      std::vector<uint32_t> fewer(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(at));
      fewer.insert(fewer.end(), kept.begin() + static_cast<std::ptrdiff_t>(end), kept.end());
      Options candidate = options;
      candidate.faults = fewer;
      if (fails(candidate)) {
        kept = std::move(fewer);
        dropped = true;
      } else {
        at += block;
      }
    }
    if (block == 1 && !dropped) break;
    block = std::max<size_t>(block / 2, 1);
  }
  best.faults = std::move(kept);
  for (uint32_t rounds = 1; rounds < MakeScenario(best).rounds; ++rounds) {
    Options candidate = best;
    candidate.rounds = rounds;
    if (!fails(candidate)) continue;
    best = std::move(candidate);
    break;
  }
  return best;
}

std::string ReplayCommand(const Options& options) {
  std::string command = absl::StrCat("basin-simulate --seed ", options.seed);
  if (options.faults.has_value()) {
    absl::StrAppend(&command, " --faults ",
                    options.faults->empty() ? "none" : absl::StrJoin(*options.faults, ","));
  }
  if (options.rounds.has_value()) absl::StrAppend(&command, " --rounds ", *options.rounds);
  if (options.bug != PlantedBug::kNone) {
    absl::StrAppend(&command, " --plant ", PlantedBugName(options.bug));
  }
  return absl::StrCat(command, options.late ? " --late" : "", options.names ? " --names" : "",
                      options.shards ? " --shards" : "", " --verbose");
}

}  // namespace basin::simulation
