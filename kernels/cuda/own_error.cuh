// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The error of a launch, for the files that nvcc compiles.

#ifndef BASIN_KERNELS_CUDA_OWN_ERROR_CUH_
#define BASIN_KERNELS_CUDA_OWN_ERROR_CUH_

#include <cuda_runtime_api.h>

namespace basin::kernels::cuda {

// Calls `launch`, which launches a kernel, and returns the error of that launch alone. The runtime
// keeps the error of an earlier call on this thread, for example one of PyTorch, until somebody
// fetches it, and would report it as that of the launch.
template <typename Launch>
int OwnError(Launch launch) {
  cudaGetLastError();
  launch();
  return cudaGetLastError();
}

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_OWN_ERROR_CUH_
