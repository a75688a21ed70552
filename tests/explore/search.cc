// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/search.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/explore/seen.h"
#include "tests/explore/spool.h"

namespace basin::explore {
namespace {

// The letter of each StepKind.
constexpr std::string_view kStepLetters = "cuUdDrtnfwgpqexhmNjvGszXREKSALQCHJ";
constexpr char kStuck[] = "Nothing can happen any more, and the job is stuck: ";

// Returns the CPU time of this process, because other load on the machine must not cut a search.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

uint64_t MemoryMib() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) >> 20;
}

class Searcher {
 public:
  Searcher(const Bounds& bounds, const Limits& limits) : limits_(limits), world_(bounds) {}

  SearchResult Run() {
    AddState(world_.start(), 0, {});
    while (next_->size() > 0 && result_.violation.empty() && result_.cut.empty()) {
      const std::unique_ptr<Spool<State>> level =
          std::exchange(next_, std::make_unique<Spool<State>>());
      level->Rewind();
      first_ = static_cast<uint32_t>(seen_.size() - level->size());
      if (limits_.progress) {
        std::fprintf(stderr, "depth %llu: %llu states, %llu in all, %llu MiB, %.1f s\n",
                     static_cast<unsigned long long>(result_.depth),
                     static_cast<unsigned long long>(level->size()),
                     static_cast<unsigned long long>(seen_.size()),
                     static_cast<unsigned long long>(MemoryMib()), Seconds());
      }
      ExpandLevel(*level);
      if (next_->size() > 0) ++result_.depth;
    }
    result_.unexplored += next_->size();
    if (!result_.cut.empty()) {
      result_.steps_there = WayTo(static_cast<uint32_t>(seen_.size() - 1), nullptr);
    }
    result_.states = seen_.size();
    result_.seconds = Seconds();
    result_.memory_mib = MemoryMib();
    result_.chance_of_a_miss = seen_.ChanceOfAMiss();
    result_.sizes = world_.Sizes();
    return std::move(result_);
  }

 private:
  struct Parent {
    uint32_t state = 0;
    WorldStep step;
  };

  double Seconds() const { return CpuSeconds() - begin_; }

  void AddState(const State& state, uint32_t parent, WorldStep step) {
    if (!seen_.Insert(state.Print())) {
      ++result_.duplicates;
      return;
    }
    parents_.Add({parent, step});
    next_->Add(state);
  }

  void ExpandLevel(Spool<State>& level) {
    State state;
    for (uint64_t i = 0; i < level.size(); ++i) {
      if ((i % 1024 == 0 && OverLimit()) || !level.Next(state)) {
        if (result_.cut.empty()) result_.cut = "the end of the disk";
        result_.unexplored += level.size() - i;
        return;
      }
      Expand(state, first_ + static_cast<uint32_t>(i));
      if (!result_.violation.empty()) return;
    }
  }

  void Expand(const State& state, uint32_t index) {
    steps_.clear();
    const size_t usual = world_.Steps(state, steps_);
    if (usual == 0) {
      std::string why;
      const Ending ending = world_.EndingOf(state, why);
      ++result_.endings[static_cast<size_t>(ending)];
      if (ending == Ending::kStuck) {
        result_.violation = absl::StrCat(kStuck, why);
        result_.steps_there = WayTo(index, nullptr);
        return;
      }
    }
    for (const WorldStep step : steps_) {
      Outcome outcome = world_.Take(state, step);
      ++result_.steps;
      result_.excused += outcome.excused;
      if (!outcome.violation.empty()) {
        result_.violation = std::move(outcome.violation);
        result_.steps_there = WayTo(index, &step);
        return;
      }
      AddState(outcome.state, index, step);
    }
  }

  bool OverLimit() {
    if (!parents_.ok() || !next_->ok()) {
      result_.cut = "the end of the disk";
    } else if (seen_.size() >= limits_.states) {
      result_.cut = absl::StrCat("the limit of ", limits_.states, " states");
    } else if (Seconds() >= limits_.seconds) {
      result_.cut = absl::StrCat("the limit of ", limits_.seconds, " seconds");
    } else if (MemoryMib() >= limits_.memory_mib) {
      result_.cut = absl::StrCat("the limit of ", limits_.memory_mib, " MiB");
    }
    return !result_.cut.empty();
  }

  // Returns the steps from the start to the state, and `last`.
  std::vector<WorldStep> WayTo(uint32_t index, const WorldStep* last) {
    std::vector<WorldStep> steps;
    if (last != nullptr) steps.push_back(*last);
    while (index != 0) {
      const Parent parent = parents_.At(index);
      steps.push_back(parent.step);
      index = parent.state;
    }
    std::reverse(steps.begin(), steps.end());
    return steps;
  }

  const Limits limits_;
  World world_;
  const double begin_ = CpuSeconds();
  Seen seen_;
  Spool<Parent> parents_;  // By state, in order of first sight.
  std::unique_ptr<Spool<State>> next_ = std::make_unique<Spool<State>>();
  uint32_t first_ = 0;  // The index of the current level's first state.
  std::vector<WorldStep> steps_;
  SearchResult result_;
};

}  // namespace

std::string SearchResult::Summary() const {
  std::string text = absl::StrFormat(
      "%d states (two are one with a chance of %.1g), depth %d, %d duplicates, %d cuts, %.1f s of "
      "CPU (%.0f states/s, %d MiB); "
      "endings: %d "
      "done, %d paused, %d halted; the guarantee ended %d times; %s; ",
      states, chance_of_a_miss, depth, duplicates, cut.empty() ? 0 : 1, seconds,
      static_cast<double>(states) / std::max(seconds, 1e-3), memory_mib,
      endings[static_cast<size_t>(Ending::kDone)], endings[static_cast<size_t>(Ending::kPaused)],
      endings[static_cast<size_t>(Ending::kHalted)], excused, sizes);
  if (!violation.empty()) {
    absl::StrAppend(&text, "VIOLATION: ", violation);
  } else if (!cut.empty()) {
    absl::StrAppend(&text, "CUT at ", cut, ", ", unexplored, " states unexplored; no violation");
  } else {
    text += "complete, no violation";
  }
  return text;
}

SearchResult Search(const Bounds& bounds, const Limits& limits) {
  return Searcher(bounds, limits).Run();
}

void Print(const Bounds& bounds, const SearchResult& result) {
  const std::string command = CommandOf(bounds);
  std::printf("%s\n  %s\n", command.c_str(), result.Summary().c_str());
  if (result.violation.empty()) return;
  std::vector<std::string> trail;
  const std::string spelled = Spell(result.steps_there);
  Replay(bounds, spelled, trail);
  for (const std::string& line : trail) std::printf("  %s\n", line.c_str());
  std::printf("  Again: %s --replay %s\n", command.c_str(), spelled.c_str());
}

std::string CommandOf(const Bounds& bounds) {
  std::string command = absl::StrCat("basin-explore --workers ", bounds.workers, " --min ",
                                     bounds.min_workers, " --rounds ", bounds.rounds);
  const auto add = [&](const char* option, uint32_t times, uint32_t usual) {
    if (times != usual) absl::StrAppend(&command, " ", option, " ", times);
  };
  add("--crashes", bounds.crashes, kAllOrders);
  add("--deaths", bounds.deaths, 0);
  add("--restarts", bounds.restarts, 0);
  add("--evictions", bounds.evictions, 0);
  add("--cuts", bounds.cuts, 0);
  add("--stream-cuts", bounds.stream_cuts, 0);
  add("--shards", bounds.shards, 0);
  add("--chunks", bounds.chunks, 1);
  add("--shard-losses", bounds.shard_losses, 0);
  add("--shard-drains", bounds.shard_drains, 0);
  add("--shard-cuts", bounds.shard_cuts, 0);
  add("--shard-joins", bounds.shard_joins, 0);
  add("--jobs", bounds.jobs, 1);
  add("--faults", bounds.faults, Bounds().faults);
  add("--delays", bounds.delays, kAllOrders);
  if (bounds.kind == LaneKind::kCall) command += " --calls";
  if (bounds.node == Node::kShrinks) command += " --node";
  if (bounds.node == Node::kRepresents) command += " --carries";
  if (bounds.late) command += " --late";
  if (!bounds.coordinator_share) command += " --no-share";
  if (!bounds.reduce) command += " --no-reduction";
  if (!bounds.whole_trainer) command += " --fine-trainer";
  for (const RuleSwitch& rule : kRuleSwitches) {
    if (rule.IsOff(bounds.rules)) absl::StrAppend(&command, " --without ", rule.name);
  }
  return command;
}

std::string Spell(const std::vector<WorldStep>& steps) {
  std::string spelled;
  for (const WorldStep& step : steps) {
    spelled += kStepLetters[static_cast<size_t>(step.kind)];
    spelled += static_cast<char>('0' + step.worker);
  }
  return spelled;
}

std::string Replay(const Bounds& bounds, const std::string& spelled,
                   std::vector<std::string>& trail) {
  World world(bounds);
  State state = world.start();
  std::string wrong;
  for (size_t i = 0; i + 1 < spelled.size() && wrong.empty(); i += 2) {
    const size_t kind = kStepLetters.find(spelled[i]);
    const WorldStep step{static_cast<StepKind>(kind), static_cast<uint8_t>(spelled[i + 1] - '0')};
    std::vector<WorldStep> possible;
    world.Steps(state, possible);
    const bool can = std::any_of(possible.begin(), possible.end(), [&](const WorldStep& other) {
      return other.kind == step.kind && other.worker == step.worker;
    });
    if (!can) {
      wrong = absl::StrCat("Step ", i / 2 + 1, ", ", spelled.substr(i, 2), ", cannot be taken.");
      break;
    }
    Outcome outcome = world.Take(state, step, &trail);
    state = outcome.state;
    wrong = std::move(outcome.violation);
  }
  std::vector<WorldStep> rest;
  if (wrong.empty() && world.Steps(state, rest) == 0) {
    std::string why;
    if (world.EndingOf(state, why) == Ending::kStuck) wrong = absl::StrCat(kStuck, why);
  }
  return wrong;
}

}  // namespace basin::explore
