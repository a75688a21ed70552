// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The devices that reduce for an engine, with a pipeline for each of its reduce threads. A thread
// belongs to one device, and a chunk to one thread, so that chunks are spread over the devices by a
// hash of their position.
//
// A device that has failed is not used again by this process: some errors end its context for good,
// and the CPU gives the same bits.
//
// Ownership: owns the devices and, from the start, all of their pinned and device memory.
// Thread contract: a DeviceThread belongs to its reduce thread, but for failed() and Fail(); the
// rest is constant, or a DeviceOpener's.
// Failure: Make reports what did not fit and what to do; a failure while reducing is reported by
// the pipeline.

#ifndef BASIN_ACCELERATOR_TRANSFER_REDUCE_DEVICES_H_
#define BASIN_ACCELERATOR_TRANSFER_REDUCE_DEVICES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "accelerator/device/device.h"
#include "accelerator/transfer/device_pipeline.h"
#include "kernels/failure.h"
#include "runtime/shared_memory/segments.h"

namespace basin::accelerator {

struct ReduceDevice {
  std::string name;  // In metrics: "cuda:0".
  std::unique_ptr<Device> device;
};

// A reduce thread's share of a device.
class DeviceThread {
 public:
  DeviceThread(std::string device, std::unique_ptr<DevicePipeline> pipeline,
               std::shared_ptr<std::atomic<bool>> failed)
      : device_(std::move(device)), pipeline_(std::move(pipeline)), failed_(std::move(failed)) {}

  const std::string& device() const { return device_; }
  const DevicePipeline& pipeline() const { return *pipeline_; }

  // Whether the device has failed, on any thread.
  bool failed() const { return failed_->load(std::memory_order_relaxed); }
  // Returns whether this is the first failure of the device.
  bool Fail() { return !failed_->exchange(true); }

  // Calls `use` with the pipeline, and adds up the time of such calls.
  template <typename Function>
  void Time(Function use) {
    const auto began = std::chrono::steady_clock::now();
    use(*pipeline_);
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  // The seconds since the last time, but for the call in progress.
  double TakeSeconds() { return std::exchange(seconds_, 0); }

 private:
  const std::string device_;
  const std::unique_ptr<DevicePipeline> pipeline_;
  const std::shared_ptr<std::atomic<bool>> failed_;  // One for all threads of the device.
  double seconds_ = 0;
};

class ReduceDevices : public DeviceOpener {
 public:
  // For at least `threads` reduce threads, and one per device. Takes at most a quarter of `budget`,
  // which is memory.budget, as pinned memory.
  static absl::StatusOr<std::unique_ptr<ReduceDevices>> Make(std::vector<ReduceDevice> devices,
                                                             uint32_t threads, uint64_t budget);

  uint32_t threads() const { return static_cast<uint32_t>(threads_.size()); }
  DeviceThread& thread(uint32_t index) { return *threads_[index]; }

  // To be taken from memory.budget.
  uint64_t pinned_bytes() const { return pinned_bytes_; }
  // Whether workers on this machine may share memory of their devices: every reduce thread must be
  // able to read it, so only if there is one device.
  bool CanOpen() const { return devices_.size() == 1; }
  // REQUIRES: CanOpen().
  kernels::Result<std::shared_ptr<DeviceSegment>> Open(int descriptor,
                                                       uint64_t size) const override;
  bool failed() const override { return threads_.front()->failed(); }

  // "CUDA device 0 (NVIDIA H200) and CUDA device 1 (NVIDIA H200)".
  std::string Describe() const;

 private:
  ReduceDevices() = default;

  std::vector<ReduceDevice> devices_;
  std::vector<std::unique_ptr<DeviceThread>> threads_;
  uint64_t pinned_bytes_ = 0;
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_TRANSFER_REDUCE_DEVICES_H_
