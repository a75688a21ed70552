// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Runs many seeds of the modelled world (world.h). In every run the permissions of two leaders must
// not overlap, and at its end one must lead. The first seeds are always the same; fresh ones are
// drawn and printed.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "absl/strings/numbers.h"
#include "tests/aggregator/leadership/world.h"
#include "tests/simulation/random.h"

namespace basin::aggregator {
namespace {

int Main(uint64_t first, uint64_t seeds) {
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + seeds - 1));
  std::fflush(stdout);
  const auto begin = std::chrono::steady_clock::now();
  LeadershipRun sum;
  uint64_t failures = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    simulation::Random random(simulation::Mix(seed, 0x1ead));
    const LeadershipRun run = RunLeadership(
        [&](ChoiceKind kind, uint64_t options) {
          // Most requests go well.
          if (kind == ChoiceKind::kRequest && !random.Chance(15)) return uint64_t{0};
          return random.Below(options);
        },
        true);
    sum.steps += run.steps;
    sum.begins += run.begins;
    sum.ends += run.ends;
    sum.goes_on += run.goes_on;
    sum.released += run.released;
    sum.forgotten += run.forgotten;
    sum.late_writes += run.late_writes;
    if (run.violation.empty()) continue;
    if (++failures <= 5) {
      std::printf("VIOLATION with seed %llu: %s\n  replay: leadership_seeds --from %llu 1\n",
                  static_cast<unsigned long long>(seed), run.violation.c_str(),
                  static_cast<unsigned long long>(seed));
      std::fflush(stdout);
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf(
      "%llu seeds, %llu failed, %llu steps; leads began %llu, ended %llu, went on after a pause "
      "%llu, were given up %llu; records lost %llu, late writes %llu; %.1f s\n",
      static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(failures),
      static_cast<unsigned long long>(sum.steps), static_cast<unsigned long long>(sum.begins),
      static_cast<unsigned long long>(sum.ends), static_cast<unsigned long long>(sum.goes_on),
      static_cast<unsigned long long>(sum.released), static_cast<unsigned long long>(sum.forgotten),
      static_cast<unsigned long long>(sum.late_writes), seconds);
  // A run in which nothing of this happens proves nothing.
  const bool all_happened = sum.begins > 0 && sum.ends > 0 && sum.goes_on > 0 && sum.released > 0 &&
                            sum.forgotten > 0 && sum.late_writes > 0;
  if (seeds >= 1000 && !all_happened) std::printf("something never happened\n");
  return failures == 0 && (seeds < 1000 || all_happened) ? 0 : 1;
}

// Takes the seed from the environment, where the commit determines it, or draws one.
uint64_t FirstFresh() {
  const char* given = std::getenv("FRESH_SEEDS_FROM");
  uint64_t first = 0;
  if (given != nullptr && absl::SimpleAtoi(given, &first)) return first;
  return (uint64_t{1} << 32) + std::random_device()();
}

}  // namespace
}  // namespace basin::aggregator

int main(int argc, char** argv) {
  uint64_t seeds = 20000;
  uint64_t first = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--fresh") {
      first = basin::aggregator::FirstFresh();
    } else if (argument == "--from" && i + 1 < argc && absl::SimpleAtoi(argv[i + 1], &first)) {
      ++i;
    } else if (!absl::SimpleAtoi(argument, &seeds)) {
      std::fputs("usage: leadership_seeds [--fresh | --from SEED] [SEEDS]\n", stderr);
      return 2;
    }
  }
  return basin::aggregator::Main(first, seeds);
}
