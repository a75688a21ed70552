// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A trainer's device made of host memory, with streams, for machines without a GPU. It runs the
// same code per thread as the copy kernel.
//
// Copies are as late as they may be: work of a queue runs in Wait() and not before. The work of a
// trainer's stream runs on a thread of the stream, as soon as it may, or when the test releases it.
// So whatever is ordered by waiting for something else than an event gets wrong bits.
//
// Thread contract: as TrainerDevice; a stream from any thread.

#ifndef BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_TRAINER_DEVICE_H_
#define BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_TRAINER_DEVICE_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "accelerator/device/group_queue.h"
#include "accelerator/device/trainer_device.h"
#include "tests/accelerator/device/emulated_device.h"

namespace basin::accelerator {

// A stream of the trainer; its address is the TrainerStream.
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

struct EmulatedTrainerOptions {
  int index = 0;
  bool any_memory = false;  // All memory counts as that of this device.
};

std::unique_ptr<TrainerDevice> MakeEmulatedTrainerDevice(std::shared_ptr<FaultPlan> faults,
                                                         EmulatedTrainerOptions options = {});

// The queue of a node's ranks, whose stream is an EmulatedStream: its work runs on a thread, as
// soon as it may. Its events are those of the emulated devices.
std::unique_ptr<GroupQueue> MakeEmulatedGroupQueue(std::shared_ptr<FaultPlan> faults);

// Memory of the device as a trainer allocates it, which no fault of the plan concerns.
Memory AllocateForTrainer(const std::shared_ptr<FaultPlan>& faults, size_t size);

}  // namespace basin::accelerator

#endif  // BASIN_TESTS_ACCELERATOR_DEVICE_EMULATED_TRAINER_DEVICE_H_
