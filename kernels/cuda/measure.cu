// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/measure_body.h"
#include "kernels/cuda/own_error.cuh"

namespace basin::kernels::cuda {
namespace {

// The items are the second dimension of the grid.
__global__ void __launch_bounds__(kMeasureThreads) MeasureKernel(const MeasureTask task) {
  MeasureShare(task.keys, task.items[blockIdx.y],
               uint64_t{blockIdx.x} * kMeasureThreads + threadIdx.x);
}

}  // namespace

int Launch(const MeasureTask& task, CUstream_st* stream) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < task.count; ++i) most = std::max(most, MeasureThreadsOf(task.items[i]));
  if (most == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((most + kMeasureThreads - 1) / kMeasureThreads);
  return OwnError(
      [&] { MeasureKernel<<<dim3(blocks, task.count), kMeasureThreads, 0, stream>>>(task); });
}

}  // namespace basin::kernels::cuda
