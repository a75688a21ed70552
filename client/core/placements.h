// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The placements that the aggregator of this session has sent.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_PLACEMENTS_H_
#define BASIN_CLIENT_CORE_PLACEMENTS_H_

#include <cstddef>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "protocol/placement.h"

namespace basin::client {

class Placements {
 public:
  // Those that are kept beside the ones in use, for lanes that this worker has yet to register. If
  // it meets one that it has forgotten, a new session names it again.
  static constexpr size_t kKept = 256;

  // Null: it was not sent, or is forgotten.
  const Placement* Find(PlacementNumber number) const {
    const auto found = known_.find(number);
    return found == known_.end() ? nullptr : &found->second;
  }
  // The one of the next rounds, as far as is known; null if they have everything on the
  // coordinator's own shard.
  const Placement* Present() const { return Find(present_); }
  void Take(Placement placement) {
    const PlacementNumber number = placement.number;
    const bool fresh = known_.insert_or_assign(number, std::move(placement)).second;
    if (fresh) present_ = number;
  }
  // A verdict says which one the next round uses. Returns whether that is news.
  bool SetPresent(PlacementNumber number) { return std::exchange(present_, number) != number; }
  // `is_used(number)`: whether a lane uses it.
  template <typename IsUsed>
  void ForgetOld(IsUsed&& is_used) {
    for (auto it = known_.begin(); known_.size() > kKept && it != known_.end();) {
      const bool keeps = it->first == present_ || is_used(it->first);
      it = keeps ? std::next(it) : known_.erase(it);
    }
  }
  void Clear() { *this = Placements(); }

  auto Fields() const { return std::tie(known_, present_); }

 private:
  std::map<PlacementNumber, Placement> known_;
  PlacementNumber present_ = 0;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_PLACEMENTS_H_
