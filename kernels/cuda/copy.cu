// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "kernels/cuda/copy_body.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/own_error.cuh"

namespace basin::kernels::cuda {
namespace {

// The items are the second dimension of the grid.
__global__ void __launch_bounds__(kCopyThreads) CopyKernel(const CopyTask task) {
  CopyShare(task.items[blockIdx.y], uint64_t{blockIdx.x} * kCopyThreads + threadIdx.x,
            uint64_t{gridDim.x} * kCopyThreads);
}

}  // namespace

int Launch(const CopyTask& task, CUstream_st* stream) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < task.count; ++i) most = std::max(most, task.items[i].bytes);
  if (most == 0) return cudaSuccess;
  const uint64_t per_block = uint64_t{kCopyThreads} * sizeof(CopyVector);
  const auto blocks =
      static_cast<unsigned>(std::min<uint64_t>(kCopyBlocks, (most + per_block - 1) / per_block));
  return OwnError([&] { CopyKernel<<<dim3(blocks, task.count), kCopyThreads, 0, stream>>>(task); });
}

}  // namespace basin::kernels::cuda
