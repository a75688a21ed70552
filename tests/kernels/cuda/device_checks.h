// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The duties of a reducer on a device beyond the contract of every backend: reduce inputs on the
// device, more terms than a task takes, spans of several pieces, and cast. Plain functions, as in
// contract.h, for the emulated device and for a real one.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_KERNELS_CUDA_DEVICE_CHECKS_H_
#define BASIN_TESTS_KERNELS_CUDA_DEVICE_CHECKS_H_

#include <memory>
#include <string_view>

#include "kernels/cuda/device.h"
#include "kernels/cuda/device_pipeline.h"
#include "kernels/cuda/device_reducer.h"
#include "kernels/reference.h"
#include "tests/kernels/contract.h"

namespace basin::kernels::cuda {

// Up to 200 contributions, in host memory.
contract::Report CheckManyTerms(const DeviceReducer& reducer);

// Spans that take several pieces, in host memory.
contract::Report CheckManyPieces(const DeviceReducer& reducer);

// ReduceOnDevice over aligned and unaligned arrays. `device` is the reducer's, or one that shares
// its memory.
contract::Report CheckOnDevice(const DeviceReducer& reducer, Device* device);

// Passes of many dtypes and sizes through pipelines with few and small lanes, and with large ones:
// several passes in a Start, several Starts in flight.
contract::Report CheckPipeline(Device* device);

// Reduces in a pipeline, as one pass after another, for the contract suite. The reference reduces
// passes that do not fit into a lane. One thread at a time.
class PipelineReducer final : public Reducer {
 public:
  // REQUIRES: `device` outlives it, and has memory.
  explicit PipelineReducer(Device* device)
      : pipeline_(DevicePipeline::Make(device, {}).value()), reference_(MakeReferenceReducer()) {}

  std::string_view name() const override { return "pipeline"; }
  std::optional<Failure> Reduce(const ReductionPlan& plan, const Input* inputs, const Span& span,
                                const Output& output, Facts* facts) const override;

 private:
  const std::unique_ptr<DevicePipeline> pipeline_;
  const std::unique_ptr<Reducer> reference_;
};

// The casts against those of kernels/cast.h.
contract::Report CheckCasts(Device* device);

}  // namespace basin::kernels::cuda

#endif  // BASIN_TESTS_KERNELS_CUDA_DEVICE_CHECKS_H_
