// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A device made of host memory, for machines without a GPU. It runs the same code per thread as the
// kernels, thread after thread; it emulates the launch, the barriers, the warp's tree and the
// atomics.
//
// It is as late as a device may be: work that is added to a queue runs in Wait() and not before, so
// that a caller that reads results or overwrites inputs too early gets wrong bits. The work of a
// trainer's stream runs on a thread of the stream, as soon as it may, or when the test releases it;
// so does that of a queue whose user waits for nothing (UseOnThisThread). So whatever is ordered by
// waiting for something else than an event gets wrong bits.
//
// Any call can be made to fail, all calls from one on, as after an error that a CUDA context does
// not survive, and a Wait() can find that the work hangs. Memory is as large as the test wants.
//
// Thread contract: as Device; a stream from any thread.

#ifndef BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_DEVICE_H_
#define BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_DEVICE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "accelerator/device/device.h"

namespace basin::accelerator {

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

  std::function<void()> on_use;  // Called by UseOnThisThread; constant while the device is used.
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

// A stream of the trainer; its address is the Stream.
class EmulatedStream {
 public:
  explicit EmulatedStream(int device = 0) : device_(device) {}
  ~EmulatedStream();  // Runs what it has.
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;

  int device() const { return device_; }

  void Add(std::function<void()> work);
  // Until Release, what is added does not run.
  void Hold();
  void Release();
  // Returns when everything that was added has run.
  void Synchronize();

  std::atomic<bool> captured{false};  // By the trainer, into a graph.

 private:
  void Run();

  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;  // Guarded by mutex_, like these; the first one runs.
  bool held_ = false;
  bool ended_ = false;
  std::thread thread_{[this] { Run(); }};
};

struct EmulatedOptions {
  int index = 0;
  bool any_memory = false;  // All memory counts as that of this device.
};

std::unique_ptr<Device> MakeEmulatedDevice(std::shared_ptr<FaultPlan> faults,
                                           EmulatedOptions options = {});

// Memory of the device as a trainer allocates it, which no fault of the plan concerns.
Memory AllocateForTrainer(const std::shared_ptr<FaultPlan>& faults, size_t size);

// What the launch of a task does, thread after thread.
void RunOnHost(const ReduceTask& task);
void RunOnHost(const CopyTask& task);
void RunOnHost(const MagnitudeTask& task);
void RunOnHost(const NarrowTask& task);
void RunOnHost(const MeasureTask& task);

}  // namespace basin::accelerator

#endif  // BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_DEVICE_H_
