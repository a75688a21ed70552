// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The devices of the CUDA runtime. The runtime is linked statically and finds the driver when it is
// first called, so that a binary with this in it starts on a machine without a GPU.

#ifndef BASIN_KERNELS_CUDA_CUDA_DEVICE_H_
#define BASIN_KERNELS_CUDA_CUDA_DEVICE_H_

#include <memory>
#include <string_view>

#include "kernels/cuda/device.h"

namespace basin::kernels::cuda {

// What the kernels were built for, "sm_80 sm_90"; empty without CUDA.
std::string_view CudaArchitectures();

// The number of devices. A machine without a driver is a Failure.
Result<int> CountCudaDevices();

// The device of this index, from 0. Fails if there is none, or if it cannot run these kernels.
Result<std::unique_ptr<Device>> OpenCudaDevice(int index);

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_CUDA_DEVICE_H_
