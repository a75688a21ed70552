// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The interface of the device that a trainer's tensors are on: copies between that device and the
// host, ordered with the trainer's own streams, and behind the trainer's back.
// cuda_trainer_device.h implements it with the CUDA runtime; the tests implement it on the host,
// and make any call fail.
//
// The order of a copy to the host: an Event is recorded on the trainer's stream, a queue is ordered
// After it, and then the copy is added to the queue. The order of a copy to the device: the same,
// and then the stream is ordered behind the queue with Before. No thread waits for any of it.
//
// Failure: a call returns a Failure of
//   kUnsupported      while the trainer captures the stream into a graph, which cannot hold copies
//                     of one step,
//   kInvalidArgument  for a stream or memory of another device,
//   kDevice           for an error of the runtime, with the device, the call and the text.
// Nothing aborts. After a failure other calls may fail as well, but none blocks forever: the work
// of a queue may take kPatience after the trainer's own work that it is ordered behind. From then
// on every call of that device fails at once, and what its queues and memory hold when they are
// dropped is never freed, because the device may still write to it.
// Thread contract: a TrainerDevice from any thread; an Event and a TransferQueue from one thread at
// a time.

#ifndef BASIN_ACCELERATOR_DEVICE_TRAINER_DEVICE_H_
#define BASIN_ACCELERATOR_DEVICE_TRAINER_DEVICE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "accelerator/device/memory.h"
#include "kernels/cuda/task.h"
#include "kernels/failure.h"
#include "runtime/device_segment.h"

namespace basin::accelerator {

using kernels::cuda::CopyTask;
using kernels::cuda::MagnitudeTask;
using kernels::cuda::MeasureTask;
using kernels::cuda::NarrowTask;

// A stream of the trainer, a cudaStream_t. Null is the default stream of the device.
using TrainerStream = void*;

// A point in the work of a stream. REQUIRES of its end: nothing that is ordered behind it runs.
class Event {
 public:
  virtual ~Event() = default;

  // Marks the work that the stream was given before this call.
  virtual std::optional<Failure> Record(TrainerStream stream) = 0;
};

// Work that runs in the order in which it was added.
class TransferQueue {
 public:
  virtual ~TransferQueue() = default;  // REQUIRES: nothing is running; see Wait().

  // What is added later runs after the event. REQUIRES: it was recorded, and is not recorded again
  // until Wait() returns.
  virtual std::optional<Failure> After(Event* event) = 0;

  // REQUIRES for copies and tasks: until Wait() returns, their memory stays valid, their outputs
  // are not read, and their inputs do not change. Host memory that is not pinned works as well, but
  // then the call may wait for everything that was added before.
  virtual std::optional<Failure> CopyToDevice(void* device, const void* host, size_t size) = 0;
  virtual std::optional<Failure> CopyToHost(void* host, const void* device, size_t size) = 0;
  virtual std::optional<Failure> Run(const CopyTask& task) = 0;
  virtual std::optional<Failure> Run(const MagnitudeTask& task) = 0;
  virtual std::optional<Failure> Run(const NarrowTask& task) = 0;
  virtual std::optional<Failure> Run(const MeasureTask& task) = 0;

  // What the stream is given later runs after what was added here so far.
  virtual std::optional<Failure> Before(TrainerStream stream) = 0;

  // Marks what was added so far. AwaitMark returns when the work before the next mark is done, in
  // the order of the marks; then its memory is as free as after Wait(). REQUIRES: no more calls
  // than marks. After a failure Wait() is still needed.
  virtual std::optional<Failure> Mark() = 0;
  virtual std::optional<Failure> AwaitMark() = 0;

  // Returns when all added work is done or has become impossible; fails if any of it failed.
  // Forgets the marks.
  virtual std::optional<Failure> Wait() = 0;
};

class TrainerDevice {
 public:
  virtual ~TrainerDevice() = default;

  // For errors: "CUDA device 0 (NVIDIA H200)".
  virtual std::string_view name() const = 0;

  virtual Result<Memory> AllocateOnDevice(size_t size) = 0;
  virtual Result<Memory> AllocatePinned(size_t size) = 0;
  // At least `size` bytes that another process can open (Device::Open). May outlive this.
  virtual Result<std::shared_ptr<DeviceSegment>> AllocateShared(size_t size) = 0;
  virtual Result<std::unique_ptr<TransferQueue>> MakeQueue() = 0;
  virtual Result<std::unique_ptr<Event>> MakeEvent() = 0;

  // Fails with kInvalidArgument if these bytes are not in the memory of this device.
  virtual std::optional<Failure> CheckMemory(const void* data, size_t size) = 0;

  // From now on the trainer's own work must also end within kPatience.
  virtual void LosePatience() = 0;
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_TRAINER_DEVICE_H_
