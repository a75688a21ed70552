// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Notices a worker that joins, is lost before any round counts it, and joins again.
//
// Each such turn costs the other members an aborted attempt, a change of members and the service of
// the state. After Config::fruitless_joins turns in a row the worker is refused for
// Config::restart_pause. Then it has one more turn: if that is fruitless too, it is refused again.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_RESTART_GUARD_H_
#define BASIN_AGGREGATOR_CORE_RESTART_GUARD_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include "absl/time/time.h"
#include "aggregator/core/config.h"

namespace basin::aggregator {

class RestartGuard {
 public:
  // Turns in a row that ended before a round counted the worker.
  uint32_t fruitless() const { return fruitless_; }
  // Why the last of them ended. It completes the sentence "The worker ...".
  const std::string& reason() const { return reason_; }

  // The time until which the worker is refused; InfinitePast if it is not.
  absl::Time RefusedUntil(const Config& config) const {
    const bool refused = config.fruitless_joins > 0 && fruitless_ >= config.fruitless_joins;
    return refused ? lost_at_ + config.restart_pause : absl::InfinitePast();
  }

  void BeginTurn() { counted_ = false; }
  // A round has counted the worker.
  void Count() { *this = RestartGuard(true); }
  // The worker was a member and was lost; it did not leave.
  void Lose(absl::Time now, std::string reason) {
    if (counted_) return;
    ++fruitless_;
    lost_at_ = now;
    reason_ = std::move(reason);
  }

  RestartGuard() = default;
  auto Fields() const { return std::tie(fruitless_, counted_, lost_at_, reason_); }

 private:
  explicit RestartGuard(bool counted) : counted_(counted) {}

  uint32_t fruitless_ = 0;
  bool counted_ = false;  // A round has counted the present turn.
  absl::Time lost_at_;    // The end of the last fruitless turn.
  std::string reason_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_RESTART_GUARD_H_
