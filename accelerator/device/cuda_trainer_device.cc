// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/device/cuda_trainer_device.h"

#include <memory>
#include <string>
#include <utility>

#include "accelerator/device/cuda_segment.h"
#include "accelerator/device/cuda_trainer_calls.h"
#include "kernels/cuda/launch.h"

namespace basin::accelerator {
namespace {

class CudaTransferQueue final : public TransferQueue {
 public:
  CudaTransferQueue(TrainerCallsPtr calls, std::unique_ptr<CudaStream> stream)
      : calls_(std::move(calls)), stream_(std::move(stream)) {}
  ~CudaTransferQueue() override {
    if (*calls_->hangs) arrivals_.Leak();
  }

  std::optional<Failure> After(Event* event) override {
    const cudaEvent_t handle = static_cast<CudaEvent*>(event)->get();
    auto failure = stream_->After(handle);
    if (!failure) awaited_ = handle;
    return failure;
  }

  std::optional<Failure> CopyToDevice(void* device, const void* host, size_t size) override {
    return calls_->Call("cudaMemcpyAsync to the device", [&] {
      return cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice, stream_->get());
    });
  }

  std::optional<Failure> CopyToHost(void* host, const void* device, size_t size) override {
    return calls_->Call("cudaMemcpyAsync to the host", [&] {
      return cudaMemcpyAsync(host, device, size, cudaMemcpyDeviceToHost, stream_->get());
    });
  }

  std::optional<Failure> Run(const CopyTask& task) override {
    return calls_->Call("launch of the copies",
                        [&] { return static_cast<cudaError_t>(Launch(task, stream_->get())); });
  }

  std::optional<Failure> Run(const MagnitudeTask& task) override {
    return calls_->Call("launch of the searches for scales",
                        [&] { return static_cast<cudaError_t>(Launch(task, stream_->get())); });
  }

  std::optional<Failure> Run(const NarrowTask& task) override {
    return calls_->Call("launch of the casts",
                        [&] { return static_cast<cudaError_t>(Launch(task, stream_->get())); });
  }

  std::optional<Failure> Run(const MeasureTask& task) override {
    return calls_->Call("launch of the digests",
                        [&] { return static_cast<cudaError_t>(Launch(task, stream_->get())); });
  }

  std::optional<Failure> Before(TrainerStream stream) override { return stream_->Before(stream); }

  std::optional<Failure> Mark() override {
    return calls_->Call("cudaLaunchHostFunc", [&] { return arrivals_.Add(stream_->get()); });
  }

  std::optional<Failure> AwaitMark() override {
    return Await([&](auto patient) {
      return arrivals_.AwaitFirst(++marks_awaited_, stream_->get(), calls_->hangs.get(), patient);
    });
  }

  std::optional<Failure> Wait() override {
    auto failure = Await([&](auto patient) {
      return arrivals_.AwaitAll(stream_->get(), calls_->hangs.get(), patient);
    });
    marks_awaited_ = arrivals_.added();
    awaited_ = nullptr;
    return failure;
  }

 private:
  template <typename Function>
  std::optional<Failure> Await(Function await) {
    // The trainer's own work takes as long as the trainer wants.
    const auto patient = [&] {
      if (awaited_ == nullptr || calls_->impatient) return false;
      const bool waits = cudaEventQuery(awaited_) == cudaErrorNotReady;
      cudaGetLastError();
      return waits;
    };
    auto failure = calls_->Call("cudaStreamQuery", [&] { return await(patient); });
    return failure ? failure : CheckHangs(*calls_->hangs, calls_->name);
  }

  const TrainerCallsPtr calls_;
  cudaEvent_t awaited_ = nullptr;  // The last one that this is ordered after.
  Arrivals arrivals_;
  uint64_t marks_awaited_ = 0;                // Arrivals up to the last mark that was waited for.
  const std::unique_ptr<CudaStream> stream_;  // It ends before what its callbacks write to.
};

class CudaTrainerDevice final : public TrainerDevice {
 public:
  explicit CudaTrainerDevice(TrainerCallsPtr calls) : calls_(std::move(calls)) {}

  std::string_view name() const override { return calls_->name; }

  Result<Memory> AllocateOnDevice(size_t size) override {
    return Allocate(
        "cudaMalloc", size, [](void** data, size_t bytes) { return cudaMalloc(data, bytes); },
        cudaFree);
  }

  Result<Memory> AllocatePinned(size_t size) override {
    return Allocate(
        "cudaMallocHost", size,
        [](void** data, size_t bytes) { return cudaMallocHost(data, bytes); }, cudaFreeHost);
  }

  Result<std::shared_ptr<DeviceSegment>> AllocateShared(size_t size) override {
    if (auto failure = CheckHangs(*calls_->hangs, calls_->name)) return *std::move(failure);
    const CurrentDevice current(calls_->index);
    if (auto failure = Check(current.error(), calls_->name, "cudaSetDevice")) {
      return *std::move(failure);
    }
    const NoPartOfCaptures mode;
    return MakeCudaSegment({calls_->name, calls_->index, calls_->hangs, releases_}, size);
  }

  Result<std::unique_ptr<TransferQueue>> MakeQueue() override {
    Result<std::unique_ptr<CudaStream>> stream = CudaStream::Make(calls_);
    if (!stream.ok()) return stream.failure();
    return std::unique_ptr<TransferQueue>(
        std::make_unique<CudaTransferQueue>(calls_, std::move(stream).value()));
  }

  Result<std::unique_ptr<Event>> MakeEvent() override {
    cudaEvent_t event = nullptr;
    auto failure = calls_->Call("cudaEventCreateWithFlags", [&] {
      return cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    });
    if (failure) return *std::move(failure);
    return std::unique_ptr<Event>(std::make_unique<CudaEvent>(calls_, event));
  }

  std::optional<Failure> CheckMemory(const void* data, size_t size) override {
    if (size == 0) return std::nullopt;
    for (const size_t at : {size_t{0}, size - 1}) {
      cudaPointerAttributes attributes = {};
      auto failure = calls_->Call("cudaPointerGetAttributes", [&] {
        return cudaPointerGetAttributes(&attributes, static_cast<const char*>(data) + at);
      });
      if (failure) return failure;
      const bool on_device =
          attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
      if (on_device && attributes.device == calls_->index) continue;
      return Failure{FailureCode::kInvalidArgument,
                     calls_->name + ": the memory is " +
                         (on_device ? "that of CUDA device " + std::to_string(attributes.device)
                                    : std::string("not memory of a CUDA device"))};
    }
    return std::nullopt;
  }

  void LosePatience() override { calls_->impatient = true; }

 private:
  Result<Memory> Allocate(const char* call, size_t size, cudaError_t (*allocate)(void**, size_t),
                          cudaError_t (*release)(void*)) const {
    void* data = nullptr;
    const std::string what = std::string(call) + " of " + std::to_string(size) + " bytes";
    if (auto failure = calls_->Call(what.c_str(), [&] { return allocate(&data, size); })) {
      return *std::move(failure);
    }
    return Memory(data, [calls = calls_, release](void* allocated) {
      if (*calls->hangs) return;
      (void)calls->Call("release of memory", [&] { return release(allocated); });
    });
  }

  const TrainerCallsPtr calls_;
  const std::shared_ptr<Releases> releases_ = std::make_shared<Releases>(calls_->hangs);
};

}  // namespace

Result<std::unique_ptr<TrainerDevice>> OpenTrainerDevice(int index) {
  Result<TrainerCallsPtr> calls = OpenTrainerCalls(index, kernels::cuda::CheckCopyKernel);
  if (!calls.ok()) return calls.failure();
  return std::unique_ptr<TrainerDevice>(
      std::make_unique<CudaTrainerDevice>(std::move(calls).value()));
}

}  // namespace basin::accelerator
