// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The events and queues of a device of the CUDA runtime. A queue is a stream of our own.
//
// Thread contract and failure: as device.h.

#ifndef BASIN_ACCELERATOR_DEVICE_CUDA_QUEUE_H_
#define BASIN_ACCELERATOR_DEVICE_CUDA_QUEUE_H_

#include <memory>

#include "accelerator/device/cuda_calls.h"
#include "accelerator/device/device.h"

namespace basin::accelerator {

Result<std::unique_ptr<Event>> MakeCudaEvent(CudaCallsPtr calls);
Result<std::unique_ptr<Queue>> MakeCudaQueue(CudaCallsPtr calls);

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_CUDA_QUEUE_H_
