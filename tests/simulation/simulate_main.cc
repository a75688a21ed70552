// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Simulated training jobs on the command line.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tests/simulation/run.h"

namespace basin::simulation {
namespace {

constexpr char kHelp[] =
    R"(Runs whole training jobs, with the real state machines of aggregator and clients, on a
simulated network and clock. The seed decides everything: the model, the limits, the delays and the
faults. The same seed gives the same run.

usage: basin-simulate [--seed N | --seeds A..B] [OPTION]...

  --seed N        one run, told line by line (default: one that the clock chooses)
  --seeds A..B    the runs of seeds A to B, B included; only failures are told
  --faults LIST   of the seed's faults only these, by number (0,2,5), or none
  --rounds N      at most N rounds per lane
  --steps N       show only the last N lines
  --verbose       every message and frame, not only decisions, faults and verdicts
  --quiet         only the result
  --jobs N        so many runs at once (default 1; with --seeds)
  --late          who is late is left out, with every seed and not only with some
  --names         calls under many names, with every seed and not only with some
  --shards        chunks are on 2 to 5 shards, with faults of these
  --plant BUG     plant a bug around the cores, to see it found; `--plant list` lists them
  --coverage      with --seeds: how often everything happened
  --help          this text

Exit status: 0 all invariants held, 1 one was violated, 2 usage.

examples:
  basin-simulate --seed 7                 # one run, readable
  basin-simulate --seed 7 --verbose       # with every message
  basin-simulate --seeds 1..20000 --jobs 2
  basin-simulate --seed 7 --plant count-twice
  basin-simulate --seeds 1..20000 --names # names that are let go and used again
  basin-simulate --seeds 1..20000 --shards
)";

struct Arguments {
  Options options;
  bool range = false;
  uint64_t last = 0;
  size_t lines = ~size_t{0};
  Detail detail = Detail::kNotable;
  bool quiet = false;
  bool coverage = false;
  uint32_t jobs = 1;
};

int Usage(const std::string& problem) {
  std::fprintf(stderr, "basin-simulate: %s (see --help)\n", problem.c_str());
  return 2;
}

void PrintFailure(const Options& options, const Result& result) {
  std::printf("seed %llu: VIOLATION of %s, after %.6f s\n  %s\n",
              static_cast<unsigned long long>(options.seed),
              InvariantName(result.violation.invariant),
              static_cast<double>(result.violation.time) / kSecond, result.violation.text.c_str());
  const Options shrunk = Shrink(options, result.violation.invariant, 60);
  std::printf("  replay: %s\n", ReplayCommand(options).c_str());
  const Result small = Simulate(shrunk, Detail::kNotable);
  if (!small.failed()) return;
  std::printf("  shrunk: %s\n  %s\n%s", ReplayCommand(shrunk).c_str(), small.violation.text.c_str(),
              Describe(MakeScenario(shrunk)).c_str());
  for (const std::string& line : small.lines) std::printf("%s\n", line.c_str());
}

int RunOne(const Arguments& arguments) {
  const Options& options = arguments.options;
  const Result result = Simulate(options, arguments.quiet ? Detail::kNone : arguments.detail);
  if (!arguments.quiet) {
    std::printf("%s", Describe(MakeScenario(options)).c_str());
    const size_t from =
        result.lines.size() > arguments.lines ? result.lines.size() - arguments.lines : 0;
    for (size_t i = from; i < result.lines.size(); ++i)
      std::printf("%s\n", result.lines[i].c_str());
  }
  if (result.failed()) {
    std::printf("VIOLATION of %s, after %.6f s\n  %s\n  replay: %s\n",
                InvariantName(result.violation.invariant),
                static_cast<double>(result.violation.time) / kSecond, result.violation.text.c_str(),
                ReplayCommand(options).c_str());
    const Options shrunk = Shrink(options, result.violation.invariant, 60);
    std::printf("  shrunk: %s\n", ReplayCommand(shrunk).c_str());
    return 1;
  }
  std::printf(
      "seed %llu: all invariants held; %llu verdicts, %llu steps of the cores, %.3f s of "
      "simulated time, trace %016llx\n",
      static_cast<unsigned long long>(options.seed),
      static_cast<unsigned long long>(result.coverage.verdicts),
      static_cast<unsigned long long>(result.coverage.steps),
      static_cast<double>(result.ended) / kSecond,
      static_cast<unsigned long long>(result.trace_hash));
  return 0;
}

int RunRange(const Arguments& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<uint64_t> next{arguments.options.seed};
  std::mutex mutex;
  Coverage total;
  uint64_t failures = 0;
  const auto work = [&] {
    Coverage mine;
    while (true) {
      const uint64_t seed = next++;
      if (seed > arguments.last) break;
      Options options = arguments.options;
      options.seed = seed;
      const Result result = Simulate(options, Detail::kNone);
      mine.Add(result.coverage);
      if (!result.failed()) continue;
      const std::lock_guard<std::mutex> lock(mutex);
      ++failures;
      if (arguments.quiet || failures > 20) {
        std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                    result.violation.text.c_str());
      } else {
        PrintFailure(options, result);
      }
      std::fflush(stdout);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    total.Add(mine);
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i < arguments.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (arguments.coverage) std::printf("%s", Describe(total).c_str());
  std::printf(
      "%llu seeds, %llu failed, %llu verdicts, %llu steps of the cores; %.1f s, %.0f seeds a "
      "minute\n",
      static_cast<unsigned long long>(total.runs), static_cast<unsigned long long>(failures),
      static_cast<unsigned long long>(total.verdicts), static_cast<unsigned long long>(total.steps),
      seconds, static_cast<double>(total.runs) / seconds * 60);
  return failures == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  bool seeded = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--help" || flag == "-h") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (flag == "--verbose") {
      arguments.detail = Detail::kAll;
      continue;
    }
    if (flag == "--quiet") {
      arguments.quiet = true;
      continue;
    }
    if (flag == "--late") {
      arguments.options.late = true;
      continue;
    }
    if (flag == "--names") {
      arguments.options.names = true;
      continue;
    }
    if (flag == "--shards") {
      arguments.options.shards = true;
      continue;
    }
    if (flag == "--coverage") {
      arguments.coverage = true;
      continue;
    }
    static constexpr std::string_view kWithValue[] = {"--seed",  "--seeds", "--faults", "--rounds",
                                                      "--steps", "--jobs",  "--plant"};
    bool known = false;
    for (const std::string_view name : kWithValue) known |= flag == name;
    if (!known) return Usage("unknown argument " + std::string(flag));
    if (i + 1 == argc) return Usage(std::string(flag) + " needs a value");
    const std::string value = argv[++i];
    const auto bad = [&] { return Usage(std::string(flag) + " does not take " + value); };
    uint64_t number = 0;
    if (flag == "--seeds") {
      const std::vector<std::string> ends = absl::StrSplit(value, "..");
      if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &arguments.options.seed) ||
          !absl::SimpleAtoi(ends[1], &arguments.last)) {
        return bad();
      }
      arguments.range = seeded = true;
    } else if (flag == "--faults") {
      arguments.options.faults.emplace();
      if (value == "none") continue;
      for (const auto part : absl::StrSplit(value, ',')) {
        uint32_t position = 0;
        if (!absl::SimpleAtoi(part, &position)) return bad();
        arguments.options.faults->push_back(position);
      }
    } else if (flag == "--plant") {
      bool found = false;
      for (uint32_t bug = 0; bug < kPlantedBugs; ++bug) {
        const char* name = PlantedBugName(static_cast<PlantedBug>(bug));
        if (value == "list") std::printf("%s\n", name);
        if (value != name) continue;
        arguments.options.bug = static_cast<PlantedBug>(bug);
        found = true;
      }
      if (value == "list") return 0;
      if (!found) return bad();
    } else if (!absl::SimpleAtoi(value, &number)) {
      return bad();
    } else if (flag == "--seed") {
      arguments.options.seed = number;
      seeded = true;
    } else if (flag == "--rounds") {
      arguments.options.rounds = static_cast<uint32_t>(number);
    } else if (flag == "--steps") {
      arguments.lines = number;
    } else {
      if (number == 0 || number > 1024) return bad();
      arguments.jobs = static_cast<uint32_t>(number);
    }
  }
  if (!seeded) {
    arguments.options.seed = static_cast<uint64_t>(
        std::chrono::system_clock::now().time_since_epoch().count() / 1000 % 1000000);
  }
  return arguments.range ? RunRange(arguments) : RunOne(arguments);
}

}  // namespace
}  // namespace basin::simulation

int main(int argc, char** argv) { return basin::simulation::Main(argc, argv); }
