// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The launch of the reduction: what reduce_body.h leaves to the device are the barriers between
// tiles, the tree over the lanes of the norm, and the atomics that gather the facts.

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce_body.h"

namespace basin::kernels::cuda {
namespace {

__device__ void Publish(const ThreadFacts& seen, DeviceFacts* facts) {
  using Word = unsigned long long;  // The type that atomics take.
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

// The leaf's sum, in lane 0. All threads of the warp call it.
__device__ double SumOfLanes(double sum) {
  for (unsigned half = kNormLanes / 2; half > 0; half /= 2) {
    sum = sum + __shfl_down_sync(0xffffffff, sum, half);
  }
  return Canonical(sum);
}

template <typename Source>
__global__ void __launch_bounds__(kProducers + kAdders)
    ReduceKernel(const __grid_constant__ ReduceTask task) {
  // Two tiles: while one is added up, the other is filled.
  __shared__ alignas(16) Rounded<Source> tiles[2][kTile<Source>];
  const BlockShare share = ShareOf<Source>(task, blockIdx.x);
  const bool is_producer = threadIdx.x < kProducers;
  const bool with_norm = task.norm_leaves != nullptr;
  const unsigned lane = threadIdx.x - kProducers;  // Of an adder.
  ThreadFacts facts;
  double sum = 0.0;
  for (uint64_t tile = 0; share.begin + tile * kTile<Source> < share.end; ++tile) {
    Rounded<Source>* const shared = tiles[tile % 2];
    if (is_producer) Produce<Source>(task, share, tile, threadIdx.x, shared, &facts);
    if (with_norm) {
      // Behind it this tile is full, and the adders are done with the tile before: its buffer is
      // the one that is filled next.
      __syncthreads();
      if (!is_producer && lane < kNormLanes) {
        sum = AddSquares<Source>(share, tile, lane, shared, sum);
      }
    }
  }
  if (is_producer) {
    Publish(facts, task.facts);
  } else {
    const double leaf = SumOfLanes(sum);
    if (lane == 0) task.norm_leaves[blockIdx.x] = leaf;
  }
}

}  // namespace

int Launch(const ReduceTask& task, CUstream_st* stream) {
  if (task.count == 0) return cudaSuccess;
  VisitSource(task, [&task, stream](auto source) {
    using Source = decltype(source);
    const auto blocks = static_cast<unsigned>(BlocksOf<Source>(task));
    const unsigned threads = kProducers + (task.norm_leaves != nullptr ? kAdders : 0);
    ReduceKernel<Source><<<blocks, threads, 0, stream>>>(task);
  });
  return cudaGetLastError();
}

}  // namespace basin::kernels::cuda
