// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How many bytes are in use for something, by how long those live that use them.
//
// Ownership: a gauge is shared by all that count in it. Thread contract: safe from any thread.

#ifndef BASIN_RUNTIME_GAUGE_H_
#define BASIN_RUNTIME_GAUGE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace basin {

using Gauge = std::shared_ptr<std::atomic<uint64_t>>;

inline Gauge NewGauge() { return std::make_shared<std::atomic<uint64_t>>(0); }

// Counts for as long as it lives.
class GaugeCharge {
 public:
  // A null gauge counts nothing.
  GaugeCharge(Gauge gauge, uint64_t bytes) : gauge_(std::move(gauge)), bytes_(bytes) {
    if (gauge_ != nullptr) *gauge_ += bytes_;
  }
  ~GaugeCharge() {
    if (gauge_ != nullptr) *gauge_ -= bytes_;
  }
  GaugeCharge(const GaugeCharge&) = delete;
  GaugeCharge& operator=(const GaugeCharge&) = delete;

 private:
  const Gauge gauge_;
  const uint64_t bytes_;
};

}  // namespace basin

#endif  // BASIN_RUNTIME_GAUGE_H_
