// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/cast_body.h"
#include "kernels/cuda/launch.h"

namespace basin::kernels::cuda {
namespace {

template <typename Wire>
__global__ void __launch_bounds__(kCastThreads) CastKernel(const CastTask task) {
  CastVector<Wire>(task, uint64_t{blockIdx.x} * kCastThreads + threadIdx.x);
}

}  // namespace

int Launch(const CastTask& task, CUstream_st* stream) {
  if (task.count == 0) return cudaSuccess;
  const uint64_t per_block = uint64_t{kCastThreads} * kCastVector;
  const auto blocks = static_cast<unsigned>((task.count + per_block - 1) / per_block);
  if (task.wire_dtype == DType::kF16) {
    CastKernel<BranchlessF16><<<blocks, kCastThreads, 0, stream>>>(task);
  } else {
    CastKernel<BranchlessBF16><<<blocks, kCastThreads, 0, stream>>>(task);
  }
  return cudaGetLastError();
}

int CheckKernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, CastKernel<BranchlessF16>);
}

}  // namespace basin::kernels::cuda
