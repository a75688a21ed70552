// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/device_reduction.h"

#include <utility>
#include <vector>

namespace basin::aggregator {
namespace {

using accelerator::DevicePipeline;
using accelerator::HostPass;

struct DeviceReduction {
  struct Chunk {
    ChunkWork work;
    bool on_device = false;
  };

  std::shared_ptr<Reduction> reduction;
  std::vector<Chunk> chunks;

  void Prepare(const DevicePipeline& pipeline) {
    chunks.resize(reduction->chunks.size());
    for (size_t i = 0; i < chunks.size(); ++i) {
      ChunkWork& work = chunks[i].work;
      if (auto failure = PrepareChunk(*reduction, i, work); failure.has_value()) {
        FailChunk(*reduction, i, *std::move(failure));
        return;
      }
      chunks[i].on_device = work.plan.has_value() && pipeline.Fits(*work.plan);
    }
  }

  std::vector<HostPass> Passes() {
    std::vector<HostPass> passes;
    if (reduction->done.failure.has_value()) return passes;
    for (Chunk& chunk : chunks) {
      if (!chunk.on_device) continue;
      ChunkWork& work = chunk.work;
      passes.push_back({&*work.plan, work.inputs.data(), work.span, work.output, &work.facts,
                        work.addresses.empty() ? nullptr : work.addresses.data()});
    }
    return passes;
  }

  // `lost`: the device failed, so that nothing it has written counts.
  void Complete(bool lost, const kernels::Reducer& cpu) {
    for (size_t i = 0; i < chunks.size() && !reduction->done.failure.has_value(); ++i) {
      ChunkWork& work = chunks[i].work;
      if (lost || !chunks[i].on_device) {
        work.facts = {};
        if (auto failure = ReduceChunk(cpu, work); failure.has_value()) {
          FailChunk(*reduction, i, *std::move(failure));
          break;
        }
      }
      CompleteChunk(*reduction, work);
    }
    CloseReduction(*reduction);
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
