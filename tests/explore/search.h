// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Breadth-first search through all states of a world. The first violation ends it, with a shortest
// trail that leads there. Two states are the same when their fingerprints (128 bits) are.
//
// A search that reaches a limit is cut: it has shown nothing about what lies beyond, and says so.
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
  double seconds = 1e9;
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
  double seconds = 0;
  uint64_t memory_mib = 0;
  std::string cut;                 // Which limit was reached; empty when none.
  std::string violation;           // Empty when there is none.
  std::vector<std::string> trail;  // What leads to the violation, or to the last state of a cut.
  std::string sizes;

  std::string Summary() const;
};

SearchResult Search(const Bounds& bounds, const Limits& limits);

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_SEARCH_H_
