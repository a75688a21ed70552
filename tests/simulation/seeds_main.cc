// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Many seeds: all invariants hold in every run, and the runs together show everything that can
// happen to a job.

#include <chrono>
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "tests/simulation/run.h"

namespace basin::simulation {
namespace {

constexpr uint32_t kMostFailuresTold = 5;

int Main(uint64_t seeds) {
  const auto begin = std::chrono::steady_clock::now();
  Coverage total;
  uint64_t failures = 0;
  Options options;
  for (options.seed = 1; options.seed <= seeds; ++options.seed) {
    const Result result = Simulate(options, Detail::kNone);
    total.Add(result.coverage);
    if (!result.failed()) continue;
    if (++failures > kMostFailuresTold) continue;
    const Options small = Shrink(options, result.violation.invariant, 60);
    const Result shrunk = Simulate(small, Detail::kNotable);
    std::printf("VIOLATION of %s\n  %s\n  replay: %s\n  shrunk: %s\n%s",
                InvariantName(result.violation.invariant), result.violation.text.c_str(),
                ReplayCommand(options).c_str(), ReplayCommand(small).c_str(),
                Describe(MakeScenario(small)).c_str());
    for (const std::string& line : shrunk.lines) std::printf("%s\n", line.c_str());
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%s", Describe(total).c_str());
  std::printf(
      "%llu seeds, %llu failed, %llu verdicts, %llu steps of the cores; %.1f s, %.0f seeds a "
      "minute\n",
      static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(failures),
      static_cast<unsigned long long>(total.verdicts), static_cast<unsigned long long>(total.steps),
      seconds, static_cast<double>(seeds) / seconds * 60);
  // A thousand seeds are too few for what is rare; the release build runs twenty thousand.
  const std::string missing = Missing(total);
  if (!missing.empty()) std::printf("never happened: %s\n", missing.c_str());
  return failures == 0 && (seeds < 20000 || missing.empty()) ? 0 : 1;
}

}  // namespace
}  // namespace basin::simulation

int main(int argc, char** argv) {
  uint64_t seeds = 20000;
  const std::string usage =
      "usage: simulation_seeds [SEEDS]\n\nRuns seeds 1 to SEEDS (default 20000); fails on the "
      "first "
      "violated invariant, and from\n20000 seeds on also when something never happened.\n\n"
      "example: simulation_seeds 1000\n";
  if (argc > 2 || (argc == 2 && !absl::SimpleAtoi(argv[1], &seeds))) {
    const bool help =
        argc == 2 && (std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h");
    std::fputs(usage.c_str(), help ? stdout : stderr);
    return help ? 0 : 2;
  }
  return basin::simulation::Main(seeds);
}
