// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Puts a task on a CUDA stream. Returns at once, with the cudaError_t of the launch; errors of the
// run come from later calls on the stream. The types are spelled such that the header needs no
// CUDA.
//
// Thread contract: any thread; the device of the stream is current.

#ifndef BASIN_KERNELS_CUDA_LAUNCH_H_
#define BASIN_KERNELS_CUDA_LAUNCH_H_

#include "kernels/cuda/task.h"

struct CUstream_st;  // *cudaStream_t

namespace basin::kernels::cuda {

int Launch(const ReduceTask& task, CUstream_st* stream);
int Launch(const ReduceBatch& batch, CUstream_st* stream);
int Launch(const CopyTask& task, CUstream_st* stream);
int Launch(const MagnitudeTask& task, CUstream_st* stream);
int Launch(const NarrowTask& task, CUstream_st* stream);
int Launch(const MeasureTask& task, CUstream_st* stream);

// Whether the binary holds kernels that the current device can run; a cudaError_t.
int CheckKernels();

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_LAUNCH_H_
