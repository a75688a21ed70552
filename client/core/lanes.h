// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The lanes that this process has registered, and where the first round of
// others starts.
//
// A handle is given once: a call lane that is gone leaves its handle behind, so
// that a call with it is refused instead of reaching another lane.
//
// Thread contract: a plain value. A pointer to a lane is valid until that lane
// is removed.

#ifndef BASIN_CLIENT_CORE_LANES_H_
#define BASIN_CLIENT_CORE_LANES_H_

#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/core/lane.h"
#include "protocol/value_iterator.h"

namespace basin::client {

// Lanes by handle.
class LaneMap {
 public:
  using iterator = ValueIterator<std::map<LaneHandle, Lane>::iterator>;
  using const_iterator = ValueIterator<std::map<LaneHandle, Lane>::const_iterator>;

  iterator begin() { return iterator(lanes_.begin()); }
  iterator end() { return iterator(lanes_.end()); }
  const_iterator begin() const { return const_iterator(lanes_.begin()); }
  const_iterator end() const { return const_iterator(lanes_.end()); }
  size_t size() const { return lanes_.size(); }
  bool empty() const { return lanes_.empty(); }
  bool Has(LaneHandle handle) const { return lanes_.count(handle) > 0; }
  // REQUIRES: Has(handle).
  Lane& operator[](LaneHandle handle) { return lanes_.find(handle)->second; }
  const Lane& operator[](LaneHandle handle) const { return lanes_.find(handle)->second; }
  // Each handle is the next one that was not given.
  LaneHandle next() const { return next_; }
  Lane& Add(Lane lane) {
    next_ = lane.handle + 1;
    return lanes_.emplace(lane.handle, std::move(lane)).first->second;
  }
  void Remove(LaneHandle handle) { lanes_.erase(handle); }

  auto Fields() const { return std::tie(lanes_, next_); }

 private:
  std::map<LaneHandle, Lane> lanes_;
  LaneHandle next_ = 0;
};

class Lanes {
 public:
  LaneMap::iterator begin() { return lanes_.begin(); }
  LaneMap::iterator end() { return lanes_.end(); }
  const LaneMap& all() const { return lanes_; }
  size_t size() const { return lanes_.size(); }
  bool Has(LaneHandle handle) const { return lanes_.Has(handle); }
  // REQUIRES: Has(handle).
  Lane& operator[](LaneHandle handle) { return lanes_[handle]; }
  LaneHandle next() const { return lanes_.next(); }

  // The lane that the aggregator means; null when this process has not
  // registered it.
  Lane* Find(LaneIndex index) {
    const auto it = by_index_.find(index);
    return it == by_index_.end() ? nullptr : &lanes_[it->second];
  }
  const Lane* Named(const std::string& name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &lanes_[it->second];
  }
  Lane* Named(const std::string& name) {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &lanes_[it->second];
  }

  // REQUIRES: its handle is next(), and no lane has its name.
  void Add(Lane lane) {
    if (const auto start = starts_.find(lane.name); start != starts_.end()) {
      lane.Start(start->second.round, start->second.chain, start->second.committed);
      starts_.erase(start);
    }
    by_name_.emplace(lane.name, lane.handle);
    lanes_.Add(std::move(lane));
  }
  void Remove(const Lane& lane) {
    if (lane.index.has_value()) ForgetIndex(*lane.index, lane);
    by_name_.erase(lane.name);
    lanes_.Remove(lane.handle);
  }
  // The aggregator has given the lane this index; the lane had the one
  // `before`.
  void SetIndex(const Lane& lane, const std::optional<LaneIndex>& before, LaneIndex index) {
    if (before.has_value() && before != lane.index) ForgetIndex(*before, lane);
    by_index_[index] = lane.handle;
  }
  // The lane has lost its index.
  void ForgetIndex(LaneIndex index, const Lane& lane) {
    // Another lane may have got the number meanwhile.
    const auto it = by_index_.find(index);
    if (it != by_index_.end() && it->second == lane.handle) by_index_.erase(it);
  }
  void ForgetIndexes() { by_index_.clear(); }
  // Where a lane that is not registered yet starts.
  void SetStart(const StartRound& start) { starts_[start.lane] = start; }
  // That lane is gone.
  void ForgetStart(LaneIndex index) {
    for (auto it = starts_.begin(); it != starts_.end(); ++it) {
      if (it->second.index != index) continue;
      starts_.erase(it);
      return;
    }
  }
  void ForgetStarts() { starts_.clear(); }
  template <typename IsHere>
  void ForgetStartsUnless(IsHere&& is_here) {
    for (auto it = starts_.begin(); it != starts_.end();) {
      it = is_here(it->second) ? std::next(it) : starts_.erase(it);
    }
  }

  auto Fields() const { return std::tie(lanes_, by_index_, starts_); }

 private:
  LaneMap lanes_;
  std::map<std::string, LaneHandle> by_name_;
  std::map<LaneIndex, LaneHandle> by_index_;
  std::map<std::string, StartRound> starts_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LANES_H_
