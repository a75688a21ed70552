// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The reduction on an accelerator, behind the interface of every backend.
//
// Inputs in host memory are gathered into pinned memory, a piece of the span at a time, copied to
// the device, reduced there, and the results copied back; while the device works on one piece the
// next is gathered. Inputs that are already on the device are reduced in place.
//
// Ownership: owns the device and, per call that runs at the same time, pinned and device memory of
// fixed size, which is allocated when first needed and kept. Thread contract: as Reducer. At most
// `parallel_calls` run at once; others wait. Failure: kDevice as in device.h; kUnsupported for more
// than kMaxContributions contributions. After a failure the output is unspecified, nothing of the
// call is still running, and the reducer can be used again if the device can.

#ifndef BASIN_KERNELS_CUDA_DEVICE_REDUCER_H_
#define BASIN_KERNELS_CUDA_DEVICE_REDUCER_H_

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/reducer.h"

namespace basin::kernels::cuda {

struct DeviceReducerOptions {
  // Calls that may run at once; each holds two halves of staging_bytes and some 8 MiB in pinned
  // memory, and two halves of staging_bytes and some 16 MiB in device memory.
  size_t parallel_calls = 2;
  // Inputs in flight per half of a call. Raised to what one leaf of a full task needs, 17 MiB.
  size_t staging_bytes = size_t{32} << 20;
};

class DeviceReducer final : public Reducer {
 public:
  // REQUIRES: options.parallel_calls > 0.
  explicit DeviceReducer(std::unique_ptr<Device> device, DeviceReducerOptions options = {});
  ~DeviceReducer() override;

  std::string_view name() const override { return name_; }

  std::optional<Failure> Reduce(const ReductionPlan& plan, const Input* inputs, const Span& span,
                                const Output& output, Facts* facts) const override;

  // The same over contributions on the device: inputs[i] is the device address of span.count
  // elements of contribution i, aligned to its elements (to 16 bytes for full speed); the buffers
  // of `output` are on the device too, the result aligned to its elements. Returns when the result
  // is there. REQUIRES: plan.outcome() == kReduce; what wrote the inputs has finished.
  std::optional<Failure> ReduceOnDevice(const ReductionPlan& plan, const void* const* inputs,
                                        const Span& span, const Output& output, Facts* facts) const;

 private:
  struct Workspace;  // Queues and memory for one call.

  // Gives `function` a workspace, once one is free, and takes it back.
  template <typename Function>
  std::optional<Failure> WithWorkspace(Function function) const;
  Result<std::unique_ptr<Workspace>> MakeWorkspace() const;

  const std::unique_ptr<Device> device_;
  const DeviceReducerOptions options_;
  const std::string name_;

  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
  mutable std::vector<std::unique_ptr<Workspace>> idle_;  // Guarded by mutex_.
  mutable size_t running_ = 0;                            // Guarded by mutex_: workspaces in use.
};

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_DEVICE_REDUCER_H_
