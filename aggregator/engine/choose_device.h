// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Decides at the start whether the CPU or devices reduce (reduce.device).
//
// Thread contract: one thread, before there is an engine. Failure: a value that this machine
// cannot satisfy is FAILED_PRECONDITION, in one line with the key, its value and what to do; "auto"
// takes the CPU then, and gives the reason.

#ifndef BASIN_AGGREGATOR_ENGINE_CHOOSE_DEVICE_H_
#define BASIN_AGGREGATOR_ENGINE_CHOOSE_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "accelerator/device/device.h"
#include "accelerator/transfer/reduce_devices.h"
#include "kernels/reducer.h"

namespace basin::aggregator {

// Seconds for the same reduction, by one thread.
struct MeasuredReduction {
  double cpu = 0;
  double device = 0;
};

// The source of devices, and how they are measured.
struct DeviceSource {
  std::function<kernels::Result<int>()> count;
  std::function<kernels::Result<std::unique_ptr<accelerator::Device>>(int index)> open;
  std::function<kernels::Result<MeasuredReduction>(const kernels::Reducer& cpu,
                                                   accelerator::DeviceThread& thread)>
      measure;
  // This process uses none of the devices any more.
  std::function<void()> leave;
};

// Reduces a few MiB, from host memory to host memory, by the CPU and by a device; the faster of
// several times each.
kernels::Result<MeasuredReduction> MeasureReduction(const kernels::Reducer& cpu,
                                                    accelerator::DeviceThread& thread);

struct ReduceChoice {
  std::unique_ptr<accelerator::ReduceDevices> devices;  // Null: the CPU.
  std::string why;  // A sentence for the log; empty if there was no choice.

  // What reduces, in words.
  std::string Describe(const kernels::Reducer& cpu) const {
    return devices == nullptr ? std::string(cpu.name()) : devices->Describe();
  }
  // The part of memory.budget that jobs do not have.
  uint64_t pinned_bytes() const { return devices == nullptr ? 0 : devices->pinned_bytes(); }
};

// `option` is the text of reduce.device; `threads` and `budget` are reduce.threads and
// memory.budget.
absl::StatusOr<ReduceChoice> ChooseReduceDevices(const std::string& option, uint32_t threads,
                                                 uint64_t budget, const DeviceSource& source,
                                                 const kernels::Reducer& cpu);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_CHOOSE_DEVICE_H_
