// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The devices of the CUDA runtime, for the tensors of a trainer. They use the primary context of
// the device, as the trainer's own runtime does, so that streams and memory are those of both. The
// runtime is linked statically, or is loaded when it is first called, and finds the driver then, so
// that a library with this in it is loaded on a machine without a GPU.

#ifndef BASIN_ACCELERATOR_DEVICE_CUDA_TRAINER_DEVICE_H_
#define BASIN_ACCELERATOR_DEVICE_CUDA_TRAINER_DEVICE_H_

#include <memory>

#include "accelerator/device/trainer_device.h"

namespace basin::accelerator {

// The device of this index, from 0. Fails if there is none, if it cannot run these kernels, and in
// a build without CUDA.
Result<std::unique_ptr<TrainerDevice>> OpenTrainerDevice(int index);

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_CUDA_TRAINER_DEVICE_H_
