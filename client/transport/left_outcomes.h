// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Outcomes that nobody has taken, of calls whose lanes are gone.
//
// A call may be begun long before its outcome is taken, and its lane be let go in between, so that
// an outcome outlives its lane. It ends as it would with the lane: when it is taken, or when the
// next call with this name begins. What is never taken, under names that are never used again, is
// bounded by kMostLeftOutcomes: the oldest is dropped.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_TRANSPORT_LEFT_OUTCOMES_H_
#define BASIN_CLIENT_TRANSPORT_LEFT_OUTCOMES_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "client/core/event.h"
#include "client/transport/outcome.h"

namespace basin::client {

// Many times the calls that a worker can have in flight (limits.lanes is 1024 by default), so that
// it drops only what a trainer has forgotten.
inline constexpr size_t kMostLeftOutcomes = 16384;

class LeftOutcomes {
 public:
  // Returns the handle of the outcome that is dropped for it. REQUIRES: nothing is kept for this
  // handle, and handles only grow.
  std::optional<LaneHandle> Keep(LaneHandle handle, std::string name, RoundOutcome outcome) {
    std::optional<LaneHandle> dropped;
    if (const auto before = by_name_.find(name); before != by_name_.end()) {
      dropped = before->second;
    } else if (left_.size() >= kMostLeftOutcomes) {
      dropped = left_.begin()->first;
    }
    if (dropped.has_value()) Take(*dropped);
    by_name_[name] = handle;
    left_.emplace(handle, Left{std::move(name), std::move(outcome)});
    return dropped;
  }
  // Returns null if there is none.
  const RoundOutcome* Find(LaneHandle handle) const {
    const auto found = left_.find(handle);
    return found == left_.end() ? nullptr : &found->second.outcome;
  }
  // Returns the handle of the outcome that was left under this name.
  std::optional<LaneHandle> Named(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? std::nullopt : std::optional<LaneHandle>(found->second);
  }
  std::optional<RoundOutcome> Take(LaneHandle handle) {
    const auto found = left_.find(handle);
    if (found == left_.end()) return std::nullopt;
    std::optional<RoundOutcome> outcome(std::move(found->second.outcome));
    by_name_.erase(found->second.name);
    left_.erase(found);
    return outcome;
  }
  size_t size() const { return left_.size(); }

 private:
  struct Left {
    std::string name;
    RoundOutcome outcome;
  };
  std::map<LaneHandle, Left> left_;  // The oldest first.
  std::map<std::string, LaneHandle> by_name_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_LEFT_OUTCOMES_H_
