// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/transfer/reduce_devices.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin::accelerator {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// One is gathered while the other is on the device.
constexpr uint64_t kSlots = 2;

// The least holds a frame of 1 MiB of two workers, or a leaf of 30; the most holds a leaf of any
// launch: 64 contributions of f64.
constexpr uint64_t kLeastSlot = 4 * kMiB;
constexpr uint64_t kMostSlot = 20 * kMiB;

}  // namespace

absl::StatusOr<std::unique_ptr<ReduceDevices>> ReduceDevices::Make(
    std::vector<ReduceDevice> devices, uint32_t threads, uint64_t budget) {
  threads = std::max(threads, static_cast<uint32_t>(devices.size()));
  const uint64_t slots = threads * kSlots;
  const uint64_t slot_bytes = std::min(budget / 4 / slots / kMiB * kMiB, kMostSlot);
  if (slot_bytes < kLeastSlot) {
    return absl::FailedPreconditionError(absl::StrCat(
        threads, " reduce threads need ", slots * kLeastSlot / kMiB,
        "MiB of pinned memory for a device, of which a quarter of memory.budget (",
        budget / 4 / kMiB, "MiB) is allowed; raise memory.budget or lower reduce.threads"));
  }
  auto made = std::unique_ptr<ReduceDevices>(new ReduceDevices);
  made->devices_ = std::move(devices);
  std::vector<std::shared_ptr<std::atomic<bool>>> failed;
  for (size_t i = 0; i < made->devices_.size(); ++i) {
    failed.push_back(std::make_shared<std::atomic<bool>>(false));
  }
  PipelineOptions options;
  options.slots = kSlots;
  options.slot_bytes = slot_bytes;
  for (uint32_t i = 0; i < threads; ++i) {
    const size_t index = i % made->devices_.size();
    const ReduceDevice& device = made->devices_[index];
    auto pipeline = DevicePipeline::Make(device.device.get(), options);
    if (!pipeline.ok()) {
      return absl::ResourceExhaustedError(
          absl::StrCat(pipeline.failure().message,
                       "; lower memory.budget or reduce.threads, or "
                       "free memory on the device"));
    }
    made->pinned_bytes_ += pipeline.value()->slots() * slot_bytes;
    made->threads_.push_back(
        std::make_unique<DeviceThread>(device.name, std::move(pipeline).value(), failed[index]));
  }
  return made;
}

Result<std::shared_ptr<DeviceSegment>> ReduceDevices::Open(int descriptor, uint64_t size) const {
  if (failed()) {
    return Failure{FailureCode::kUnsupported,
                   devices_.front().name + " has failed, and the CPU reduces"};
  }
  return devices_.front().device->Open(descriptor, size);
}

std::string ReduceDevices::Describe() const {
  return absl::StrJoin(devices_, " and ", [](std::string* out, const ReduceDevice& device) {
    absl::StrAppend(out, std::string(device.device->name()));
  });
}

}  // namespace basin::accelerator
