// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Prevents peers that are refused repeatedly from filling the log: one line a minute for each
// address, with the number of omitted ones.
//
// Thread contract: safe from any thread.

#ifndef BASIN_AGGREGATOR_TELEMETRY_REFUSAL_LOG_H_
#define BASIN_AGGREGATOR_TELEMETRY_REFUSAL_LOG_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "aggregator/telemetry/rate_limit.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class RefusalLog {
 public:
  // Whether a line about this address may be written now; if so, how many were left out before it.
  std::optional<uint64_t> Pass(const std::string& address, absl::Time now) {
    MutexLock lock(mutex_);
    latest_ = std::max(latest_, now);
    // When there are more addresses, all are forgotten.
    if (limits_.size() >= kMostAddresses && limits_.count(address) == 0) limits_.clear();
    return limits_.try_emplace(address, 1, 1.0 / 60).first->second.Pass(latest_);
  }

 private:
  static constexpr size_t kMostAddresses = 1024;

  Mutex mutex_;
  absl::Time latest_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::map<std::string, RateLimit> limits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_REFUSAL_LOG_H_
