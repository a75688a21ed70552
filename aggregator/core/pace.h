// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How many verdicts a job may have per second (limits.job_rounds): each takes up its part of a
// second, and a verdict waits when those before it take up too much of the future.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_PACE_H_
#define BASIN_AGGREGATOR_CORE_PACE_H_

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "absl/time/time.h"
#include "aggregator/core/config.h"

namespace basin::aggregator {

class Pace {
 public:
  // The earliest time of the next verdict.
  absl::Time Next(const Config& config) const {
    return config.max_job_rounds == 0 ? absl::InfinitePast() : taken_until_ - kBurst;
  }
  // How many of the rounds that the job may have per second it has used up. All of them: the next
  // verdict waits.
  uint32_t Used(absl::Time now, const Config& config) const {
    const uint32_t most = config.max_job_rounds;
    if (most == 0 || taken_until_ <= now) return 0;
    const double used = absl::FDivDuration(taken_until_ - now, kBurst) * most;
    return used < most ? static_cast<uint32_t>(used) : most;
  }
  // There was a verdict.
  void Count(absl::Time now, const Config& config) {
    if (config.max_job_rounds == 0) return;
    taken_until_ = std::max(taken_until_, now) + absl::Seconds(1) / config.max_job_rounds;
  }

  auto Fields() const { return std::tie(taken_until_); }

 private:
  // A job that was quiet may make this many seconds' rounds at once.
  static constexpr absl::Duration kBurst = absl::Seconds(1);

  // The verdicts so far take up the time until then.
  absl::Time taken_until_ = absl::InfinitePast();
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_PACE_H_
