// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/device/cuda_device.h"

#include <string>
#include <utility>

#include "accelerator/device/cuda_calls.h"
#include "accelerator/device/cuda_queue.h"
#include "accelerator/device/cuda_segment.h"
#include "kernels/cuda/launch.h"

namespace basin::accelerator {
namespace {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(CudaCallsPtr calls) : calls_(std::move(calls)) {}

  std::string_view name() const override { return calls_->name; }

  Result<Memory> AllocateOnDevice(size_t size) override {
    return Allocate("cudaMalloc", size, cudaMalloc, cudaFree);
  }
  Result<Memory> AllocatePinned(size_t size) override {
    return Allocate("cudaMallocHost", size, cudaMallocHost, cudaFreeHost);
  }

  Result<std::shared_ptr<DeviceSegment>> AllocateShared(size_t size) override {
    return calls_->Use([&] { return MakeCudaSegment(Segments(), size); });
  }
  Result<std::shared_ptr<DeviceSegment>> Open(int descriptor, size_t size) override {
    return calls_->Use([&] { return OpenCudaSegment(Segments(), descriptor, size); });
  }

  Result<std::unique_ptr<Queue>> MakeQueue() override { return MakeCudaQueue(calls_); }
  Result<std::unique_ptr<Event>> MakeEvent() override { return MakeCudaEvent(calls_); }

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
  SegmentDevice Segments() const { return {calls_->name, calls_->index, calls_->hangs, releases_}; }

  Result<Memory> Allocate(const char* call, size_t size, cudaError_t (*allocate)(void**, size_t),
                          cudaError_t (*release)(void*)) const {
    void* data = nullptr;
    const std::string what = std::string(call) + " of " + std::to_string(size) + " bytes";
    if (auto failure = calls_->Call(what.c_str(), [&] { return allocate(&data, size); })) {
      return *std::move(failure);
    }
    return Memory(data, [calls = calls_, release](void* allocated) {
      (void)calls->Call("release of memory", [&] { return release(allocated); });
    });
  }

  const CudaCallsPtr calls_;
  const std::shared_ptr<Releases> releases_ = std::make_shared<Releases>(calls_->hangs);
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
  Result<std::string> name = NameOfCudaDevice(index);
  if (!name.ok()) return name.failure();
  auto calls = std::make_shared<CudaCalls>();
  calls->name = std::move(name).value();
  calls->index = index;
  auto failure = calls->Call("search for kernels for this GPU", [] {
    return static_cast<cudaError_t>(kernels::cuda::CheckKernels());
  });
  if (failure) return *std::move(failure);
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(calls)));
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
