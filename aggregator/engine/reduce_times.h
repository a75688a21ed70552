// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How long the last reductions of a shard took, from the moment when the core asked for one until
// it learned of the result. For a shard of its own that includes the network both ways.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_ENGINE_REDUCE_TIMES_H_
#define BASIN_AGGREGATOR_ENGINE_REDUCE_TIMES_H_

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/time/time.h"

namespace basin::aggregator {

class ReduceTimes {
 public:
  void Add(absl::Duration took) {
    times_[added_ % times_.size()] = took;
    ++added_;
  }

  // Zero before the first one.
  absl::Duration Median() const {
    const size_t count = std::min(added_, times_.size());
    if (count == 0) return absl::ZeroDuration();
    auto sorted = times_;
    const auto middle = sorted.begin() + count / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + count);
    return *middle;
  }

 private:
  // Those of some rounds of a large model: enough that one slow reduction changes nothing.
  std::array<absl::Duration, 128> times_;
  size_t added_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_REDUCE_TIMES_H_
