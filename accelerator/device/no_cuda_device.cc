// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// cuda_device.h in a build without CUDA.

#include "accelerator/device/cuda_device.h"

namespace basin::accelerator {
namespace {

Failure WithoutCuda() {
  return {FailureCode::kDevice,
          "CUDA: this build has no CUDA kernels (BASIN_CUDA); use a build with CUDA"};
}

}  // namespace

std::string_view CudaArchitectures() { return ""; }

Result<int> CountCudaDevices() { return WithoutCuda(); }

Result<std::string> DescribeCudaDevices() { return WithoutCuda(); }

Result<std::unique_ptr<Device>> OpenCudaDevice(int) { return WithoutCuda(); }

void LeaveCudaDevices() {}

}  // namespace basin::accelerator
