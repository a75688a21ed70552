// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/device/cuda_device.h"

#include <string>
#include <utility>

#include "accelerator/device/cuda_calls.h"
#include "accelerator/device/cuda_segment.h"
#include "kernels/cuda/launch.h"

namespace basin::accelerator {
namespace {

class CudaQueue final : public Queue {
 public:
  CudaQueue(std::string device, int index, cudaStream_t stream, Hangs hangs)
      : device_(std::move(device)), index_(index), stream_(stream), hangs_(std::move(hangs)) {}

  ~CudaQueue() override {
    if (*hangs_) {
      arrivals_.Leak();
      return;
    }
    (void)Call("cudaStreamDestroy", [&] { return cudaStreamDestroy(stream_); });
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

  std::optional<Failure> Run(const ReduceBatch& batch) override {
    return Call("launch of a batch of reductions",
                [&] { return static_cast<cudaError_t>(Launch(batch, stream_)); });
  }

  std::optional<Failure> Wait() override {
    auto failure = Call("cudaStreamQuery", [&] {
      return arrivals_.AwaitAll(stream_, hangs_.get(), [] { return false; });
    });
    return failure ? failure : CheckHangs(*hangs_, device_);
  }

 private:
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
  Arrivals arrivals_;
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

  Result<std::shared_ptr<DeviceSegment>> Open(int descriptor, size_t size) override {
    return Call([&] {
      return OpenCudaSegment({name_, index_, hangs_, releases_}, descriptor, size);
    });
  }

  Result<std::unique_ptr<Queue>> MakeQueue() override {
    return Call([&]() -> Result<std::unique_ptr<Queue>> {
      cudaStream_t stream = nullptr;
      const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      if (auto failure = Check(error, name_, "cudaStreamCreateWithFlags")) {
        return *std::move(failure);
      }
      return std::unique_ptr<Queue>(std::make_unique<CudaQueue>(name_, index_, stream, hangs_));
    });
  }

 private:
  // Calls `make`, with this device current, unless the device hangs.
  template <typename Make>
  auto Call(Make make) const -> decltype(make()) {
    if (auto failure = CheckHangs(*hangs_, name_)) return *std::move(failure);
    const CurrentDevice current(index_);
    if (auto failure = Check(current.error(), name_, "cudaSetDevice")) return *std::move(failure);
    return make();
  }

  Result<Memory> Allocate(const char* call, size_t size, cudaError_t (*allocate)(void**, size_t),
                          cudaError_t (*release)(void*)) const {
    return Call([&]() -> Result<Memory> {
      void* data = nullptr;
      const std::string what = std::string(call) + " of " + std::to_string(size) + " bytes";
      if (auto failure = Check(allocate(&data, size), name_, what.c_str())) {
        return *std::move(failure);
      }
      return Memory(data, [index = index_, hangs = hangs_, release](void* allocated) {
        if (*hangs) return;
        const CurrentDevice owner(index);
        if (release(allocated) != cudaSuccess) cudaGetLastError();
      });
    });
  }

  const std::string name_;
  const int index_;
  const Hangs hangs_ = std::make_shared<std::atomic<bool>>(false);
  const std::shared_ptr<Releases> releases_ = std::make_shared<Releases>(hangs_);
};

}  // namespace

std::string_view CudaArchitectures() { return BASIN_CUDA_ARCHITECTURES; }

Result<std::string> DescribeCudaDevices() {
  const Result<int> count = CountCudaDevices();
  if (!count.ok()) return count.failure();
  if (count.value() == 0) {
    return Failure{FailureCode::kDevice, "CUDA: there is a driver, but no device is visible"};
  }
  std::string text;
  for (int index = 0; index < count.value(); ++index) {
    cudaDeviceProp properties;
    auto failure = Check(cudaGetDeviceProperties(&properties, index),
                         "CUDA device " + std::to_string(index), "cudaGetDeviceProperties");
    if (failure) return *std::move(failure);
    text += (index == 0 ? "" : " and ") + std::to_string(index) + " (" + properties.name + ", sm_" +
            std::to_string(properties.major) + std::to_string(properties.minor) + ")";
  }
  int driver = 0;
  if (auto failure = Check(cudaDriverGetVersion(&driver), "CUDA", "cudaDriverGetVersion")) {
    return *std::move(failure);
  }
  return text + ", with a driver for CUDA " + CudaVersion(driver);
}

Result<std::unique_ptr<Device>> OpenCudaDevice(int index) {
  Result<std::string> named = NameOfCudaDevice(index);
  if (!named.ok()) return named.failure();
  std::string name = std::move(named).value();
  const CurrentDevice current(index);
  if (auto failure = Check(current.error(), name, "cudaSetDevice")) return *std::move(failure);
  const auto error = static_cast<cudaError_t>(kernels::cuda::CheckKernels());
  if (auto failure = Check(error, name, "search for kernels for this GPU")) {
    return *std::move(failure);
  }
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(name), index));
}

void LeaveCudaDevices() {
  const Result<int> count = CountCudaDevices();
  for (int index = 0; count.ok() && index < count.value(); ++index) {
    if (!HasContext(index)) continue;
    const CurrentDevice current(index);
    if (current.error() != cudaSuccess || cudaDeviceReset() != cudaSuccess) cudaGetLastError();
  }
}

}  // namespace basin::accelerator
