// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The duties of a reducer on a device beyond the contract of every backend: reduce inputs on the
// device, more terms than a task takes, spans of several pieces, and cast. Plain functions, as in
// contract.h, for the emulated device and for a real one.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_KERNELS_CUDA_DEVICE_CHECKS_H_
#define BASIN_TESTS_KERNELS_CUDA_DEVICE_CHECKS_H_

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_reducer.h"
#include "tests/kernels/contract.h"

namespace basin::kernels::cuda {

// Up to 200 contributions, in host memory.
contract::Report CheckManyTerms(const DeviceReducer& reducer);

// Spans that take several pieces, in host memory, folded and reduced.
contract::Report CheckManyPieces(const DeviceReducer& reducer);

// ReduceOnDevice over aligned and unaligned arrays. `device` is the reducer's, or one that shares
// its memory.
contract::Report CheckOnDevice(const DeviceReducer& reducer, Device* device);

// The casts against those of kernels/cast.h.
contract::Report CheckCasts(Device* device);

}  // namespace basin::kernels::cuda

#endif  // BASIN_TESTS_KERNELS_CUDA_DEVICE_CHECKS_H_
