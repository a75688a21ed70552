// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/narrow_body.h"

namespace basin::kernels::cuda {
namespace {

// The items are the second dimension of the grid.
__global__ void __launch_bounds__(kNarrowThreads) NarrowKernel(const NarrowTask task) {
  NarrowShare(task.items[blockIdx.y], uint64_t{blockIdx.x} * kNarrowThreads + threadIdx.x);
}

}  // namespace

int Launch(const NarrowTask& task, CUstream_st* stream) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < task.count; ++i) most = std::max(most, NarrowThreadsOf(task.items[i]));
  if (most == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((most + kNarrowThreads - 1) / kNarrowThreads);
  NarrowKernel<<<dim3(blocks, task.count), kNarrowThreads, 0, stream>>>(task);
  return cudaGetLastError();
}

}  // namespace basin::kernels::cuda
