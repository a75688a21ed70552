// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cuda_calls.h"

#include "kernels/cuda/cuda_device.h"

namespace basin::kernels::cuda {

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
