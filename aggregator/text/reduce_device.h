// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The value of reduce.device: cpu, cuda (all devices), cuda:N, or auto.
//
// Thread contract: safe from any thread. Failure: INVALID_ARGUMENT with the allowed values.

#ifndef BASIN_AGGREGATOR_TEXT_REDUCE_DEVICE_H_
#define BASIN_AGGREGATOR_TEXT_REDUCE_DEVICE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace basin::aggregator {

struct ReduceDeviceOption {
  enum class Kind : uint8_t { kCpu, kCuda, kAuto };
  Kind kind = Kind::kCpu;
  std::optional<int> index;  // With kCuda: only this device.
};

absl::StatusOr<ReduceDeviceOption> ParseReduceDevice(std::string_view text);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TEXT_REDUCE_DEVICE_H_
