// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The interface of an accelerator: memory, ordered queues of work, their order with the streams of
// a trainer, and errors. cuda_device.h implements it with the CUDA runtime; the tests implement it
// on the host, and make any call fail. tests/accelerator/device/device_suite.h says what holds for
// both.
//
// The order of a copy to the host: an Event is recorded on the trainer's stream, a queue is ordered
// After it, and then the copy is added to the queue. The order of a copy to the device: the same,
// and then the stream is ordered behind the queue with Before. No thread waits for any of it.
//
// Failure: a call returns a Failure of
//   kUnsupported      while the trainer captures the stream into a graph, which cannot hold copies
//                     of one step; for memory that this device cannot share or read,
//   kInvalidArgument  for a stream or memory of another device,
//   kDevice           for an error of the runtime, with the device, the call and the text.
// Nothing aborts. After a failure other calls may fail as well, but none blocks forever: the work
// of a queue may take kPatience after the trainer's own work that it is ordered behind. From then
// on every call of that device fails at once, because the runtime could wait for the same work in
// any of them; and what its queues and memory hold when they are dropped is never freed, because
// the device may still write to it.
// Thread contract: a Device from any thread; an Event and a Queue from one thread at a time.

#ifndef BASIN_ACCELERATOR_DEVICE_DEVICE_H_
#define BASIN_ACCELERATOR_DEVICE_DEVICE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "accelerator/device/memory.h"
#include "kernels/cuda/task.h"
#include "runtime/device_segment.h"

namespace basin::accelerator {

using kernels::cuda::CopyTask;
using kernels::cuda::MagnitudeTask;
using kernels::cuda::MeasureTask;
using kernels::cuda::NarrowTask;
using kernels::cuda::ReduceBatch;
using kernels::cuda::ReduceTask;

// A stream of the device, a cudaStream_t. Null is the default stream.
using Stream = void*;

// A point in the work of a stream. REQUIRES of its end: nothing that is ordered behind it runs.
class Event {
 public:
  virtual ~Event() = default;

  // Marks the work that the stream was given before this call.
  virtual std::optional<Failure> Record(Stream stream) = 0;
};

// Work that runs in the order in which it was added, behind the caller's back.
class Queue {
 public:
  virtual ~Queue() = default;  // REQUIRES: nothing is running; see Wait().

  // What is added later runs after the event. REQUIRES: it was recorded, and is not recorded again
  // until what is added later has ended.
  virtual std::optional<Failure> After(Event* event) = 0;
  // What the stream is given later runs after what was added here so far.
  virtual std::optional<Failure> Before(Stream stream) = 0;

  // REQUIRES for copies and tasks: until they have ended, their memory stays valid, their outputs
  // are not read, and their inputs do not change. A trainer may break the last of these in memory
  // of its own, which spoils its contribution and nothing else. Host memory that is not pinned
  // works as well, but then the call may wait for everything that was added before.
  virtual std::optional<Failure> CopyToDevice(void* device, const void* host, size_t size) = 0;
  virtual std::optional<Failure> CopyToHost(void* host, const void* device, size_t size) = 0;
  virtual std::optional<Failure> Run(const ReduceTask& task) = 0;
  virtual std::optional<Failure> Run(const ReduceBatch& batch) = 0;
  virtual std::optional<Failure> Run(const CopyTask& task) = 0;
  virtual std::optional<Failure> Run(const MagnitudeTask& task) = 0;
  virtual std::optional<Failure> Run(const NarrowTask& task) = 0;
  virtual std::optional<Failure> Run(const MeasureTask& task) = 0;

  // Marks what was added so far. AwaitMark returns when the work before the next mark is done, in
  // the order of the marks; then its memory is as free as after Wait(). REQUIRES: no more calls
  // than marks. After a failure Wait() is still needed.
  virtual std::optional<Failure> Mark() = 0;
  virtual std::optional<Failure> AwaitMark() = 0;
  // Returns when all added work is done or has become impossible; fails if any of it failed, or if
  // it has not ended in time. Forgets the marks.
  virtual std::optional<Failure> Wait() = 0;

  // ---- For a user that puts launches of another library into the queue, and decides itself how
  // long they may take, because only it can end them. It calls none of the three above.

  // Makes the device current on the calling thread, also for the other library. Safe from any
  // thread. REQUIRES: the thread does nothing else, and nothing was added before the first call.
  virtual std::optional<Failure> UseOnThisThread() = 0;
  // The stream of this queue.
  virtual Stream stream() = 0;
  // Calls `arrived`, on a thread of the runtime, when everything that was added so far has ended;
  // never after an error of the device. REQUIRES: it calls nothing of the device.
  virtual std::optional<Failure> Notify(std::function<void()> arrived) = 0;
  // The error of the device, if it has one.
  virtual std::optional<Failure> Check() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // For logs and errors: "CUDA device 0 (NVIDIA H200)".
  virtual std::string_view name() const = 0;

  virtual Result<Memory> AllocateOnDevice(size_t size) = 0;
  virtual Result<Memory> AllocatePinned(size_t size) = 0;
  // At least `size` bytes that another process can open. May outlive this.
  virtual Result<std::shared_ptr<DeviceSegment>> AllocateShared(size_t size) = 0;
  // Memory of another process (AllocateShared), which queues of this device can read. The
  // descriptor stays the caller's. Fails with kInvalidArgument if it is not of that kind or has
  // fewer bytes than `size`. May outlive this.
  virtual Result<std::shared_ptr<DeviceSegment>> Open(int descriptor, size_t size) = 0;
  virtual Result<std::unique_ptr<Queue>> MakeQueue() = 0;
  virtual Result<std::unique_ptr<Event>> MakeEvent() = 0;

  // Fails with kInvalidArgument if these bytes are not in the memory of this device.
  virtual std::optional<Failure> CheckMemory(const void* data, size_t size) = 0;

  // From now on the trainer's own work must also end within kPatience.
  virtual void LosePatience() = 0;
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_DEVICE_H_
