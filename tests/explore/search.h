// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Breadth-first search through all states of a world. The first violation ends it, with a shortest
// trail that leads there. Two states are the same when their fingerprints (64 bits) are.
//
// In memory are these fingerprints, and the processes that the states are made of; the states that
// are to be gone on from, and how each was reached, are in files.
//
// A search that reaches a limit is cut: it has shown nothing about what lies beyond, and says so.
// It does not see a loop in which nobody makes progress, only a state in which nothing can happen.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_EXPLORE_SEARCH_H_
#define BASIN_TESTS_EXPLORE_SEARCH_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/explore/world.h"

namespace basin::explore {

struct Limits {
  uint64_t states = 100'000'000;
  double seconds = 1e9;  // CPU time.
  uint64_t memory_mib = 6 * 1024;
  bool progress = false;  // One line per depth on stderr.
};

struct SearchResult {
  uint64_t states = 0;
  uint64_t steps = 0;
  uint64_t depth = 0;       // All states up to it were seen, unless cut.
  uint64_t duplicates = 0;  // Steps that led to a state seen before.
  uint64_t excused = 0;     // Steps with which the guarantee ended.
  uint64_t unexplored = 0;  // States that were seen and not gone on from. Not zero: cut.
  std::array<uint64_t, kEndings> endings{};
  double seconds = 0;  // CPU time.
  uint64_t memory_mib = 0;
  double chance_of_a_miss = 0;         // That two states have one fingerprint.
  std::string cut;                     // Which limit was reached; empty when none.
  std::string violation;               // Empty when there is none.
  std::vector<WorldStep> steps_there;  // To the violation, or to the last state of a cut.
  std::string sizes;

  std::string Summary() const;
};

SearchResult Search(const Bounds& bounds, const Limits& limits);

// On stdout: the bounds, the numbers, and for a violation the way there and how to see it again.
void Print(const Bounds& bounds, const SearchResult& result);

// The command that explores these bounds.
std::string CommandOf(const Bounds& bounds);

// Steps in short, two characters each.
std::string Spell(const std::vector<WorldStep>& steps);

// Takes the steps that were spelled, and appends lines that say what happens. Returns what goes
// wrong, or which step cannot be taken; empty when all is well.
std::string Replay(const Bounds& bounds, const std::string& spelled,
                   std::vector<std::string>& trail);

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_SEARCH_H_
