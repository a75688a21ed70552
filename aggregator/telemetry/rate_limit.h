// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Prevents one kind of line from displacing the others: it admits a burst, then a number per
// second. Omitted lines are counted, and the next line of the kind has the count.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_TELEMETRY_RATE_LIMIT_H_
#define BASIN_AGGREGATOR_TELEMETRY_RATE_LIMIT_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace basin::aggregator {

class RateLimit {
 public:
  RateLimit(double burst, double per_second) : burst_(burst), per_second_(per_second) {}

  // Whether one may pass now; if so, how many were left out since the last that did.
  // REQUIRES: `now` does not go back.
  std::optional<uint64_t> Pass(absl::Time now) {
    const double gained =
        last_ == absl::InfinitePast() ? burst_ : absl::ToDoubleSeconds(now - last_) * per_second_;
    tokens_ = std::min(burst_, tokens_ + gained);
    last_ = now;
    if (tokens_ < 1) {
      ++suppressed_;
      return std::nullopt;
    }
    tokens_ -= 1;
    return std::exchange(suppressed_, 0);
  }

 private:
  double burst_;
  double per_second_;
  double tokens_ = 0;
  absl::Time last_ = absl::InfinitePast();
  uint64_t suppressed_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_RATE_LIMIT_H_
