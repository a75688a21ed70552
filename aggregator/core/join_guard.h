// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Counts the fruitless joins of a worker: it joined members that go on, and was lost or left before
// it had ended a round.
//
// Each costs the other members an attempt, two changes of members and the service of the state.
// After Config::fruitless_joins in a row the worker is refused for Config::join_pause. Then it may
// join once more: if that is fruitless too, it is refused again.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_JOIN_GUARD_H_
#define BASIN_AGGREGATOR_CORE_JOIN_GUARD_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "absl/time/time.h"
#include "aggregator/core/config.h"

namespace basin::aggregator {

class JoinGuard {
 public:
  uint32_t fruitless() const { return fruitless_; }
  // Why the worker was lost last. It completes the sentence "The worker ...".
  const std::string& reason() const { return reason_; }

  // The time until which the worker is refused; InfinitePast if it is not.
  absl::Time RefusedUntil(const Config& config) const {
    const bool refused = config.fruitless_joins > 0 && fruitless_ >= config.fruitless_joins;
    return refused ? lost_at_ + config.join_pause : absl::InfinitePast();
  }

  void AddFruitless(absl::Time now, std::string reason) {
    ++fruitless_;
    lost_at_ = now;
    reason_ = std::move(reason);
  }
  // A round has counted the worker.
  void Clear() { *this = JoinGuard(); }

  auto Fields() const { return std::tie(fruitless_, lost_at_, reason_); }

 private:
  uint32_t fruitless_ = 0;  // In a row.
  absl::Time lost_at_;
  std::string reason_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOIN_GUARD_H_
