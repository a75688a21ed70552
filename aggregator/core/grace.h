// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How long the rounds of a lane wait for those who are late, once there is a quorum. It follows how
// late they were in the last rounds.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_GRACE_H_
#define BASIN_AGGREGATOR_CORE_GRACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace basin::aggregator {

class Grace {
 public:
  // A contribution was complete so long after the quorum.
  void Add(absl::Duration late) {
    late_.push_back(late);
    if (late_.size() > kRemembered) late_.pop_front();
  }

  // The median of what is remembered, plus three times the median of the distances from it; at
  // least `least`, and at most kMost times that. `least` while little is known.
  absl::Duration Window(absl::Duration least) const {
    if (late_.size() < kRemembered / 2) return least;
    const absl::Duration median = Median({late_.begin(), late_.end()});
    std::vector<absl::Duration> distances;
    for (const absl::Duration late : late_) {
      distances.push_back(absl::AbsDuration(late - median));
    }
    return std::clamp(median + 3 * Median(std::move(distances)), least, kMost * least);
  }

  auto Fields() const { return std::tie(late_); }

 private:
  // Enough that a worker which is late now and then does not change the median, and few enough that
  // one which is late in every round does so soon.
  static constexpr size_t kRemembered = 16;
  // The option says in which order of magnitude the rounds wait.
  static constexpr int64_t kMost = 16;

  // REQUIRES: there are some.
  static absl::Duration Median(std::vector<absl::Duration> some) {
    const auto middle = some.begin() + static_cast<std::ptrdiff_t>(some.size() / 2);
    std::nth_element(some.begin(), middle, some.end());
    return *middle;
  }

  std::deque<absl::Duration> late_;  // Oldest first.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_GRACE_H_
