// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/device/cuda_calls.h"

#include <cuda.h>

#include "accelerator/device/cuda_device.h"

namespace basin::accelerator {

bool HasContext(int index) {
  using Ask = decltype(&cuDevicePrimaryCtxGetState);
  static const Ask ask = [] {
    constexpr unsigned kSince = 7000;  // The version of CUDA with this function.
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found,
                                                               kSince, cudaEnableDefault, &result);
    if (error != cudaSuccess) cudaGetLastError();
    return error == cudaSuccess ? reinterpret_cast<Ask>(found) : nullptr;
  }();
  unsigned flags = 0;
  int active = 0;
  return ask != nullptr && ask(index, &flags, &active) == CUDA_SUCCESS && active != 0;
}

CurrentDevice::CurrentDevice(int index) {
  if (cudaGetDevice(&before_) != cudaSuccess) before_ = index;
  changed_ = before_ != index;
  error_ = cudaSetDevice(index);
}

CurrentDevice::~CurrentDevice() {
  if (!changed_ || !HasContext(before_)) return;
  // Later calls of this thread report only their own errors.
  if (cudaSetDevice(before_) != cudaSuccess) cudaGetLastError();
}

std::string CudaVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

namespace {

// The runtime has one error for a driver that is too old and for a machine without one.
Failure ExplainInsufficientDriver() {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0) {
    return {FailureCode::kDevice,
            "CUDA: there is no driver (cudaErrorInsufficientDriver); install a driver and make the "
            "GPU visible to this process"};
  }
  return {FailureCode::kDevice, "CUDA: the driver is too old: it has CUDA " + CudaVersion(driver) +
                                    ", and this build needs CUDA " +
                                    CudaVersion(CUDART_VERSION / 1000 * 1000) +
                                    " or later (cudaErrorInsufficientDriver); update the driver"};
}

}  // namespace

Result<int> CountCudaDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  auto failure = Check(error, "CUDA", "cudaGetDeviceCount");
  if (error == cudaErrorInsufficientDriver) return ExplainInsufficientDriver();
  if (failure) return *std::move(failure);
  return count;
}

Result<std::string> NameOfCudaDevice(int index) {
  const Result<int> count = CountCudaDevices();
  if (!count.ok()) return count.failure();
  std::string name = "CUDA device " + std::to_string(index);
  if (index < 0 || index >= count.value()) {
    return Failure{FailureCode::kDevice, name + ": there are " + std::to_string(count.value()) +
                                             " devices, numbered from 0; use one of them"};
  }
  cudaDeviceProp properties;
  if (auto failure =
          Check(cudaGetDeviceProperties(&properties, index), name, "cudaGetDeviceProperties")) {
    return *std::move(failure);
  }
  return name + " (" + properties.name + ")";
}

}  // namespace basin::accelerator
