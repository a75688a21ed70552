// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What hellos remember of lanes, by the name of the lane.
//
// A job may have thousands of names of calls, and each worker remembers all of them. Nothing may
// therefore search the list of a hello once for each lane.
//
// Ownership: these refer to the hellos, which must outlive them and not change. Thread contract:
// plain values.

#ifndef BASIN_AGGREGATOR_CORE_HISTORIES_H_
#define BASIN_AGGREGATOR_CORE_HISTORIES_H_

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/messages.h"

namespace basin::aggregator {

// The lanes of one hello.
class LanesOfHello {
 public:
  explicit LanesOfHello(const Hello& hello) {
    for (const LaneHistory& lane : hello.lanes) by_name_.emplace(lane.name, &lane);
  }
  // Returns null if the worker remembers nothing of a lane of this name.
  const LaneHistory* Find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string_view, const LaneHistory*> by_name_;
};

// What several workers remember of one lane, in the order of their ids.
class LaneMemories {
 public:
  struct Memory {
    const WorkerId* worker;
    const Hello* hello;
    const LaneHistory* history;
  };

  // REQUIRES: the id is higher than those before.
  void Add(const WorkerId& worker, const Hello& hello, const LaneHistory& history) {
    memories_.push_back({&worker, &hello, &history});
  }
  template <typename Predicate>
  void Remove(Predicate&& forgets) {
    memories_.erase(std::remove_if(memories_.begin(), memories_.end(), forgets), memories_.end());
  }
  // Returns null if the worker remembers nothing of it.
  const LaneHistory* Of(const WorkerId& worker) const {
    const auto found = std::lower_bound(
        memories_.begin(), memories_.end(), worker,
        [](const Memory& memory, const WorkerId& id) { return *memory.worker < id; });
    return found == memories_.end() || *found->worker != worker ? nullptr : found->history;
  }
  std::vector<Memory>::const_iterator begin() const { return memories_.begin(); }
  std::vector<Memory>::const_iterator end() const { return memories_.end(); }
  bool empty() const { return memories_.empty(); }

 private:
  std::vector<Memory> memories_;
};

// By the name of the lane. REQUIRES: no hello names a lane twice.
using Histories = std::map<std::string_view, LaneMemories>;

inline Histories HistoriesOf(const std::map<WorkerId, Hello>& hellos) {
  Histories histories;
  for (const auto& [id, hello] : hellos) {
    for (const LaneHistory& lane : hello.lanes) histories[lane.name].Add(id, hello, lane);
  }
  return histories;
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_HISTORIES_H_
