// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The launch of the reduction: what reduce_body.h leaves to the device are the barrier, the
// exchange within a warp, and the atomics that gather the facts.

#include "kernels/cuda/launch.h"
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
    if (seen.first_non_finite != kNoPlace) {
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

}  // namespace

int Launch(const ReduceTask& task, CUstream_st* stream) {
  if (task.count == 0) return cudaSuccess;
  VisitSource(task, [&task, stream](auto source) {
    using Source = decltype(source);
    const auto blocks = static_cast<unsigned>(BlocksOf<Source>(task));
    ReduceKernel<Source><<<blocks, ThreadsOf(task), 0, stream>>>(task);
  });
  return cudaGetLastError();
}

}  // namespace basin::kernels::cuda
