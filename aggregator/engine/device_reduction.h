// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A reduction on a device: the same steps as Run in reduction.h, with the passes of all chunks in
// one Start of a pipeline. What the device cannot do, and what it fails at, the CPU does: the
// results have the same bits.
//
// Thread contract: the thread of the pipeline. Failure: as Run; that of the device is reported, and
// changes no result.

#ifndef BASIN_AGGREGATOR_ENGINE_DEVICE_REDUCTION_H_
#define BASIN_AGGREGATOR_ENGINE_DEVICE_REDUCTION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "accelerator/transfer/device_pipeline.h"
#include "aggregator/engine/buffer_pool.h"
#include "aggregator/engine/reduction.h"
#include "kernels/reducer.h"

namespace basin::aggregator {

// How a reduction came out on its device: nothing, or the device's failure.
using DeviceReductionDone =
    std::function<void(const std::optional<kernels::Failure>& device_failure)>;

// Starts the reduction. `done` is called, from this call or a later one of the pipeline, when the
// reduction is closed. `device`: the name of the device for Reduction::device.
// REQUIRES: `cpu` and `pool` live until then.
accelerator::DevicePipeline::Ticket StartOnDevice(const std::shared_ptr<Reduction>& reduction,
                                                  accelerator::DevicePipeline& pipeline,
                                                  const std::string& device,
                                                  const kernels::Reducer& cpu, BufferPool& pool,
                                                  DeviceReductionDone done);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_DEVICE_REDUCTION_H_
