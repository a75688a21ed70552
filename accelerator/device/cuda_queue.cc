// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/device/cuda_queue.h"

#include <cstdint>
#include <utility>

#include "kernels/cuda/launch.h"

namespace basin::accelerator {
namespace {

using kernels::cuda::Launch;

// An event cannot be recorded on a stream of another device.
Failure OfStream(Failure failure, cudaError_t error) {
  const bool foreign =
      error == cudaErrorInvalidResourceHandle || error == cudaErrorContextIsDestroyed;
  if (foreign) failure.code = FailureCode::kInvalidArgument;
  return failure;
}

class CudaEvent final : public Event {
 public:
  CudaEvent(CudaCallsPtr calls, cudaEvent_t event) : calls_(std::move(calls)), event_(event) {}
  ~CudaEvent() override {
    (void)calls_->Call("cudaEventDestroy", [&] { return cudaEventDestroy(event_); });
  }

  std::optional<Failure> Record(Stream stream) override {
    const auto handle = static_cast<cudaStream_t>(stream);
    cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaSuccess;
    auto failure = calls_->Call("cudaStreamIsCapturing", [&] {
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
                     calls_->name + ": the stream is being captured into a graph"};
    }
    failure =
        calls_->Call("cudaEventRecord", [&] { return error = cudaEventRecord(event_, handle); });
    return failure ? OfStream(*std::move(failure), error) : failure;
  }

  cudaEvent_t get() const { return event_; }

 private:
  const CudaCallsPtr calls_;
  const cudaEvent_t event_;
};

class CudaQueue final : public Queue {
 public:
  CudaQueue(CudaCallsPtr calls, cudaStream_t stream, cudaEvent_t done)
      : calls_(std::move(calls)), stream_(stream), done_(done) {}
  // The runtime destroys a stream when its work has ended, and does not wait for that. The stream
  // ends before what its callbacks write to.
  ~CudaQueue() override {
    if (*calls_->hangs) arrivals_.Leak();
    (void)calls_->Call("cudaStreamDestroy", [&] { return cudaStreamDestroy(stream_); });
    (void)calls_->Call("cudaEventDestroy", [&] { return cudaEventDestroy(done_); });
  }

  std::optional<Failure> After(Event* event) override {
    const cudaEvent_t handle = static_cast<CudaEvent*>(event)->get();
    auto failure = calls_->Call("cudaStreamWaitEvent",
                                [&] { return cudaStreamWaitEvent(stream_, handle, 0); });
    if (!failure) awaited_ = handle;
    return failure;
  }

  std::optional<Failure> Before(Stream stream) override {
    auto failure = calls_->Call("cudaEventRecord", [&] { return cudaEventRecord(done_, stream_); });
    if (failure) return failure;
    return calls_->Call("cudaStreamWaitEvent", [&] {
      return cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), done_, 0);
    });
  }

  std::optional<Failure> CopyToDevice(void* device, const void* host, size_t size) override {
    return calls_->Call("cudaMemcpyAsync to the device", [&] {
      return cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice, stream_);
    });
  }
  std::optional<Failure> CopyToHost(void* host, const void* device, size_t size) override {
    return calls_->Call("cudaMemcpyAsync to the host", [&] {
      return cudaMemcpyAsync(host, device, size, cudaMemcpyDeviceToHost, stream_);
    });
  }

  std::optional<Failure> Run(const ReduceTask& task) override {
    return Add("launch of the reduction", task);
  }
  std::optional<Failure> Run(const ReduceBatch& batch) override {
    return Add("launch of a batch of reductions", batch);
  }
  std::optional<Failure> Run(const CopyTask& task) override {
    return Add("launch of the copies", task);
  }
  std::optional<Failure> Run(const MagnitudeTask& task) override {
    return Add("launch of the searches for scales", task);
  }
  std::optional<Failure> Run(const NarrowTask& task) override {
    return Add("launch of the casts", task);
  }
  std::optional<Failure> Run(const MeasureTask& task) override {
    return Add("launch of the digests", task);
  }

  std::optional<Failure> Mark() override {
    return calls_->Call("cudaLaunchHostFunc", [&] { return arrivals_.Add(stream_); });
  }
  std::optional<Failure> AwaitMark() override {
    return Await([&](auto patient) {
      return arrivals_.AwaitFirst(++marks_awaited_, stream_, calls_->hangs.get(), patient);
    });
  }
  std::optional<Failure> Wait() override {
    auto failure = Await(
        [&](auto patient) { return arrivals_.AwaitAll(stream_, calls_->hangs.get(), patient); });
    marks_awaited_ = arrivals_.added();
    awaited_ = nullptr;
    return failure;
  }

  std::optional<Failure> UseOnThisThread() override {
    const std::string& name = calls_->name;
    auto failure = accelerator::Check(cudaSetDevice(calls_->index), name, "cudaSetDevice");
    if (failure) return failure;
    // As NoPartOfCaptures, for the calls of the other library.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    return accelerator::Check(cudaThreadExchangeStreamCaptureMode(&mode), name,
                              "cudaThreadExchangeStreamCaptureMode");
  }

  Stream stream() override { return stream_; }

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

  template <typename Task>
  std::optional<Failure> Add(const char* call, const Task& task) const {
    return calls_->Call(call, [&] { return static_cast<cudaError_t>(Launch(task, stream_)); });
  }

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

  const CudaCallsPtr calls_;
  const cudaStream_t stream_;
  const cudaEvent_t done_;         // For Before.
  cudaEvent_t awaited_ = nullptr;  // The last one that this is ordered after.
  Arrivals arrivals_;
  uint64_t marks_awaited_ = 0;  // Arrivals up to the last mark that was waited for.
};

}  // namespace

Result<std::unique_ptr<Event>> MakeCudaEvent(CudaCallsPtr calls) {
  cudaEvent_t event = nullptr;
  auto failure = calls->Call("cudaEventCreateWithFlags", [&] {
    return cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  });
  if (failure) return *std::move(failure);
  return std::unique_ptr<Event>(std::make_unique<CudaEvent>(std::move(calls), event));
}

Result<std::unique_ptr<Queue>> MakeCudaQueue(CudaCallsPtr calls) {
  cudaStream_t stream = nullptr;
  cudaEvent_t done = nullptr;
  auto failure = calls->Call("cudaStreamCreateWithFlags", [&] {
    return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  });
  if (failure) return *std::move(failure);
  failure = calls->Call("cudaEventCreateWithFlags", [&] {
    const cudaError_t error = cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    if (error != cudaSuccess) cudaStreamDestroy(stream);
    return error;
  });
  if (failure) return *std::move(failure);
  return std::unique_ptr<Queue>(std::make_unique<CudaQueue>(std::move(calls), stream, done));
}

}  // namespace basin::accelerator
