// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// An aggregator's end that reads the memory of an emulated device.
//
// Thread contract: as DeviceOpener.

#ifndef BASIN_TESTS_RUNTIME_SHARED_MEMORY_EMULATED_OPENER_H_
#define BASIN_TESTS_RUNTIME_SHARED_MEMORY_EMULATED_OPENER_H_

#include <memory>

#include "runtime/shared_memory/segments.h"
#include "tests/accelerator/device/emulated_device.h"

namespace basin {

class EmulatedOpener : public DeviceOpener {
 public:
  kernels::Result<std::shared_ptr<DeviceSegment>> Open(int descriptor,
                                                       uint64_t size) const override {
    return device_->Open(descriptor, size);
  }
  bool failed() const override { return has_failed; }

  const std::shared_ptr<accelerator::FaultPlan> plan = std::make_shared<accelerator::FaultPlan>();
  bool has_failed = false;

 private:
  const std::unique_ptr<accelerator::Device> device_ = accelerator::MakeEmulatedDevice(plan);
};

}  // namespace basin

#endif  // BASIN_TESTS_RUNTIME_SHARED_MEMORY_EMULATED_OPENER_H_
