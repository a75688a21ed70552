// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Opens what the aggregator shares of its device's memory, for a device of this trainer.
//
// Ownership: refers to the device between Use and Drop. Thread contract: any thread. Failure: while
// there is no device, nothing is opened, and results come through memory of the host.

#ifndef BASIN_CLIENT_DEVICE_OPENER_H_
#define BASIN_CLIENT_DEVICE_OPENER_H_

#include <atomic>
#include <memory>
#include <optional>

#include "kernels/cuda/trainer_device.h"
#include "runtime/mutex.h"
#include "runtime/shared_memory/segments.h"

namespace basin::client {

class TrainerOpener : public DeviceOpener {
 public:
  // Memory is opened for this device, if there was none before.
  void Use(kernels::cuda::TrainerDevice& device, int index) {
    MutexLock lock(mutex_);
    if (device_ != nullptr) return;
    device_ = &device;
    index_ = index;
  }
  void Drop() {
    MutexLock lock(mutex_);
    device_ = nullptr;
    index_ = kNone;
  }

  // Whether what was opened can be read by the device of this index. Waits for no call of a device.
  bool OpensFor(int index) const { return index_ == index; }

  kernels::Result<std::shared_ptr<DeviceSegment>> Open(int descriptor,
                                                       uint64_t size) const override {
    MutexLock lock(mutex_);
    if (device_ != nullptr) return device_->Open(descriptor, size);
    return kernels::Failure{kernels::FailureCode::kUnsupported,
                            "no tensor of this process is on a device"};
  }
  bool failed() const override { return false; }

 private:
  static constexpr int kNone = -1;

  mutable Mutex mutex_;  // Held while the device opens, so that Drop waits for that.
  kernels::cuda::TrainerDevice* device_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::atomic<int> index_{kNone};
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_DEVICE_OPENER_H_
