// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the emulated devices share: calls that a FaultPlan makes fail, and memory that it counts.
//
// Thread contract: any thread.

#ifndef BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_CALLS_H_
#define BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_CALLS_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "accelerator/device/memory.h"
#include "kernels/failure.h"
#include "runtime/device_segment.h"
#include "tests/accelerator/device/emulated_device.h"

namespace basin::accelerator {

class Calls {
 public:
  explicit Calls(std::shared_ptr<FaultPlan> faults) : faults_(std::move(faults)) {}

  std::optional<Failure> Make(const char* call) const {
    if (faults_->hung) return Hangs();
    const int64_t number = faults_->calls++;
    const int64_t from = faults_->failing_from;
    const bool fails =
        number == faults_->failing_call || (from != FaultPlan::kNever && number >= from);
    if (!fails) return std::nullopt;
    return Failure{FailureCode::kDevice, std::string("emulated device: ") + call + " failed"};
  }

  static Failure Hangs() {
    return Failure{FailureCode::kDevice, "emulated device: work has not ended"};
  }

  // Takes the bytes from `left`, one of the amounts of the plan.
  Result<Memory> Allocate(const char* call, size_t size,
                          std::atomic<int64_t> FaultPlan::*left) const;

  // Segments of host memory: one of this process, and one of another.
  Result<std::shared_ptr<DeviceSegment>> AllocateShared(size_t size) const;
  Result<std::shared_ptr<DeviceSegment>> Open(int descriptor, size_t size) const;

  FaultPlan& faults() const { return *faults_; }
  const std::shared_ptr<FaultPlan>& shared() const { return faults_; }

 private:
  std::shared_ptr<FaultPlan> faults_;
};

}  // namespace basin::accelerator

#endif  // BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_CALLS_H_
