// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A set of numbers kept as runs [begin, end): which chunks are unsent, unacknowledged, held; which
// samples of an epoch are leased or committed. They come and go in long runs, so the cost of an
// operation is that of the runs it touches, not that of the numbers.
//
// Equal sets have equal runs, because neighbours are always joined.
//
// Thread contract: a plain value.

#ifndef BASIN_PROTOCOL_INTERVALS_H_
#define BASIN_PROTOCOL_INTERVALS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "protocol/fields.h"
#include "protocol/layout.h"

namespace basin {

struct Interval {
  Interval() = default;
  Interval(uint64_t from, uint64_t to) : begin(from), end(to) {}
  Interval(FlatChunks chunks)  // NOLINT(google-explicit-constructor)
      : begin(chunks.first), end(chunks.end_at) {}

  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  auto Fields() const { return std::tie(begin, end); }
};

// REQUIRES: it is of the chunks of a layout.
inline FlatChunks FlatOf(Interval interval) {
  return {static_cast<uint32_t>(interval.begin), static_cast<uint32_t>(interval.end)};
}

class IntervalSet {
 public:
  IntervalSet() = default;
  explicit IntervalSet(const std::vector<Interval>& ranges) { Add(ranges); }

  bool empty() const { return runs_.empty(); }
  uint64_t count() const { return count_; }
  size_t runs() const { return runs_.size(); }
  void Clear() {
    runs_.clear();
    count_ = 0;
  }

  // The lowest run. REQUIRES: !empty().
  Interval First() const { return {runs_.begin()->first, runs_.begin()->second}; }

  // The highest run. REQUIRES: !empty().
  Interval Last() const { return {runs_.rbegin()->first, runs_.rbegin()->second}; }

  // The lowest run that begins at or after `from`, or the rest of the run that contains `from`.
  // Empty if there is none.
  Interval FirstFrom(uint64_t from) const {
    auto it = runs_.upper_bound(from);
    if (it != runs_.begin() && std::prev(it)->second > from) return {from, std::prev(it)->second};
    return it == runs_.end() ? Interval{} : Interval{it->first, it->second};
  }

  // The parts of `range` that are in the set, and those that are not; ascending.
  std::vector<Interval> Inside(Interval range) const {
    std::vector<Interval> inside;
    for (Interval run = FirstFrom(range.begin); !run.empty() && run.begin < range.end;
         run = FirstFrom(run.end)) {
      run.end = std::min(run.end, range.end);
      inside.push_back(run);
    }
    return inside;
  }
  std::vector<Interval> Outside(Interval range) const {
    std::vector<Interval> outside;
    for (const Interval& run : Inside(range)) {
      if (range.begin < run.begin) outside.push_back({range.begin, run.begin});
      range.begin = run.end;
    }
    if (!range.empty()) outside.push_back(range);
    return outside;
  }

  bool Contains(Interval range) const { return Outside(range).empty(); }

  void Add(const std::vector<Interval>& ranges) {
    for (const Interval& range : ranges) Add(range);
  }
  void Add(Interval range) {
    if (range.empty()) return;
    auto it = runs_.upper_bound(range.begin);
    if (it != runs_.begin() && std::prev(it)->second >= range.begin) --it;
    while (it != runs_.end() && it->first <= range.end) {
      range.begin = std::min(range.begin, it->first);
      range.end = std::max(range.end, it->second);
      count_ -= it->second - it->first;
      it = runs_.erase(it);
    }
    runs_.emplace_hint(it, range.begin, range.end);
    count_ += range.size();
  }

  // Returns the parts that were in the set.
  std::vector<Interval> Remove(Interval range) {
    std::vector<Interval> removed = Inside(range);
    for (const Interval& part : removed) {
      auto it = std::prev(runs_.upper_bound(part.begin));
      const Interval run{it->first, it->second};
      it = runs_.erase(it);
      if (part.end < run.end) it = runs_.emplace_hint(it, part.end, run.end);
      if (run.begin < part.begin) runs_.emplace_hint(it, run.begin, part.begin);
      count_ -= part.size();
    }
    return removed;
  }

  void Remove(const std::vector<Interval>& ranges) {
    for (const Interval& range : ranges) Remove(range);
  }
  // Keeps what is in both sets.
  void Intersect(const IntervalSet& other) {
    IntervalSet both;
    for (const Interval& run : Runs()) both.Add(other.Inside(run));
    *this = std::move(both);
  }

  std::vector<Interval> Runs() const {
    std::vector<Interval> runs;
    for (const auto& [begin, end] : runs_) runs.push_back({begin, end});
    return runs;
  }

  auto Fields() const { return std::tie(runs_); }

 private:
  std::map<uint64_t, uint64_t> runs_;  // begin -> end
  uint64_t count_ = 0;                 // Derived.
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_INTERVALS_H_
