// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/device_reduction.h"

#include <utility>
#include <vector>

namespace basin::aggregator {
namespace {

using kernels::cuda::DevicePipeline;
using kernels::cuda::HostPass;

struct DeviceReduction {
  struct Chunk {
    ChunkWork work;
    bool on_device = false;
  };

  std::shared_ptr<Reduction> reduction;
  std::vector<Chunk> chunks;
  kernels::Facts facts;

  void Prepare(const DevicePipeline& pipeline) {
    const uint32_t count = reduction->action.range.count;
    chunks.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      ChunkWork& work = chunks[i].work;
      if (auto failure = PrepareChunk(*reduction, i, work); failure.has_value()) {
        reduction->done.failure = std::move(failure->message);
        return;
      }
      chunks[i].on_device = work.plan.has_value() && pipeline.Fits(*work.plan);
    }
  }

  std::vector<HostPass> Passes() {
    std::vector<HostPass> passes;
    if (reduction->done.failure.has_value()) return passes;
    for (const Chunk& chunk : chunks) {
      if (!chunk.on_device) continue;
      const ChunkWork& work = chunk.work;
      passes.push_back({&*work.plan, work.inputs.data(), work.span, work.output, &facts});
    }
    return passes;
  }

  // `lost`: the device failed, so that nothing it has written counts.
  void Complete(bool lost, const kernels::Reducer& cpu) {
    if (lost) facts = {};
    for (const Chunk& chunk : chunks) {
      if (reduction->done.failure.has_value()) break;
      const ChunkWork& work = chunk.work;
      if (work.plan.has_value() && (lost || !chunk.on_device)) {
        auto failure =
            cpu.Reduce(*work.plan, work.inputs.data(), 0, nullptr, work.span, work.output, &facts);
        if (failure.has_value()) reduction->done.failure = std::move(failure->message);
      }
      CompleteChunk(*reduction, work);
    }
    CloseReduction(*reduction, facts);
  }
};

}  // namespace

DevicePipeline::Ticket StartOnDevice(const std::shared_ptr<Reduction>& reduction,
                                     DevicePipeline& pipeline, const std::string& device,
                                     const kernels::Reducer& cpu, BufferPool& pool,
                                     DeviceReductionDone done) {
  const auto work = std::make_shared<DeviceReduction>();
  work->reduction = reduction;
  OpenReduction(*reduction, pool);
  work->Prepare(pipeline);
  std::vector<HostPass> passes = work->Passes();
  if (!passes.empty()) reduction->device = device;
  return pipeline.Start(std::move(passes), [work, &cpu, done = std::move(done)](
                                               const std::optional<kernels::Failure>& failure) {
    if (failure.has_value()) work->reduction->device = "cpu";
    work->Complete(failure.has_value(), cpu);
    done(failure);
  });
}

}  // namespace basin::aggregator
