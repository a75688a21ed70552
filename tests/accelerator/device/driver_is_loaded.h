// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Whether a test that needs a GPU may be skipped.
//
// Thread contract: any thread.

#ifndef BASIN_TESTS_ACCELERATOR_DEVICE_DRIVER_IS_LOADED_H_
#define BASIN_TESTS_ACCELERATOR_DEVICE_DRIVER_IS_LOADED_H_

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace basin::accelerator {

// Whether this process sees the driver of a GPU, and nobody has hidden the GPUs from it. A test
// that then finds no device fails, because the driver does not work.
inline bool DriverIsLoaded() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string chosen = visible == nullptr ? "all" : visible;
  return access("/dev/nvidiactl", F_OK) == 0 && !chosen.empty() && chosen != "-1";
}

}  // namespace basin::accelerator

#endif  // BASIN_TESTS_ACCELERATOR_DEVICE_DRIVER_IS_LOADED_H_
