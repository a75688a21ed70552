// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The whole core of the aggregator: the coordinator decides in terms of sessions, and Delivery
// names the data streams on which its frames go.
//
// Thread contract: a plain value; Step has no effect but its output.
// Failure: see Coordinator and Delivery.

#ifndef BASIN_AGGREGATOR_CORE_AGGREGATOR_H_
#define BASIN_AGGREGATOR_CORE_AGGREGATOR_H_

#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/coordinator.h"
#include "aggregator/core/delivery.h"

namespace basin::aggregator {

class Aggregator {
 public:
  // REQUIRES: as for Coordinator.
  Aggregator(Config config, absl::Time start);

  // Takes one event. Appends what is to be done to `actions`, in order.
  // REQUIRES: `now` does not go back.
  void Step(const Event& event, absl::Time now, std::vector<Action>& actions);

  // When Step(Tick) must be called at the latest; InfiniteFuture when nothing waits.
  absl::Time NextDeadline() const;

  const Coordinator& coordinator() const { return coordinator_; }
  const Delivery& delivery() const { return delivery_; }

  auto Fields() const { return std::tie(coordinator_, delivery_); }

 private:
  // Whether the event is of a shard that is not here any more.
  bool IsOfLostShard(const Event& event) const;
  // `input`: an Input or a SessionLost.
  template <typename In>
  void Decide(const In& input, absl::Time now, std::vector<Action>& actions);

  Coordinator coordinator_;
  Delivery delivery_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_AGGREGATOR_H_
