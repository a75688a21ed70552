// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The code of a thread of the cast kernels: the casts of kernels/cast.h, for the device and, in the
// tests, on the host.
//
// Thread contract: as the launch, one call per thread.

#ifndef BASIN_KERNELS_CUDA_CAST_BODY_H_
#define BASIN_KERNELS_CUDA_CAST_BODY_H_

#include <cstdint>

#include "kernels/cuda/element.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/reduce_body.h"
#include "kernels/cuda/task.h"

namespace basin::kernels::cuda {

constexpr unsigned kCastThreads = 256;
constexpr unsigned kCastVector = 8;  // Elements of a thread: 16 bytes on the wire.

template <typename Wire, unsigned N>
BASIN_HOST_DEVICE void CastElements(const CastTask& task, uint64_t element) {
  const float scale = static_cast<float>(task.scale);
  if (task.to_wire) {
    const auto value = LoadPack<float, N>(task.source, element);
    Pack<uint16_t, N> wire;
    BASIN_UNROLL
    for (unsigned k = 0; k < N; ++k) wire.values[k] = Wire::Narrow(value.values[k] * scale);
    StorePack<uint16_t, N>(task.destination, element, wire);
  } else {
    const auto wire = LoadPack<uint16_t, N>(task.source, element);
    Pack<float, N> value;
    BASIN_UNROLL
    for (unsigned k = 0; k < N; ++k) {
      value.values[k] = Canonical(Wire::Widen(wire.values[k]) * scale);
    }
    StorePack<float, N>(task.destination, element, value);
  }
}

// Thread `thread` of all: its vector, or what is left of the array.
template <typename Wire>
BASIN_HOST_DEVICE void CastVector(const CastTask& task, uint64_t thread) {
  const uint64_t element = thread * kCastVector;
  if (task.aligned && element + kCastVector <= task.count) {
    CastElements<Wire, kCastVector>(task, element);
    return;
  }
  for (unsigned k = 0; k < kCastVector && element + k < task.count; ++k) {
    CastElements<Wire, 1>(task, element + k);
  }
}

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_CAST_BODY_H_
