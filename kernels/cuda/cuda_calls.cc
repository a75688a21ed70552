// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cuda_calls.h"

#include <cuda.h>

#include "kernels/cuda/cuda_device.h"

namespace basin::kernels::cuda {
namespace {

// Whether this process has a primary context on the device. To ask creates none.
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

}  // namespace

CurrentDevice::CurrentDevice(int index) {
  if (cudaGetDevice(&before_) != cudaSuccess) before_ = index;
  changed_ = before_ != index;
  if (changed_) error_ = cudaSetDevice(index);
}

CurrentDevice::~CurrentDevice() {
  if (!changed_ || !HasContext(before_)) return;
  // Later calls of this thread report only their own errors.
  if (cudaSetDevice(before_) != cudaSuccess) cudaGetLastError();
}

Result<int> CountCudaDevices() {
  int count = 0;
  if (auto failure = Check(cudaGetDeviceCount(&count), "CUDA", "cudaGetDeviceCount")) {
    return *std::move(failure);
  }
  return count;
}

Result<std::string> NameOfCudaDevice(int index) {
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
  return name + " (" + properties.name + ")";
}

}  // namespace basin::kernels::cuda
