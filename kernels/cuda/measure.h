// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The host's part of measuring: what the kernel of measure_body.h needs, and what its records mean.
//
// Thread contract: pure functions.

#ifndef BASIN_KERNELS_CUDA_MEASURE_H_
#define BASIN_KERNELS_CUDA_MEASURE_H_

#include <cstdint>

#include "kernels/checksum.h"
#include "kernels/cuda/task.h"

namespace basin::kernels::cuda {

// The constants of XXH3 as the threads use them.
const HashKeys& KeysOfXxh3();

// The content of a chunk of `size` bytes: that of ContentDigest for the same bytes.
Digest ContentOf(const ChunkRecord& record, uint64_t size);

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_MEASURE_H_
