// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The lanes that this process has registered, and where the first round of
// others starts.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_LANES_H_
#define BASIN_CLIENT_CORE_LANES_H_

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/core/lane.h"

namespace basin::client {

class Lanes {
 public:
  std::vector<Lane>::iterator begin() { return lanes_.begin(); }
  std::vector<Lane>::iterator end() { return lanes_.end(); }
  const std::vector<Lane>& all() const { return lanes_; }  // By handle.
  size_t size() const { return lanes_.size(); }
  Lane& operator[](LaneHandle handle) { return lanes_[handle]; }

  // The lane that the aggregator means; null when this process has not
  // registered it.
  Lane* Find(LaneIndex index) {
    const auto it = by_index_.find(index);
    return it == by_index_.end() ? nullptr : &lanes_[it->second];
  }
  Lane* Named(const std::string& name) {
    for (Lane& lane : lanes_) {
      if (lane.name == name) return &lane;
    }
    return nullptr;
  }

  // REQUIRES: its handle is size().
  void Add(Lane lane) {
    if (const auto start = starts_.find(lane.name); start != starts_.end()) {
      lane.Start(start->second.round, start->second.chain, start->second.committed);
      starts_.erase(start);
    }
    lanes_.push_back(std::move(lane));
  }
  // The aggregator has given the lane this index; the lane had the one
  // `before`.
  void SetIndex(const Lane& lane, const std::optional<LaneIndex>& before, LaneIndex index) {
    if (before.has_value() && before != lane.index) {
      // Another lane may have got the number meanwhile.
      const auto old = by_index_.find(*before);
      if (old != by_index_.end() && old->second == lane.handle) by_index_.erase(old);
    }
    by_index_[index] = lane.handle;
  }
  void ForgetIndexes() { by_index_.clear(); }
  // Where a lane that is not registered yet starts.
  void SetStart(const StartRound& start) { starts_[start.lane] = start; }
  void ForgetStarts() { starts_.clear(); }

  auto Fields() const { return std::tie(lanes_, by_index_, starts_); }

 private:
  std::vector<Lane> lanes_;
  std::map<LaneIndex, LaneHandle> by_index_;
  std::map<std::string, StartRound> starts_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LANES_H_
