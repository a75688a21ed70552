// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The interface of the queue on a device in which the ranks of one node reduce among themselves:
// the launches of a collective library and our kernels, in one stream of its own.
// cuda_group_queue.h implements it with the CUDA runtime; the tests implement it on the host.
//
// No call waits for the device. Whoever uses the queue decides how long work may take, because only
// it can end the launches of the other library.
//
// Failure: kDevice for an error of the runtime, with the device, the call and the text. Nothing
// aborts.
// Thread contract: one thread at a time, which has called UseOnThisThread; that one call is safe
// from any thread meanwhile. Callbacks run on a thread of the runtime and call nothing here.

#ifndef BASIN_ACCELERATOR_DEVICE_GROUP_QUEUE_H_
#define BASIN_ACCELERATOR_DEVICE_GROUP_QUEUE_H_

#include <functional>
#include <optional>

#include "accelerator/device/trainer_device.h"
#include "kernels/cuda/task.h"
#include "kernels/failure.h"

namespace basin::accelerator {

using kernels::cuda::ReduceTask;

class GroupQueue {
 public:
  virtual ~GroupQueue() = default;  // REQUIRES: everything that was added has ended.

  // Makes the device current on the calling thread, also for the other library. REQUIRES: the
  // thread does nothing else.
  virtual std::optional<Failure> UseOnThisThread() = 0;

  // The stream of this queue, for the other library.
  virtual TrainerStream stream() = 0;

  // What is added later runs after the event. REQUIRES: it was recorded, and is not recorded again
  // until what is added later has ended.
  virtual std::optional<Failure> After(Event* event) = 0;
  // What the stream is given later runs after what was added here so far.
  virtual std::optional<Failure> Before(TrainerStream stream) = 0;

  // REQUIRES: until it has ended its memory stays valid, its outputs are not read, and its inputs
  // do not change.
  virtual std::optional<Failure> Run(const ReduceTask& task) = 0;

  // Calls `arrived` when everything that was added so far has ended; never after an error of the
  // device.
  virtual std::optional<Failure> Notify(std::function<void()> arrived) = 0;

  // The error of the device, if it has one.
  virtual std::optional<Failure> Check() = 0;
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_GROUP_QUEUE_H_
