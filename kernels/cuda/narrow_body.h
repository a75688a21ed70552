// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The code of a thread of the narrowing kernel, for the device and, in the tests, on the host: the
// cast of kernels/cast.h to the wire, and the squares of the norm of facts.h. Each lane of a leaf
// is one thread, which goes over the lane's elements in their order, so that no thread waits for
// another one.
//
// Thread contract: as the launch, one call per thread.

#ifndef BASIN_KERNELS_CUDA_NARROW_BODY_H_
#define BASIN_KERNELS_CUDA_NARROW_BODY_H_

#include <cstdint>

#include "kernels/cuda/element.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/task.h"
#include "kernels/facts.h"
#include "kernels/fit.h"

namespace basin::kernels::cuda {

constexpr unsigned kNarrowThreads = 64;  // Four leaves: many tensors have less than one.

// Threads that an item needs.
BASIN_HOST_DEVICE uint64_t NarrowThreadsOf(const NarrowItem& item) {
  return (item.count + kNormLeafElements - 1) / kNormLeafElements * kNormLanes;
}

BASIN_HOST_DEVICE float ScaleOf(const NarrowItem& item) {
  if (item.largest == nullptr) return item.scale;
  return F32OfBits(static_cast<uint32_t>(FittedExponent(*item.largest) + 127) << 23);
}

template <typename Wire>
BASIN_HOST_DEVICE void NarrowLane(const NarrowItem& item, uint64_t thread) {
  const float scale = ScaleOf(item);
  constexpr unsigned kBatch = 16;  // Elements that are loaded before the first is used.
  const auto* const from = static_cast<const float*>(item.source);
  auto* const to = static_cast<uint16_t*>(item.destination);
  const uint64_t first = thread / kNormLanes * kNormLeafElements;
  const uint64_t left = item.count - first;
  const uint64_t end = first + (left < kNormLeafElements ? left : uint64_t{kNormLeafElements});
  double sum = 0.0;
  uint64_t i = first + thread % kNormLanes;
  for (; i + (kBatch - 1) * kNormLanes < end; i += kBatch * kNormLanes) {
    float values[kBatch];
    BASIN_UNROLL
    for (unsigned j = 0; j < kBatch; ++j) values[j] = from[i + j * kNormLanes];
    BASIN_UNROLL
    for (unsigned j = 0; j < kBatch; ++j) {
      to[i + j * kNormLanes] = Wire::Narrow(values[j] * scale);
      sum = sum + Square(values[j]);
    }
  }
  for (; i < end; i += kNormLanes) {
    const float value = from[i];
    to[i] = Wire::Narrow(value * scale);
    sum = sum + Square(value);
  }
  item.lanes[thread] = sum;
}

// Thread `thread` of at least NarrowThreadsOf(item).
BASIN_HOST_DEVICE void NarrowShare(const NarrowItem& item, uint64_t thread) {
  if (thread >= NarrowThreadsOf(item)) return;
  if (item.wire_dtype == DType::kF16) {
    NarrowLane<BranchlessF16>(item, thread);
  } else {
    NarrowLane<BranchlessBF16>(item, thread);
  }
}

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_NARROW_BODY_H_
