// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The duties of a reduction on a device beyond the contract of every backend: inputs on the device,
// as many terms as a task takes, spans of several pieces. Plain functions, as in contract.h, for
// the emulated device and for a real one.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_KERNELS_CUDA_DEVICE_CHECKS_H_
#define BASIN_TESTS_KERNELS_CUDA_DEVICE_CHECKS_H_

#include <memory>
#include <string_view>

#include "accelerator/device/device.h"
#include "accelerator/transfer/device_pipeline.h"
#include "kernels/reference.h"
#include "tests/kernels/contract.h"

namespace basin::kernels::cuda {

using accelerator::Device;
using accelerator::DevicePipeline;

// As many contributions as a task takes, in host memory.
contract::Report CheckManyTerms(Device* device);

// Spans that take several pieces, in host memory.
contract::Report CheckManyPieces(Device* device);

// Inputs in aligned and unaligned arrays on the device.
contract::Report CheckOnDevice(Device* device);

// Passes of many dtypes and sizes through pipelines with few and small slots, and with large ones:
// several passes in a Start, several Starts in flight.
contract::Report CheckPipeline(Device* device);

// Reduces in a pipeline, as one pass after another, for the contract suite. The reference reduces
// passes that do not fit into a slot. One thread at a time.
class PipelineReducer final : public Reducer {
 public:
  // REQUIRES: `device` outlives it, and has memory.
  explicit PipelineReducer(Device* device)
      : pipeline_(DevicePipeline::Make(device, {2, kSlotBytes}).value()),
        reference_(MakeReferenceReducer()) {}

  std::string_view name() const override { return "pipeline"; }
  std::optional<Failure> Reduce(const ReductionPlan& plan, const Input* inputs, const Span& span,
                                const Output& output, Facts* facts) const override;

 private:
  // As in an aggregator: a leaf of 64 contributions of f64, the most of a task.
  static constexpr size_t kSlotBytes = size_t{20} << 20;

  const std::unique_ptr<DevicePipeline> pipeline_;
  const std::unique_ptr<Reducer> reference_;
};

}  // namespace basin::kernels::cuda

#endif  // BASIN_TESTS_KERNELS_CUDA_DEVICE_CHECKS_H_
