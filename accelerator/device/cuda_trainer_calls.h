// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the CUDA runtime is called in a trainer's process, and the events there: what the queues of
// cuda_trainer_device.cc and cuda_group_queue.cc share.
//
// Thread contract: TrainerCalls from any thread; an event from one thread at a time.

#ifndef BASIN_ACCELERATOR_DEVICE_CUDA_TRAINER_CALLS_H_
#define BASIN_ACCELERATOR_DEVICE_CUDA_TRAINER_CALLS_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "accelerator/device/cuda_calls.h"
#include "accelerator/device/trainer_device.h"

namespace basin::accelerator {

// While a thread of the trainer captures a graph, CUDA refuses most calls of all other threads, and
// the capture fails with them. None of the calls here concern the graph.
//
// REQUIRES: our device is current. The runtime creates a context on the current device to change
// the mode.
class NoPartOfCaptures {
 public:
  NoPartOfCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~NoPartOfCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  NoPartOfCaptures(const NoPartOfCaptures&) = delete;
  NoPartOfCaptures& operator=(const NoPartOfCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A device as its queues, events and memory see it: how the runtime is called for it.
struct TrainerCalls {
  std::string name;
  int index = 0;
  Hangs hangs = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> impatient{false};

  template <typename Function>
  std::optional<Failure> Call(const char* call, Function function) const {
    if (auto failure = CheckHangs(*hangs, name)) return failure;
    const CurrentDevice current(index);
    if (current.error() != cudaSuccess) return Check(current.error(), name, "cudaSetDevice");
    const NoPartOfCaptures mode;
    return Check(function(), name, call);
  }
};

using TrainerCallsPtr = std::shared_ptr<TrainerCalls>;

// Those of the device with this index, once `check_kernels` has found kernels for it.
Result<TrainerCallsPtr> OpenTrainerCalls(int index, int (*check_kernels)());

class CudaEvent final : public Event {
 public:
  CudaEvent(TrainerCallsPtr calls, cudaEvent_t event) : calls_(std::move(calls)), event_(event) {}
  ~CudaEvent() override;

  std::optional<Failure> Record(TrainerStream stream) override;

  cudaEvent_t get() const { return event_; }

 private:
  const TrainerCallsPtr calls_;
  const cudaEvent_t event_;
};

// A stream of our own, ordered behind and before work of the trainer.
class CudaStream {
 public:
  static Result<std::unique_ptr<CudaStream>> Make(TrainerCallsPtr calls);
  CudaStream(TrainerCallsPtr calls, cudaStream_t stream, cudaEvent_t done)
      : calls_(std::move(calls)), stream_(stream), done_(done) {}
  // The runtime destroys a stream when its work has ended, and does not wait for that.
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  // What is given to it from now on runs after the event, and before what `stream` is given.
  std::optional<Failure> After(cudaEvent_t event);
  std::optional<Failure> Before(TrainerStream stream);

  cudaStream_t get() const { return stream_; }

 private:
  const TrainerCallsPtr calls_;
  const cudaStream_t stream_;
  const cudaEvent_t done_;  // For Before.
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_CUDA_TRAINER_CALLS_H_
