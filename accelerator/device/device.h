// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The interface of an accelerator for the reduction: memory, ordered queues of work, and errors.
// cuda_device.h implements it with the CUDA runtime; the tests implement it on the host, and make
// any call fail.
//
// Failure: every call that can fail returns a Failure of code kDevice with the device, the call and
// the text of the runtime. Nothing aborts. After a failure other calls may fail as well, but none
// blocks forever: Wait() gives up after kPatience. From then on every call of that device fails at
// once, because the runtime could wait for the same work in any of them; and what its queues and
// memory hold when they are dropped is never freed, because the device may still write to it.
// Thread contract: a Device from any thread; a Queue from one thread at a time.

#ifndef BASIN_ACCELERATOR_DEVICE_DEVICE_H_
#define BASIN_ACCELERATOR_DEVICE_DEVICE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "accelerator/device/memory.h"
#include "kernels/cuda/task.h"
#include "kernels/failure.h"
#include "runtime/device_segment.h"

namespace basin::accelerator {

using kernels::cuda::ReduceBatch;

// Work that runs in the order in which it was added, behind the caller's back.
class Queue {
 public:
  virtual ~Queue() = default;  // REQUIRES: nothing is running; see Wait().

  // REQUIRES for copies and tasks: until Wait() returns, their memory stays valid, their outputs
  // are not read, and their inputs do not change. Host memory is pinned. A trainer may break the
  // last of these in memory of its own, which spoils its contribution and nothing else.
  virtual std::optional<Failure> CopyToDevice(void* device, const void* pinned, size_t size) = 0;
  virtual std::optional<Failure> CopyToHost(void* pinned, const void* device, size_t size) = 0;
  virtual std::optional<Failure> Run(const ReduceBatch& batch) = 0;

  // Returns when all added work is done or has become impossible; fails if any of it failed, or if
  // it has not ended within kPatience.
  virtual std::optional<Failure> Wait() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // For logs: "CUDA device 0 (NVIDIA H200)".
  virtual std::string_view name() const = 0;

  virtual Result<Memory> AllocateOnDevice(size_t size) = 0;
  virtual Result<Memory> AllocatePinned(size_t size) = 0;
  // Memory of a trainer's process (TrainerDevice::AllocateShared), which queues of this device can
  // read. The descriptor stays the caller's. Fails with kInvalidArgument if it is not of that kind
  // or has fewer bytes than `size`, and with kUnsupported if this device cannot read it. May
  // outlive this.
  virtual Result<std::shared_ptr<DeviceSegment>> Open(int descriptor, size_t size) = 0;
  virtual Result<std::unique_ptr<Queue>> MakeQueue() = 0;
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_DEVICE_H_
