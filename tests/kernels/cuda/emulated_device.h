// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A device made of host memory, for machines without a GPU. It runs the same code per thread as the
// kernels, thread after thread; it emulates the launch, the barriers, the warp's tree and the
// atomics.
//
// It is as late as a device may be: work that is added to a queue runs in Wait() and not before, so
// that a caller who reads results or overwrites inputs too early gets wrong bits. And any call can
// be made to fail.
//
// Thread contract: as Device.

#ifndef BASIN_TESTS_KERNELS_CUDA_EMULATED_DEVICE_H_
#define BASIN_TESTS_KERNELS_CUDA_EMULATED_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "kernels/cuda/device.h"

namespace basin::kernels::cuda {

// Counts the calls of a device, and decides which one fails. Shared with the test.
struct FaultPlan {
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> failing_call{-1};  // From 0; -1 for none.
  std::atomic<int64_t> running{0};        // Work that was added and neither ran nor was dropped.
};

std::unique_ptr<Device> MakeEmulatedDevice(std::shared_ptr<FaultPlan> faults);

}  // namespace basin::kernels::cuda

#endif  // BASIN_TESTS_KERNELS_CUDA_EMULATED_DEVICE_H_
