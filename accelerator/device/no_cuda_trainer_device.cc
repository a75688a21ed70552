// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// cuda_trainer_device.h in a build without CUDA.

#include "accelerator/device/cuda_trainer_device.h"

namespace basin::accelerator {

Result<std::unique_ptr<TrainerDevice>> OpenTrainerDevice(int) {
  return Failure{FailureCode::kDevice,
                 "CUDA: this build has no CUDA kernels (BASIN_CUDA); use a build with CUDA"};
}

}  // namespace basin::accelerator
