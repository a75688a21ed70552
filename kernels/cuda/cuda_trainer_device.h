// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The devices of the CUDA runtime, for the tensors of a trainer. They use the primary context of
// the device, as the trainer's own runtime does, so that streams and memory are those of both. The
// runtime is linked statically, or is loaded when it is first called, and finds the driver then, so
// that a library with this in it is loaded on a machine without a GPU.

#ifndef BASIN_KERNELS_CUDA_CUDA_TRAINER_DEVICE_H_
#define BASIN_KERNELS_CUDA_CUDA_TRAINER_DEVICE_H_

#include <memory>

#include "kernels/cuda/trainer_device.h"

namespace basin::kernels::cuda {

// The device of this index, from 0. Fails if there is none, if it cannot run these kernels, and in
// a build without CUDA.
Result<std::unique_ptr<TrainerDevice>> OpenTrainerDevice(int index);

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_CUDA_TRAINER_DEVICE_H_
