// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cuda_trainer_device.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_calls.h"
#include "kernels/cuda/launch.h"

namespace basin::kernels::cuda {
namespace {

// While a thread of the trainer captures a graph, CUDA refuses most calls of all other threads, and
// the capture fails with them. None of the calls here concern the graph.
class NoPartOfCaptures {
 public:
  NoPartOfCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~NoPartOfCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  NoPartOfCaptures(const NoPartOfCaptures&) = delete;
  NoPartOfCaptures& operator=(const NoPartOfCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A device as its queues, events and memory see it.
struct Shared {
  std::string name;
  int index = 0;
  Hangs hangs = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> impatient{false};

  template <typename Function>
  std::optional<Failure> Call(const char* call, Function function) const {
    if (auto failure = CheckHangs(*hangs, name)) return failure;
    const NoPartOfCaptures mode;
    const CurrentDevice current(index);
    if (current.error() != cudaSuccess) return Check(current.error(), name, "cudaSetDevice");
    return Check(function(), name, call);
  }
};

using SharedPtr = std::shared_ptr<Shared>;

class CudaEvent final : public Event {
 public:
  CudaEvent(SharedPtr shared, cudaEvent_t event) : shared_(std::move(shared)), event_(event) {}
  ~CudaEvent() override {
    if (*shared_->hangs) return;
    (void)shared_->Call("cudaEventDestroy", [&] { return cudaEventDestroy(event_); });
  }

  std::optional<Failure> Record(TrainerStream stream) override {
    const auto handle = static_cast<cudaStream_t>(stream);
    cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaSuccess;
    auto failure = shared_->Call("cudaStreamIsCapturing", [&] {
      error = cudaStreamIsCapturing(handle, &captured);
      // The default stream, which another one's capture forbids to use.
      const bool implicit = error == cudaErrorStreamCaptureImplicit;
      if (!implicit) return error;
      captured = cudaStreamCaptureStatusActive;
      cudaGetLastError();
      return cudaSuccess;
    });
    if (failure) return OfStream(*std::move(failure), error);
    if (captured != cudaStreamCaptureStatusNone) {
      return Failure{FailureCode::kUnsupported,
                     shared_->name + ": the stream is being captured into a graph"};
    }
    failure =
        shared_->Call("cudaEventRecord", [&] { return error = cudaEventRecord(event_, handle); });
    return failure ? OfStream(*std::move(failure), error) : failure;
  }

  cudaEvent_t get() const { return event_; }

 private:
  // An event cannot be recorded on a stream of another device.
  static Failure OfStream(Failure failure, cudaError_t error) {
    const bool foreign =
        error == cudaErrorInvalidResourceHandle || error == cudaErrorContextIsDestroyed;
    if (foreign) failure.code = FailureCode::kInvalidArgument;
    return failure;
  }

  const SharedPtr shared_;
  const cudaEvent_t event_;
};

class CudaTransferQueue final : public TransferQueue {
 public:
  CudaTransferQueue(SharedPtr shared, cudaStream_t stream, cudaEvent_t done)
      : shared_(std::move(shared)), stream_(stream), done_(done) {}
  ~CudaTransferQueue() override {
    if (*shared_->hangs) {
      arrivals_.Leak();
      return;
    }
    (void)shared_->Call("cudaStreamDestroy", [&] { return cudaStreamDestroy(stream_); });
    (void)shared_->Call("cudaEventDestroy", [&] { return cudaEventDestroy(done_); });
  }

  std::optional<Failure> After(Event* event) override {
    const cudaEvent_t handle = static_cast<CudaEvent*>(event)->get();
    auto failure = shared_->Call("cudaStreamWaitEvent",
                                 [&] { return cudaStreamWaitEvent(stream_, handle, 0); });
    if (!failure) awaited_ = handle;
    return failure;
  }

  std::optional<Failure> CopyToDevice(void* device, const void* host, size_t size) override {
    return shared_->Call("cudaMemcpyAsync to the device", [&] {
      return cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice, stream_);
    });
  }

  std::optional<Failure> CopyToHost(void* host, const void* device, size_t size) override {
    return shared_->Call("cudaMemcpyAsync to the host", [&] {
      return cudaMemcpyAsync(host, device, size, cudaMemcpyDeviceToHost, stream_);
    });
  }

  std::optional<Failure> Run(const CopyTask& task) override {
    return shared_->Call("launch of the copies",
                         [&] { return static_cast<cudaError_t>(Launch(task, stream_)); });
  }

  std::optional<Failure> Before(TrainerStream stream) override {
    auto failure =
        shared_->Call("cudaEventRecord", [&] { return cudaEventRecord(done_, stream_); });
    if (failure) return failure;
    return shared_->Call("cudaStreamWaitEvent", [&] {
      return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), done_, 0);
    });
  }

  std::optional<Failure> Wait() override {
    std::optional<Failure> failure =
        shared_->Call("cudaLaunchHostFunc", [&] { return arrivals_.Add(stream_); });
    if (failure) return failure;
    // The trainer's own work takes as long as the trainer wants.
    const auto patient = [&] {
      if (awaited_ == nullptr || shared_->impatient) return false;
      const bool waits = cudaEventQuery(awaited_) == cudaErrorNotReady;
      cudaGetLastError();
      return waits;
    };
    failure = shared_->Call(
        "cudaStreamQuery", [&] { return arrivals_.Await(stream_, shared_->hangs.get(), patient); });
    awaited_ = nullptr;
    return failure ? failure : CheckHangs(*shared_->hangs, shared_->name);
  }

 private:
  const SharedPtr shared_;
  const cudaStream_t stream_;
  const cudaEvent_t done_;         // For Before.
  cudaEvent_t awaited_ = nullptr;  // The last one that this is ordered after.
  Arrivals arrivals_;
};

class CudaTrainerDevice final : public TrainerDevice {
 public:
  explicit CudaTrainerDevice(SharedPtr shared) : shared_(std::move(shared)) {}

  std::string_view name() const override { return shared_->name; }

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

  Result<std::unique_ptr<TransferQueue>> MakeQueue() override {
    cudaStream_t stream = nullptr;
    cudaEvent_t done = nullptr;
    auto failure = shared_->Call("cudaStreamCreateWithFlags", [&] {
      return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    });
    if (failure) return *std::move(failure);
    failure = shared_->Call("cudaEventCreateWithFlags", [&] {
      const cudaError_t error = cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
      if (error != cudaSuccess) cudaStreamDestroy(stream);
      return error;
    });
    if (failure) return *std::move(failure);
    return std::unique_ptr<TransferQueue>(
        std::make_unique<CudaTransferQueue>(shared_, stream, done));
  }

  Result<std::unique_ptr<Event>> MakeEvent() override {
    cudaEvent_t event = nullptr;
    auto failure = shared_->Call("cudaEventCreateWithFlags", [&] {
      return cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    });
    if (failure) return *std::move(failure);
    return std::unique_ptr<Event>(std::make_unique<CudaEvent>(shared_, event));
  }

  std::optional<Failure> CheckMemory(const void* data, size_t size) override {
    if (size == 0) return std::nullopt;
    for (const size_t at : {size_t{0}, size - 1}) {
      cudaPointerAttributes attributes = {};
      auto failure = shared_->Call("cudaPointerGetAttributes", [&] {
        return cudaPointerGetAttributes(&attributes, static_cast<const char*>(data) + at);
      });
      if (failure) return failure;
      const bool on_device =
          attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
      if (on_device && attributes.device == shared_->index) continue;
      return Failure{FailureCode::kInvalidArgument,
                     shared_->name + ": the memory is " +
                         (on_device ? "that of CUDA device " + std::to_string(attributes.device)
                                    : std::string("not memory of a CUDA device"))};
    }
    return std::nullopt;
  }

  void LosePatience() override { shared_->impatient = true; }

 private:
  Result<Memory> Allocate(const char* call, size_t size, cudaError_t (*allocate)(void**, size_t),
                          cudaError_t (*release)(void*)) const {
    void* data = nullptr;
    const std::string what = std::string(call) + " of " + std::to_string(size) + " bytes";
    if (auto failure = shared_->Call(what.c_str(), [&] { return allocate(&data, size); })) {
      return *std::move(failure);
    }
    return Memory(data, [shared = shared_, release](void* allocated) {
      if (*shared->hangs) return;
      (void)shared->Call("release of memory", [&] { return release(allocated); });
    });
  }

  const SharedPtr shared_;
};

}  // namespace

Result<std::unique_ptr<TrainerDevice>> OpenTrainerDevice(int index) {
  const NoPartOfCaptures mode;
  Result<std::string> name = NameOfCudaDevice(index);
  if (!name.ok()) return name.failure();
  auto shared = std::make_shared<Shared>();
  shared->name = std::move(name).value();
  shared->index = index;
  auto failure = shared->Call("search for kernels for this GPU",
                              [] { return static_cast<cudaError_t>(CheckCopyKernel()); });
  if (failure) return *std::move(failure);
  return std::unique_ptr<TrainerDevice>(std::make_unique<CudaTrainerDevice>(std::move(shared)));
}

}  // namespace basin::kernels::cuda
