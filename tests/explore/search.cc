// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/explore/search.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace basin::explore {
namespace {

using Clock = std::chrono::steady_clock;

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
    while (!next_.empty() && result_.violation.empty() && result_.cut.empty()) {
      std::vector<State> level = std::move(next_);
      next_.clear();
      first_ = static_cast<uint32_t>(parents_.size() - level.size());
      if (limits_.progress) {
        std::fprintf(stderr, "depth %llu: %zu states, %zu in all, %llu MiB, %.1f s\n",
                     static_cast<unsigned long long>(result_.depth), level.size(), parents_.size(),
                     static_cast<unsigned long long>(MemoryMib()), Seconds());
      }
      ExpandLevel(level);
      if (!next_.empty()) ++result_.depth;
    }
    result_.unexplored += next_.size();
    if (!result_.cut.empty()) {
      result_.trail = Trail(static_cast<uint32_t>(parents_.size() - 1), nullptr);
    }
    result_.states = parents_.size();
    result_.seconds = Seconds();
    result_.memory_mib = MemoryMib();
    result_.sizes = world_.Sizes();
    return std::move(result_);
  }

 private:
  struct Parent {
    uint32_t state = 0;
    WorldStep step;
  };

  double Seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  void AddState(const State& state, uint32_t parent, WorldStep step) {
    if (!seen_.insert(state.Print()).second) {
      ++result_.duplicates;
      return;
    }
    parents_.push_back({parent, step});
    next_.push_back(state);
  }

  void ExpandLevel(const std::vector<State>& level) {
    for (size_t i = 0; i < level.size(); ++i) {
      if (i % 1024 == 0 && OverLimit()) {
        result_.unexplored += level.size() - i;
        return;
      }
      Expand(level[i], first_ + static_cast<uint32_t>(i));
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
        result_.violation =
            absl::StrCat("Nothing can happen any more, and the job is stuck: ", why);
        result_.trail = Trail(index, nullptr);
        return;
      }
    }
    for (const WorldStep step : steps_) {
      Outcome outcome = world_.Take(state, step);
      ++result_.steps;
      result_.excused += outcome.excused;
      if (!outcome.violation.empty()) {
        result_.violation = std::move(outcome.violation);
        result_.trail = Trail(index, &step);
        return;
      }
      AddState(outcome.state, index, step);
    }
  }

  bool OverLimit() {
    if (parents_.size() >= limits_.states) {
      result_.cut = absl::StrCat("the limit of ", limits_.states, " states");
    } else if (Seconds() >= limits_.seconds) {
      result_.cut = absl::StrCat("the limit of ", limits_.seconds, " seconds");
    } else if (MemoryMib() >= limits_.memory_mib) {
      result_.cut = absl::StrCat("the limit of ", limits_.memory_mib, " MiB");
    }
    return !result_.cut.empty();
  }

  // The steps from the start to the state, and `last`, taken again with words.
  std::vector<std::string> Trail(uint32_t index, const WorldStep* last) {
    std::vector<WorldStep> steps;
    if (last != nullptr) steps.push_back(*last);
    for (; index != 0; index = parents_[index].state) steps.push_back(parents_[index].step);
    std::reverse(steps.begin(), steps.end());
    std::vector<std::string> trail;
    State state = world_.start();
    for (const WorldStep step : steps) state = world_.Take(state, step, &trail).state;
    return trail;
  }

  const Limits limits_;
  World world_;
  const Clock::time_point begin_ = Clock::now();
  absl::flat_hash_set<Fingerprint, FingerprintHash> seen_;
  std::vector<Parent> parents_;  // By state, in order of first sight.
  std::vector<State> next_;
  uint32_t first_ = 0;  // Index of the current level's first state.
  std::vector<WorldStep> steps_;
  SearchResult result_;
};

}  // namespace

std::string SearchResult::Summary() const {
  std::string text = absl::StrFormat(
      "%d states, %d steps, depth %d, in %.1f s (%.0f states/s, %d MiB); %s; endings: %d done, %d "
      "paused, %d halted; %d excused forks; ",
      states, steps, depth, seconds, static_cast<double>(states) / std::max(seconds, 1e-3),
      memory_mib, sizes, endings[static_cast<size_t>(Ending::kDone)],
      endings[static_cast<size_t>(Ending::kPaused)], endings[static_cast<size_t>(Ending::kHalted)],
      excused);
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

}  // namespace basin::explore
