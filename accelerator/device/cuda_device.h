// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The devices of the CUDA runtime. They use the primary context of the device, as a trainer's own
// runtime does, so that streams and memory are those of both. The runtime is linked statically, or
// is loaded when it is first called, and finds the driver then, so that a binary with this in it
// starts on a machine without a GPU.

#ifndef BASIN_ACCELERATOR_DEVICE_CUDA_DEVICE_H_
#define BASIN_ACCELERATOR_DEVICE_CUDA_DEVICE_H_

#include <memory>
#include <string>
#include <string_view>

#include "accelerator/device/device.h"

namespace basin::accelerator {

// What the kernels were built for, "sm_80 sm_90"; empty without CUDA.
std::string_view CudaArchitectures();

// The number of devices. A machine without a driver is a Failure.
Result<int> CountCudaDevices();

// "0 (NVIDIA H200, sm_90) and 1 (NVIDIA H200, sm_90), with a driver for CUDA 13.0". Uses no device,
// so it does not know whether the kernels run on them. No device is a Failure.
Result<std::string> DescribeCudaDevices();

// The device of this index, from 0. Fails if there is none, or if it cannot run these kernels.
Result<std::unique_ptr<Device>> OpenCudaDevice(int index);

// Ends what this process has on all devices, also the memory that the driver takes for each process
// that uses a device. Waits for what runs on them. REQUIRES: the process uses none of them any
// more.
void LeaveCudaDevices();

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_CUDA_DEVICE_H_
