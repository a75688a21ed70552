// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cuda_group_queue.h"

#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_trainer_calls.h"
#include "kernels/cuda/launch.h"

namespace basin::kernels::cuda {
namespace {

class CudaGroupQueue final : public GroupQueue {
 public:
  CudaGroupQueue(TrainerCallsPtr calls, cudaStream_t stream, cudaEvent_t done)
      : calls_(std::move(calls)), stream_(stream), done_(done) {}
  // The runtime destroys a stream when its work has ended, and does not wait for that.
  ~CudaGroupQueue() override {
    (void)calls_->Call("cudaStreamDestroy", [&] { return cudaStreamDestroy(stream_); });
    (void)calls_->Call("cudaEventDestroy", [&] { return cudaEventDestroy(done_); });
  }

  std::optional<Failure> UseOnThisThread() override {
    // As NoPartOfCaptures, for the calls of the other library.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    return cuda::Check(cudaSetDevice(calls_->index), calls_->name, "cudaSetDevice");
  }

  TrainerStream stream() override { return stream_; }

  std::optional<Failure> After(Event* event) override {
    const cudaEvent_t handle = static_cast<CudaEvent*>(event)->get();
    return calls_->Call("cudaStreamWaitEvent",
                        [&] { return cudaStreamWaitEvent(stream_, handle, 0); });
  }

  std::optional<Failure> Before(TrainerStream stream) override {
    auto failure = calls_->Call("cudaEventRecord", [&] { return cudaEventRecord(done_, stream_); });
    if (failure) return failure;
    return calls_->Call("cudaStreamWaitEvent", [&] {
      return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), done_, 0);
    });
  }

  std::optional<Failure> Run(const ReduceTask& task) override {
    return calls_->Call("launch of the reduction",
                        [&] { return static_cast<cudaError_t>(Launch(task, stream_)); });
  }

  std::optional<Failure> Notify(std::function<void()> arrived) override {
    auto callback = std::make_unique<std::function<void()>>(std::move(arrived));
    auto failure = calls_->Call(
        "cudaLaunchHostFunc", [&] { return cudaLaunchHostFunc(stream_, Arrive, callback.get()); });
    // After an error of the device nobody calls it, and nobody frees it.
    if (!failure) (void)callback.release();
    return failure;
  }

  std::optional<Failure> Check() override {
    return calls_->Call("cudaStreamQuery", [&] {
      const cudaError_t state = cudaStreamQuery(stream_);
      if (state != cudaErrorNotReady) return state;
      cudaGetLastError();  // "Not ready" is no error, but is kept like one.
      return cudaSuccess;
    });
  }

 private:
  static void Arrive(void* callback) {
    const std::unique_ptr<std::function<void()>> arrived(
        static_cast<std::function<void()>*>(callback));
    (*arrived)();
  }

  const TrainerCallsPtr calls_;
  const cudaStream_t stream_;
  const cudaEvent_t done_;  // For Before.
};

}  // namespace

Result<std::unique_ptr<GroupQueue>> OpenGroupQueue(int index) {
  const NoPartOfCaptures mode;
  Result<std::string> name = NameOfCudaDevice(index);
  if (!name.ok()) return name.failure();
  auto calls = std::make_shared<TrainerCalls>();
  calls->name = std::move(name).value();
  calls->index = index;
  auto failure = calls->Call("search for kernels for this GPU",
                             [] { return static_cast<cudaError_t>(CheckKernels()); });
  if (failure) return *std::move(failure);
  cudaStream_t stream = nullptr;
  cudaEvent_t done = nullptr;
  failure = calls->Call("cudaStreamCreateWithFlags",
                        [&] { return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); });
  if (failure) return *std::move(failure);
  failure = calls->Call("cudaEventCreateWithFlags", [&] {
    const cudaError_t error = cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    if (error != cudaSuccess) cudaStreamDestroy(stream);
    return error;
  });
  if (failure) return *std::move(failure);
  return std::unique_ptr<GroupQueue>(
      std::make_unique<CudaGroupQueue>(std::move(calls), stream, done));
}

}  // namespace basin::kernels::cuda
