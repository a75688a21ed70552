// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Memory of a device, and how long a device may take.
//
// Thread contract: plain values.

#ifndef BASIN_ACCELERATOR_DEVICE_MEMORY_H_
#define BASIN_ACCELERATOR_DEVICE_MEMORY_H_

#include <chrono>
#include <functional>
#include <memory>

#include "kernels/failure.h"

namespace basin::accelerator {

using kernels::Failure;
using kernels::FailureCode;
using kernels::Result;

// An allocation, released with the object. Aligned to kAlignment. Must not outlive its device.
using Memory = std::unique_ptr<void, std::function<void(void*)>>;

// The longest work takes milliseconds. Longer than a device that is shared, or that was reset by
// its driver, needs to answer.
constexpr std::chrono::seconds kPatience{10};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_MEMORY_H_
