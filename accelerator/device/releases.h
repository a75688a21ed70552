// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Gives memory of a device back, on a thread of its own: such a call of the driver waits for what
// the device does, for ever if the device hangs, and whoever uses shared memory last may be an
// event loop.
//
// Ownership: by a device, and by all memory that it may have to give back. Thread contract: any
// thread, except that nobody adds while it is destroyed. Failure: a release that takes longer than
// the patience sets `hangs`, when the next one is added or this ends; it is left behind.

#ifndef BASIN_ACCELERATOR_DEVICE_RELEASES_H_
#define BASIN_ACCELERATOR_DEVICE_RELEASES_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "accelerator/device/memory.h"

namespace basin::accelerator {

class Releases {
 public:
  explicit Releases(std::shared_ptr<std::atomic<bool>> hangs,
                    std::chrono::milliseconds patience = kPatience);
  // Waits for what was added, at most for the patience.
  ~Releases();
  Releases(const Releases&) = delete;
  Releases& operator=(const Releases&) = delete;

  // Calls `release` soon, in the order of the calls. Does not wait.
  void Add(std::function<void()> release);

 private:
  struct Queue;

  const std::chrono::milliseconds patience_;
  const std::shared_ptr<Queue> queue_;  // The thread keeps it, because it may be left behind.
  std::mutex start_mutex_;
  std::thread thread_;  // Guarded by start_mutex_. It starts with the first release.
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_RELEASES_H_
