// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// DeviceSegment by the virtual memory management of the CUDA driver: an allocation with a
// descriptor (cuMemExportToShareableHandle), which the Unix socket passes like that of a memory
// file. The older handles of cudaIpcGetMemHandle also share memory, but leave undefined what
// happens to it when the process that allocated it ends first, and need a common IPC namespace,
// which containers do not have.
//
// The driver's functions are found at run time, through the CUDA runtime.
//
// Thread contract: any thread; the last user of a segment does not wait until it is unmapped.
// Failure: as device.h.

#ifndef BASIN_ACCELERATOR_DEVICE_CUDA_SEGMENT_H_
#define BASIN_ACCELERATOR_DEVICE_CUDA_SEGMENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "accelerator/device/cuda_calls.h"
#include "accelerator/device/releases.h"
#include "runtime/device_segment.h"

namespace basin::accelerator {

// The device on which a segment is used. `releases` unmaps its segments.
struct SegmentDevice {
  std::string name;
  int index = 0;
  Hangs hangs;
  std::shared_ptr<Releases> releases;
};

// Rounds the size up to what the device can map. REQUIRES: the device is current.
Result<std::shared_ptr<DeviceSegment>> MakeCudaSegment(const SegmentDevice& device, uint64_t size);

// REQUIRES: the device is current.
Result<std::shared_ptr<DeviceSegment>> OpenCudaSegment(const SegmentDevice& device, int descriptor,
                                                       uint64_t size);

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_CUDA_SEGMENT_H_
