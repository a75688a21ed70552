// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Reductions of memory of the host and of the device to memory of the host, several in flight.
//
// A pipeline has a few STAGING SLOTS, each with a queue, pinned memory and device memory. The
// passes of a Start are gathered into a slot until it is full: that is a LOAD. A load takes one
// copy to the device, one launch for all its passes (one more where dtypes change), and one copy
// back. While the device works on one load, the caller gathers the next one into another slot, so
// that gathering, copies in both directions and kernels overlap. A pass that is larger than a slot
// is cut at leaves of the norm. Inputs that are in memory of the device are not copied: the kernel
// reads them where they are.
//
// Ownership: owns its slots, whose memory is allocated by Make and then only used again. Thread
// contract: one thread at a time. Failure: the first failure of the device ends the pipeline. It
// fails all work in flight and all work that is started later; nothing runs on the device then.

#ifndef BASIN_ACCELERATOR_TRANSFER_DEVICE_PIPELINE_H_
#define BASIN_ACCELERATOR_TRANSFER_DEVICE_PIPELINE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "accelerator/device/device.h"
#include "kernels/reducer.h"

namespace basin::accelerator {

using kernels::Facts;
using kernels::Input;
using kernels::Output;
using kernels::ReductionPlan;
using kernels::Span;

// One pass over a span: the arguments of Reducer::Reduce.
// REQUIRES: plan->outcome() == kReduce.
struct HostPass {
  const ReductionPlan* plan = nullptr;
  const Input* inputs = nullptr;  // By contribution.
  Span span;
  Output output;
  Facts* facts = nullptr;
  // By contribution: where an input is in memory of the device, aligned to its elements; null: it
  // is in `inputs`. Null instead of the array: all of them are.
  const void* const* on_device = nullptr;
};

struct PipelineOptions {
  size_t slots = 2;                      // One load is gathered while another is on the device.
  size_t slot_bytes = size_t{16} << 20;  // Inputs and results of a load.
};

class DevicePipeline {
 public:
  // Nothing, or why there is no result. The outputs and facts of a failure are unspecified.
  using Done = std::function<void(const std::optional<Failure>& failure)>;
  using Ticket = uint64_t;

  // Fails if there is no memory for one slot; if memory is short, it may have fewer slots than
  // requested. REQUIRES: `device` outlives the pipeline; options.slots > 0.
  static Result<std::unique_ptr<DevicePipeline>> Make(Device* device,
                                                      const PipelineOptions& options);
  // Waits for what is in flight.
  ~DevicePipeline();
  DevicePipeline(const DevicePipeline&) = delete;
  DevicePipeline& operator=(const DevicePipeline&) = delete;

  size_t slots() const { return slots_.size(); }

  // Whether a slot has room for one leaf of such a pass, and a launch for its terms.
  bool Fits(const ReductionPlan& plan) const;

  // Starts the passes and returns when their inputs in host memory have been read. `done` is called
  // once, from this call or a later one, and must not call the pipeline; until then plans, inputs
  // on the device, outputs and facts stay valid. Work that was started earlier is finished when its
  // slot is needed. REQUIRES: Fits() holds for each plan.
  Ticket Start(std::vector<HostPass> passes, Done done);

  // Returns when the work of the ticket, and all that was started before it, is done.
  void Finish(Ticket ticket);

 private:
  class StagingSlot;

  struct Work {
    std::vector<HostPass> passes;
    Done done;
    size_t loads = 0;      // In flight.
    bool started = false;  // All of it.
  };

  explicit DevicePipeline(size_t slot_bytes);

  std::optional<Failure> StartPasses(Work* work);
  // A free slot; finishes the oldest load for that if it must.
  Result<StagingSlot*> TakeSlot();
  std::optional<Failure> Launch(Work* work, StagingSlot* slot);
  std::optional<Failure> FinishOldestLoad();
  // Ends the pipeline.
  void Break(const Failure& failure);
  // Reports finished work, oldest first.
  void ReportDone();

  const size_t slot_bytes_;
  std::vector<std::unique_ptr<StagingSlot>> slots_;
  std::vector<StagingSlot*> free_;
  std::deque<StagingSlot*> in_flight_;       // Oldest first.
  std::deque<std::unique_ptr<Work>> works_;  // Not yet reported, oldest first.
  Ticket next_ticket_ = 0;                   // Tickets are consecutive.
  std::optional<Failure> failure_;           // Set for good by Break.
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_TRANSFER_DEVICE_PIPELINE_H_
