// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Runs many seeds: all invariants must hold in every run, and the runs together must show
// everything that can happen to a job. The first seeds are always the same; fresh ones are drawn
// and printed.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/simulation/run.h"
#include "tests/simulation/scenario.h"

namespace basin::simulation {
namespace {

constexpr uint32_t kMostFailuresPrinted = 5;
// The fixed seeds must show everything together; a thousand of them are too few for rare events.
constexpr uint64_t kAllShown = 20000;

void Print(const Options& options, const Result& result) {
  const Options small = Shrink(options, result.violation.invariant, 60);
  const Result shrunk = Simulate(small, Detail::kNotable);
  std::printf("VIOLATION of %s\n  %s\n  replay: %s\n  shrunk: %s\n%s",
              InvariantName(result.violation.invariant), result.violation.text.c_str(),
              ReplayCommand(options).c_str(), ReplayCommand(small).c_str(),
              Describe(MakeScenario(small)).c_str());
  for (const std::string& line : shrunk.lines) std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Returns the kind of fault with this name.
std::optional<FaultKind> FaultKindNamed(const std::string& name) {
  for (uint32_t k = 0; k < kFaultKinds; ++k) {
    const auto kind = static_cast<FaultKind>(k);
    if (name == FaultKindName(kind)) return kind;
  }
  return std::nullopt;
}

bool Draws(const Options& options, FaultKind kind) {
  const std::vector<Fault> faults = MakeScenario(options).faults;
  return std::any_of(faults.begin(), faults.end(),
                     [&](const Fault& fault) { return fault.kind == kind; });
}

// Runs the seeds from `first` on, or only those that draw the fault `only`. Many seeds use one
// thread per processor, few use one thread.
int Main(uint64_t first, uint64_t seeds, bool fresh, bool shards, std::optional<FaultKind> only) {
  if (fresh) {
    std::printf("fresh seeds %llu to %llu\n", static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(first + seeds - 1));
    std::fflush(stdout);
  }
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<uint64_t> next{0};
  std::mutex mutex;  // Guards what follows.
  Coverage total;
  uint64_t failures = 0;
  const auto work = [&] {
    Coverage mine;
    Options options;
    options.shards = shards;
    for (uint64_t taken = next++; taken < seeds; taken = next++) {
      options.seed = first + taken;
      if (only.has_value() && !Draws(options, *only)) continue;
      const Result result = Simulate(options, Detail::kNone);
      mine.Add(result.coverage);
      if (!result.failed()) continue;
      const std::lock_guard<std::mutex> lock(mutex);
      if (++failures <= kMostFailuresPrinted) Print(options, result);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    total.Add(mine);
  };
  // A short run shares the machine with other tests.
  const uint32_t threads = seeds > 100000 ? std::max(1u, std::thread::hardware_concurrency()) : 1;
  std::vector<std::thread> others;
  for (uint32_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::printf("%s", Describe(total).c_str());
  std::printf(
      "%llu of %llu seeds from %llu, %llu failed, %llu verdicts, %llu steps of the cores; %.1f s, "
      "%.0f "
      "seeds a minute\n",
      static_cast<unsigned long long>(total.runs), static_cast<unsigned long long>(seeds),
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(failures),
      static_cast<unsigned long long>(total.verdicts), static_cast<unsigned long long>(total.steps),
      seconds, static_cast<double>(total.runs) / seconds * 60);
  const std::string missing = Missing(total);
  if (!missing.empty()) std::printf("never happened: %s\n", missing.c_str());
  const bool must_show_all = !fresh && !only.has_value() && seeds >= kAllShown;
  return failures == 0 && (!must_show_all || missing.empty()) ? 0 : 1;
}

// Takes the seed from the environment, where the commit determines it, or draws one.
uint64_t FirstFresh() {
  const char* given = std::getenv("FRESH_SEEDS_FROM");
  uint64_t first = 0;
  if (given != nullptr && absl::SimpleAtoi(given, &first)) return first;
  return (uint64_t{1} << 32) + std::random_device()();
}

}  // namespace
}  // namespace basin::simulation

int main(int argc, char** argv) {
  const std::string usage =
      "usage: simulation_seeds [--fresh] [--shards] [--with FAULT] [SEEDS]\n\nRuns seeds 1 to "
      "SEEDS (default "
      "20000); with --fresh as many from FRESH_SEEDS_FROM on,\nor from a seed that is drawn; with "
      "--shards jobs that have shards; with --with only those among them that draw this kind of "
      "fault.\nFails on a violated invariant, "
      "and with 20000 fixed seeds also when something never\nhappened.\n\n"
      "examples: simulation_seeds 1000\n          simulation_seeds --fresh 100000\n"
      "          simulation_seeds --fresh --with TwoAggregators 1000000\n";
  uint64_t seeds = 20000;
  bool fresh = false;
  bool shards = false;
  std::optional<basin::simulation::FaultKind> only;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--fresh") {
      fresh = true;
    } else if (argument == "--shards") {
      shards = true;
    } else if (argument == "--with" && i + 1 < argc) {
      only = basin::simulation::FaultKindNamed(argv[++i]);
      if (!only.has_value()) {
        std::fprintf(stderr, "simulation_seeds: no fault is called %s\n", argv[i]);
        return 2;
      }
    } else if (!absl::SimpleAtoi(argument, &seeds)) {
      const bool help = argument == "--help" || argument == "-h";
      std::fputs(usage.c_str(), help ? stdout : stderr);
      return help ? 0 : 2;
    }
  }
  return basin::simulation::Main(fresh ? basin::simulation::FirstFresh() : 1, seeds, fresh, shards,
                                 only);
}
