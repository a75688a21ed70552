// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A permission to decide that ends by itself. The engine handles no event while it has none, so the
// process then looks to its core as if it were stopped: nothing is decided, nothing is lost, and
// deadlines are extended when it goes on.
//
// Thread contract: safe from any thread.

#ifndef BASIN_AGGREGATOR_ENGINE_GATE_H_
#define BASIN_AGGREGATOR_ENGINE_GATE_H_

#include <atomic>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "runtime/clock.h"

namespace basin::aggregator {

class Gate {
 public:
  // Closed at first. REQUIRES: the clock outlives the gate.
  explicit Gate(const Clock& clock) : clock_(clock) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  bool open() const { return absl::ToUnixNanos(clock_.Now()) < until_ns_.load(); }
  // By the clock of the gate.
  void OpenUntil(absl::Time until) { until_ns_.store(absl::ToUnixNanos(until)); }

 private:
  const Clock& clock_;
  std::atomic<int64_t> until_ns_{std::numeric_limits<int64_t>::min()};
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_GATE_H_
