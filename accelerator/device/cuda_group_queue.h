// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The queue of a node's ranks on a device of the CUDA runtime. Its events are those of the trainer
// devices (cuda_trainer_device.h).

#ifndef BASIN_ACCELERATOR_DEVICE_CUDA_GROUP_QUEUE_H_
#define BASIN_ACCELERATOR_DEVICE_CUDA_GROUP_QUEUE_H_

#include <memory>

#include "accelerator/device/group_queue.h"

namespace basin::accelerator {

// A queue of the device of this index, from 0. Fails if there is none, if it cannot run the kernels
// of the reduction, and in a build without CUDA.
Result<std::unique_ptr<GroupQueue>> OpenGroupQueue(int index);

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_CUDA_GROUP_QUEUE_H_
