// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Breadth-first search through all states of a world. The first violation ends it, with a shortest
// trail to it. States with equal fingerprints (64 bits) count as the same.
//
// The search keeps these fingerprints and the processes of the states in memory, and in files the
// states that it must still go on from and how it reached each state.
//
// A search that reaches a limit is cut: it shows nothing about the states beyond, and the result
// says so. The search finds states in which nothing can happen, but no loops without progress.
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
  bool progress = false;  // Prints one line per depth on stderr.
};

struct SearchResult {
  uint64_t states = 0;
  uint64_t steps = 0;
  uint64_t depth = 0;       // All states up to it were seen, unless the search was cut.
  uint64_t duplicates = 0;  // Steps that led to a known state.
  uint64_t excused = 0;     // Steps that ended the guarantee.
  uint64_t unexplored = 0;  // States that were seen and not gone on from.
  std::array<uint64_t, kEndings> endings{};
  double seconds = 0;  // CPU time.
  uint64_t memory_mib = 0;
  double chance_of_a_miss = 0;         // The chance that two states share a fingerprint.
  std::string cut;                     // The limit that was reached; empty if none.
  std::string violation;               // Empty if there is none.
  std::vector<WorldStep> steps_there;  // To the violation, or to the last state of a cut.
  std::string sizes;

  std::string Summary() const;
};

SearchResult Search(const Bounds& bounds, const Limits& limits);

// Prints on stdout the bounds, the numbers, and for a violation its trail and the command to replay
// it.
void Print(const Bounds& bounds, const SearchResult& result);

// The command that explores these bounds.
std::string CommandOf(const Bounds& bounds);

// Spells steps in short, two characters each.
std::string Spell(const std::vector<WorldStep>& steps);

// Takes spelled steps, and appends lines that describe what happens. Returns what goes wrong, or
// which step cannot be taken; empty if all is well.
std::string Replay(const Bounds& bounds, const std::string& spelled,
                   std::vector<std::string>& trail);

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_SEARCH_H_
