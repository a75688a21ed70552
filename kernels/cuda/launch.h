// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Puts a task on a CUDA stream. Returns at once, with the error of the launch if there is one;
// errors of the run come from later calls on the stream.
//
// Thread contract: any thread; the device of the stream is current.

#ifndef BASIN_KERNELS_CUDA_LAUNCH_H_
#define BASIN_KERNELS_CUDA_LAUNCH_H_

#include <cuda_runtime_api.h>

#include "kernels/cuda/task.h"

namespace basin::kernels::cuda {

cudaError_t Launch(const ReduceTask& task, cudaStream_t stream);
cudaError_t Launch(const CastTask& task, cudaStream_t stream);

// Whether the binary holds kernels that the current device can run.
cudaError_t CheckKernels();

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_LAUNCH_H_
