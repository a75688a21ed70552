// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/device/cuda_group_queue.h"

#include <memory>
#include <string>
#include <utility>

#include "accelerator/device/cuda_trainer_calls.h"
#include "kernels/cuda/launch.h"

namespace basin::accelerator {
namespace {

class CudaGroupQueue final : public GroupQueue {
 public:
  CudaGroupQueue(TrainerCallsPtr calls, std::unique_ptr<CudaStream> stream)
      : calls_(std::move(calls)), stream_(std::move(stream)) {}

  std::optional<Failure> UseOnThisThread() override {
    auto failure = accelerator::Check(cudaSetDevice(calls_->index), calls_->name, "cudaSetDevice");
    if (failure) return failure;
    // As NoPartOfCaptures, for the calls of the other library.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    return accelerator::Check(cudaThreadExchangeStreamCaptureMode(&mode), calls_->name,
                              "cudaThreadExchangeStreamCaptureMode");
  }

  TrainerStream stream() override { return stream_->get(); }

  std::optional<Failure> After(Event* event) override {
    return stream_->After(static_cast<CudaEvent*>(event)->get());
  }

  std::optional<Failure> Before(TrainerStream stream) override { return stream_->Before(stream); }

  std::optional<Failure> Run(const ReduceTask& task) override {
    return calls_->Call("launch of the reduction",
                        [&] { return static_cast<cudaError_t>(Launch(task, stream_->get())); });
  }

  std::optional<Failure> Notify(std::function<void()> arrived) override {
    auto callback = std::make_unique<std::function<void()>>(std::move(arrived));
    auto failure = calls_->Call("cudaLaunchHostFunc", [&] {
      return cudaLaunchHostFunc(stream_->get(), Arrive, callback.get());
    });
    // After an error of the device nobody calls it, and nobody frees it.
    if (!failure) (void)callback.release();
    return failure;
  }

  std::optional<Failure> Check() override {
    return calls_->Call("cudaStreamQuery", [&] {
      const cudaError_t state = cudaStreamQuery(stream_->get());
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
  const std::unique_ptr<CudaStream> stream_;
};

}  // namespace

Result<std::unique_ptr<GroupQueue>> OpenGroupQueue(int index) {
  Result<TrainerCallsPtr> calls = OpenTrainerCalls(index, kernels::cuda::CheckKernels);
  if (!calls.ok()) return calls.failure();
  Result<std::unique_ptr<CudaStream>> stream = CudaStream::Make(calls.value());
  if (!stream.ok()) return stream.failure();
  return std::unique_ptr<GroupQueue>(
      std::make_unique<CudaGroupQueue>(std::move(calls).value(), std::move(stream).value()));
}

}  // namespace basin::accelerator
