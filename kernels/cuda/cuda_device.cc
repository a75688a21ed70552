// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/cuda/launch.h"

namespace basin::kernels::cuda {
namespace {

// Nothing if the call succeeded, else a sentence with the device, the call and the text of the
// runtime.
std::optional<Failure> Check(cudaError_t error, const std::string& device, const char* call) {
  if (error == cudaSuccess) return std::nullopt;
  // Clears an error that does not persist, so that later calls report only their own.
  cudaGetLastError();
  return Failure{FailureCode::kDevice, device + ": " + call +
                                           " failed: " + cudaGetErrorString(error) + " (" +
                                           cudaGetErrorName(error) + ")"};
}

// Shared by a device, its queues and its memory: whether work on it has not ended.
using Hangs = std::shared_ptr<std::atomic<bool>>;

std::optional<Failure> CheckHangs(const std::atomic<bool>& hangs, const std::string& device) {
  if (!hangs) return std::nullopt;
  return Failure{FailureCode::kDevice, device + ": work has not ended within " +
                                           std::to_string(kPatience.count()) + " s"};
}

// Makes a device current on this thread, and puts back which one was: the thread is the caller's.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = index;
    error_ = before_ == index ? cudaSuccess : cudaSetDevice(index);
    changed_ = before_ != index;
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaError_t error_ = cudaSuccess;
};

class CudaQueue final : public Queue {
 public:
  CudaQueue(std::string device, int index, cudaStream_t stream, Hangs hangs)
      : device_(std::move(device)), index_(index), stream_(stream), hangs_(std::move(hangs)) {}

  ~CudaQueue() override {
    if (*hangs_) {
      (void)arrivals_.release();  // The work may still end, and arrive.
      return;
    }
    const CurrentDevice current(index_);
    cudaStreamDestroy(stream_);
  }

  std::optional<Failure> CopyToDevice(void* device, const void* pinned, size_t size) override {
    return Call("cudaMemcpyAsync to the device", [&] {
      return cudaMemcpyAsync(device, pinned, size, cudaMemcpyHostToDevice, stream_);
    });
  }

  std::optional<Failure> CopyToHost(void* pinned, const void* device, size_t size) override {
    return Call("cudaMemcpyAsync to the host", [&] {
      return cudaMemcpyAsync(pinned, device, size, cudaMemcpyDeviceToHost, stream_);
    });
  }

  std::optional<Failure> Run(const ReduceTask& task) override {
    return Call("launch of the reduction",
                [&] { return static_cast<cudaError_t>(Launch(task, stream_)); });
  }

  std::optional<Failure> Run(const ReduceBatch& batch) override {
    return Call("launch of a batch of reductions",
                [&] { return static_cast<cudaError_t>(Launch(batch, stream_)); });
  }

  std::optional<Failure> Run(const CastTask& task) override {
    return Call("launch of the cast",
                [&] { return static_cast<cudaError_t>(Launch(task, stream_)); });
  }

  // cudaStreamSynchronize would wait forever for a device that hangs.
  std::optional<Failure> Wait() override {
    std::optional<Failure> failure = Call("cudaLaunchHostFunc", [&] {
      const cudaError_t error = cudaLaunchHostFunc(stream_, Arrive, arrivals_.get());
      if (error == cudaSuccess) ++added_;
      return error;
    });
    if (failure) return failure;
    failure = Call("cudaStreamQuery", [&] { return AwaitArrival(); });
    return failure ? failure : CheckHangs(*hangs_, device_);
  }

 private:
  // The end of the work that was added so far, as a callback of the runtime reports it.
  struct Arrivals {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t count = 0;  // Guarded by mutex.
  };

  static void Arrive(void* arrivals) {
    auto* const queue = static_cast<Arrivals*>(arrivals);
    const std::lock_guard<std::mutex> lock(queue->mutex);
    ++queue->count;
    queue->changed.notify_all();
  }

  // After an error of the device no callback comes, so its state is checked now and then.
  cudaError_t AwaitArrival() {
    constexpr std::chrono::milliseconds kLook{50};
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::unique_lock<std::mutex> lock(arrivals_->mutex);
    while (!arrivals_->changed.wait_for(lock, kLook, [&] { return arrivals_->count == added_; })) {
      const cudaError_t state = cudaStreamQuery(stream_);
      if (state != cudaSuccess && state != cudaErrorNotReady) return state;
      cudaGetLastError();  // "Not ready" is no error, but is kept like one.
      if (std::chrono::steady_clock::now() > deadline) *hangs_ = true;
      if (*hangs_) return cudaSuccess;
    }
    return cudaSuccess;
  }

  template <typename Function>
  std::optional<Failure> Call(const char* name, Function function) const {
    if (auto failure = CheckHangs(*hangs_, device_)) return failure;
    const CurrentDevice current(index_);
    if (current.error() != cudaSuccess) return Check(current.error(), device_, "cudaSetDevice");
    return Check(function(), device_, name);
  }

  const std::string device_;
  const int index_;
  const cudaStream_t stream_;
  const Hangs hangs_;
  std::unique_ptr<Arrivals> arrivals_ = std::make_unique<Arrivals>();
  uint64_t added_ = 0;  // Arrivals that are due.
};

class CudaDevice final : public Device {
 public:
  CudaDevice(std::string name, int index) : name_(std::move(name)), index_(index) {}

  std::string_view name() const override { return name_; }

  Result<Memory> AllocateOnDevice(size_t size) override {
    return Allocate("cudaMalloc", size, cudaMalloc, cudaFree);
  }

  Result<Memory> AllocatePinned(size_t size) override {
    return Allocate("cudaMallocHost", size, cudaMallocHost, cudaFreeHost);
  }

  Result<std::unique_ptr<Queue>> MakeQueue() override {
    if (auto failure = CheckHangs(*hangs_, name_)) return *std::move(failure);
    const CurrentDevice current(index_);
    if (auto failure = Check(current.error(), name_, "cudaSetDevice")) return *std::move(failure);
    cudaStream_t stream = nullptr;
    const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (auto failure = Check(error, name_, "cudaStreamCreateWithFlags")) return *std::move(failure);
    return std::unique_ptr<Queue>(std::make_unique<CudaQueue>(name_, index_, stream, hangs_));
  }

 private:
  Result<Memory> Allocate(const char* call, size_t size, cudaError_t (*allocate)(void**, size_t),
                          cudaError_t (*release)(void*)) const {
    if (auto failure = CheckHangs(*hangs_, name_)) return *std::move(failure);
    const CurrentDevice current(index_);
    if (auto failure = Check(current.error(), name_, "cudaSetDevice")) return *std::move(failure);
    void* data = nullptr;
    const std::string what = std::string(call) + " of " + std::to_string(size) + " bytes";
    if (auto failure = Check(allocate(&data, size), name_, what.c_str())) {
      return *std::move(failure);
    }
    return Memory(data, [index = index_, hangs = hangs_, release](void* allocated) {
      if (*hangs) return;
      const CurrentDevice owner(index);
      release(allocated);
    });
  }

  const std::string name_;
  const int index_;
  const Hangs hangs_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

std::string_view CudaArchitectures() { return BASIN_CUDA_ARCHITECTURES; }

Result<int> CountCudaDevices() {
  int count = 0;
  if (auto failure = Check(cudaGetDeviceCount(&count), "CUDA", "cudaGetDeviceCount")) {
    return *std::move(failure);
  }
  return count;
}

Result<std::unique_ptr<Device>> OpenCudaDevice(int index) {
  const Result<int> count = CountCudaDevices();
  if (!count.ok()) return count.failure();
  std::string name = "CUDA device " + std::to_string(index);
  if (index < 0 || index >= count.value()) {
    return Failure{FailureCode::kDevice, name + ": there are " + std::to_string(count.value()) +
                                             " devices, numbered from 0"};
  }
  cudaDeviceProp properties;
  if (auto failure =
          Check(cudaGetDeviceProperties(&properties, index), name, "cudaGetDeviceProperties")) {
    return *std::move(failure);
  }
  name += std::string(" (") + properties.name + ")";
  const CurrentDevice current(index);
  if (auto failure = Check(current.error(), name, "cudaSetDevice")) return *std::move(failure);
  const auto error = static_cast<cudaError_t>(CheckKernels());
  if (auto failure = Check(error, name, "search for kernels for this GPU")) {
    return *std::move(failure);
  }
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(name), index));
}

}  // namespace basin::kernels::cuda
