// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/magnitude_body.h"
#include "kernels/cuda/narrow_body.h"
#include "kernels/cuda/own_error.cuh"

namespace basin::kernels::cuda {
namespace {

// The items are the second dimension of the grids.
__global__ void __launch_bounds__(kMagnitudeThreads) MagnitudeKernel(const MagnitudeTask task) {
  constexpr unsigned kWholeWarp = ~0u;
  const MagnitudeItem& item = task.items[blockIdx.y];
  uint32_t largest = LargestOfShare(item, uint64_t{blockIdx.x} * kMagnitudeThreads + threadIdx.x,
                                    uint64_t{gridDim.x} * kMagnitudeThreads);
  for (int distance = warpSize / 2; distance > 0; distance /= 2) {
    largest = max(largest, __shfl_down_sync(kWholeWarp, largest, distance));
  }
  if (threadIdx.x % warpSize == 0 && largest > 0) atomicMax(item.largest, largest);
}

__global__ void __launch_bounds__(kNarrowThreads) NarrowKernel(const NarrowTask task) {
  NarrowShare(task.items[blockIdx.y], uint64_t{blockIdx.x} * kNarrowThreads + threadIdx.x);
}

}  // namespace

int Launch(const MagnitudeTask& task, CUstream_st* stream) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < task.count; ++i) most = std::max(most, task.items[i].count);
  if (most == 0) return cudaSuccess;
  constexpr uint64_t kPerBlock = uint64_t{kMagnitudeThreads} * kMagnitudesPerThread;
  const auto blocks = static_cast<unsigned>(
      std::min<uint64_t>(kMagnitudeBlocks, (most + kPerBlock - 1) / kPerBlock));
  return OwnError(
      [&] { MagnitudeKernel<<<dim3(blocks, task.count), kMagnitudeThreads, 0, stream>>>(task); });
}

int Launch(const NarrowTask& task, CUstream_st* stream) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < task.count; ++i) most = std::max(most, NarrowThreadsOf(task.items[i]));
  if (most == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((most + kNarrowThreads - 1) / kNarrowThreads);
  return OwnError(
      [&] { NarrowKernel<<<dim3(blocks, task.count), kNarrowThreads, 0, stream>>>(task); });
}

}  // namespace basin::kernels::cuda
