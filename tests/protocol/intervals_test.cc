// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/intervals.h"

#include <random>
#include <set>

#include "gtest/gtest.h"

namespace basin {
namespace {

std::set<uint64_t> Expand(const std::vector<Interval>& runs) {
  std::set<uint64_t> numbers;
  for (const Interval& run : runs) {
    for (uint64_t i = run.begin; i < run.end; ++i) numbers.insert(i);
  }
  return numbers;
}

// Compares each operation with a plain set of numbers, and checks that the runs are canonical.
TEST(IntervalSetTest, BehavesAsASetOfNumbers) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    IntervalSet intervals;
    std::set<uint64_t> numbers;
    for (int step = 0; step < 60; ++step) {
      const uint64_t begin = random() % 40;
      const Interval range{begin, begin + random() % 12};
      std::set<uint64_t> inside;
      std::set<uint64_t> outside;
      for (uint64_t i = range.begin; i < range.end; ++i) {
        (numbers.count(i) > 0 ? inside : outside).insert(i);
      }
      ASSERT_EQ(Expand(intervals.Inside(range)), inside);
      ASSERT_EQ(Expand(intervals.Outside(range)), outside);
      if (random() % 2 == 0) {
        intervals.Add(range);
        for (uint64_t i = range.begin; i < range.end; ++i) numbers.insert(i);
      } else {
        ASSERT_EQ(Expand(intervals.Remove(range)), inside);
        for (uint64_t i = range.begin; i < range.end; ++i) numbers.erase(i);
      }
      const std::vector<Interval> runs = intervals.Runs();
      ASSERT_EQ(Expand(runs), numbers);
      ASSERT_EQ(intervals.count(), numbers.size());
      ASSERT_EQ(intervals.empty(), numbers.empty());
      for (size_t i = 1; i < runs.size(); ++i) ASSERT_LT(runs[i - 1].end, runs[i].begin);
      if (numbers.empty()) continue;
      ASSERT_EQ(intervals.First().begin, *numbers.begin());
    }
  }
}

}  // namespace
}  // namespace basin
