// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The launch of the reduction: what reduce_body.h leaves to the device are the barrier, the
// exchange within a warp, and the atomics that gather the facts.

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/own_error.cuh"
#include "kernels/cuda/reduce_body.h"

namespace basin::kernels::cuda {
namespace {

struct DeviceBlock {
  using Word = unsigned long long;  // The type that atomics take.

  DeviceFacts* facts;

  __device__ void Wait() const { __syncthreads(); }

  __device__ double FromLane(double x, unsigned down) const {
    return __shfl_down_sync(0xffffffff, x, down);
  }

  __device__ void Publish(const ThreadFacts& seen) const {
    if (seen.first_non_finite != kNoElement) {
      atomicMin(reinterpret_cast<Word*>(&facts->first_non_finite), Word{seen.first_non_finite});
    }
    if (seen.overflows != 0) {
      atomicAdd(reinterpret_cast<Word*>(&facts->overflows), Word{seen.overflows});
    }
    if (seen.integer_wraps != 0) {
      atomicAdd(reinterpret_cast<Word*>(&facts->integer_wraps), Word{seen.integer_wraps});
    }
  }
};

template <typename Source>
__global__ void __launch_bounds__(kProducers + kAdders)
    ReduceKernel(const __grid_constant__ ReduceTask task) {
  __shared__ alignas(16) Rounded<Source> tiles[2][kTile<Source>];
  RunThread<Source>(task, blockIdx.x, threadIdx.x, tiles, DeviceBlock{task.facts});
}

// Row y of the grid is task y. A row has as many blocks as the largest task needs.
template <typename Source>
__global__ void __launch_bounds__(kProducers + kAdders) BatchKernel(const ReduceTask* tasks) {
  // A copy of the block's own: every thread reads it for each vector, and in global memory the
  // compiler would have to assume that the results overwrite it.
  __shared__ alignas(16) ReduceTask task;
  static_assert(sizeof(ReduceTask) % sizeof(uint64_t) == 0);
  const auto* const from = reinterpret_cast<const uint64_t*>(tasks + blockIdx.y);
  auto* const to = reinterpret_cast<uint64_t*>(&task);
  for (unsigned i = threadIdx.x; i < sizeof(ReduceTask) / sizeof(uint64_t); i += blockDim.x) {
    to[i] = from[i];
  }
  __syncthreads();
  if (blockIdx.x >= BlocksOf<Source>(task)) return;
  __shared__ alignas(16) Rounded<Source> tiles[2][kTile<Source>];
  RunThread<Source>(task, blockIdx.x, threadIdx.x, tiles, DeviceBlock{task.facts});
}

}  // namespace

int Launch(const ReduceTask& task, CUstream_st* stream) {
  if (task.count == 0) return cudaSuccess;
  return OwnError([&task, stream] {
    VisitSource(task, [&task, stream](auto source) {
      using Source = decltype(source);
      const auto blocks = static_cast<unsigned>(BlocksOf<Source>(task));
      ReduceKernel<Source><<<blocks, ThreadsOf(task), 0, stream>>>(task);
    });
  });
}

int Launch(const ReduceBatch& batch, CUstream_st* stream) {
  if (batch.count == 0) return cudaSuccess;
  if (batch.count == 1) return Launch(batch.tasks[0], stream);
  return OwnError([&batch, stream] {
    VisitSource(batch.tasks[0], [&batch, stream](auto source) {
      using Source = decltype(source);
      uint64_t blocks = 0;
      for (uint32_t i = 0; i < batch.count; ++i) {
        blocks = std::max(blocks, BlocksOf<Source>(batch.tasks[i]));
      }
      if (blocks == 0) return;
      const dim3 grid(static_cast<unsigned>(blocks), batch.count);
      BatchKernel<Source><<<grid, ThreadsOf(batch.tasks[0]), 0, stream>>>(batch.on_device);
    });
  });
}

int CheckKernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, ReduceKernel<FromF32>);
}

}  // namespace basin::kernels::cuda
