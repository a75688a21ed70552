// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A device made of host memory, for machines without a GPU. It runs the same code per thread as the
// kernels, thread after thread; it emulates the launch, the barriers, the warp's tree and the
// atomics.
//
// It is as late as a device may be: work that is added to a queue runs in Wait() and not before, so
// that a caller that reads results or overwrites inputs too early gets wrong bits. Any call can be
// made to fail, all calls from one on, as after an error that a CUDA context does not survive, and
// a Wait() can find that the work hangs. Memory is as large as the test wants.
//
// Thread contract: as Device.

#ifndef BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_DEVICE_H_
#define BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_DEVICE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "accelerator/device/device.h"

namespace basin::accelerator {

using kernels::cuda::ReduceTask;

// Counts the calls of a device, and decides which one fails. Shared with the test.
struct FaultPlan {
  static constexpr int64_t kNever = -1;

  ~FaultPlan();  // Frees what a device that hung has not.

  // Calls from 0, or kNever.
  std::atomic<int64_t> failing_call{kNever};
  std::atomic<int64_t> failing_from{kNever};
  std::atomic<bool> hangs{false};  // The next work that is waited for.
  // That many waits for work of a trainer's device may return; the others go on when there are
  // more.
  void AllowWaits(int64_t count);
  std::atomic<int64_t> device_bytes{int64_t{1} << 40};
  std::atomic<int64_t> pinned_bytes{int64_t{1} << 40};

  std::atomic<bool> refuses{false};  // To read memory that other processes share.

  // The observations of the device.
  std::atomic<bool> hung{false};
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> running{0};       // Work that was added and neither ran nor was dropped.
  std::atomic<int64_t> launches{0};      // Launches of reductions; a batch counts once.
  std::atomic<int64_t> shared_bytes{0};  // In memory that is shared with other processes.
  std::atomic<int64_t> most_shared_bytes{0};
  std::atomic<int64_t> reads{0};        // Reads of such memory by the host.
  std::atomic<int64_t> busy_queues{0};  // Queues with such work,
  std::atomic<int64_t> most_busy{0};    // and the most at one time.

  std::mutex mutex;
  std::condition_variable changed;
  int64_t waits_left = int64_t{1} << 40;  // Guarded by mutex.
  struct Allocation {
    size_t bytes = 0;
    bool on_device = false;
  };
  std::map<void*, Allocation> allocated;  // Guarded by mutex.
};

// A launch of the reduction.
void RunOnHost(const ReduceTask& task);

std::unique_ptr<Device> MakeEmulatedDevice(std::shared_ptr<FaultPlan> faults);

}  // namespace basin::accelerator

#endif  // BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_DEVICE_H_
