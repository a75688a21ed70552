// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The code of a thread of the kernel that finds largest magnitudes, for the device and, in the
// tests, on the host.
//
// Thread contract: as the launch, one call per thread.

#ifndef BASIN_KERNELS_CUDA_MAGNITUDE_BODY_H_
#define BASIN_KERNELS_CUDA_MAGNITUDE_BODY_H_

#include <cstdint>

#include "kernels/cuda/host_device.h"
#include "kernels/cuda/task.h"
#include "kernels/float16_branchless.h"

namespace basin::kernels::cuda {

constexpr unsigned kMagnitudeThreads = 256;
constexpr unsigned kMagnitudesPerThread = 16;  // As long as an item has less than the most blocks.
constexpr unsigned kMagnitudeBlocks = 1024;    // The most for an item.

// The largest magnitude in the share of thread `thread` of `threads`.
BASIN_HOST_DEVICE uint32_t LargestOfShare(const MagnitudeItem& item, uint64_t thread,
                                          uint64_t threads) {
  const auto* const from = static_cast<const float*>(item.source);
  uint32_t largest = 0;
  for (uint64_t i = thread; i < item.count; i += threads) {
    const uint32_t magnitude = BitsOfF32(from[i]) & kMagnitudeMaskF32;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_MAGNITUDE_BODY_H_
