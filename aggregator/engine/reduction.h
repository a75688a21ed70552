// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One Reduce action with everything it needs, to be carried out on any thread: inputs by reference
// in, one buffer of results, its digests and facts out.
//
// Ownership: a Reduction owns its inputs until it is closed.
// Thread contract: one thread at a time.
// Failure: a plan that cannot be made or a device that fails is reported in ReduceDone::failure.

#ifndef BASIN_AGGREGATOR_ENGINE_REDUCTION_H_
#define BASIN_AGGREGATOR_ENGINE_REDUCTION_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/event.h"
#include "aggregator/engine/buffer_pool.h"
#include "aggregator/engine/result_arena.h"
#include "kernels/checksum.h"
#include "kernels/reducer.h"
#include "runtime/payload.h"

namespace basin::aggregator {

// One chunk of one worker's contribution.
struct ChunkInput {
  PayloadPart part;
  DType wire_dtype = DType::kUnspecified;  // kUnspecified: the tensor's.
  int32_t wire_exponent = 0;
};

// The terms on which an attempt's chunks are reduced; shared by all its reductions.
struct AttemptTerms {
  Ballot ballot;
  RoundSpec spec;
  std::vector<Contributor> contributors;  // In the order in which they are folded.
};

// A tensor with the key of its digests, which is made from the name.
struct KeyedTensor {
  TensorSpec spec;
  kernels::TensorKey key{""};
};

struct Reduction {
  // Which chunk of which tensor, and where it is in the result.
  struct Target {
    size_t tensor = 0;   // In `tensors`.
    uint32_t chunk = 0;  // Its number in the tensor.
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };

  // What to do.
  Reduce action;
  std::shared_ptr<const AttemptTerms> terms;
  std::vector<KeyedTensor> tensors;  // By range.
  // By chunk of the ranges, then by contributor; empty parts for those that skipped the tensor.
  std::vector<std::vector<ChunkInput>> inputs;
  std::shared_ptr<ResultHalf> half;  // Where the result goes, if its tensors have places there.

  // What came of it.
  std::shared_ptr<Buffer> result;
  std::vector<Target> chunks;  // Those of the ranges.
  size_t next = 0;             // The first of them that RunPart has not reduced.
  ReduceDone done;
  double seconds = 0;          // That a reduce thread spent on it.
  absl::Time ordered;          // When the core asked for it.
  std::string device = "cpu";  // What reduced it, as the metrics name it.
};

// Whether an input is in memory of a device.
bool HasDeviceInput(const Reduction& reduction);

// Carries out a part of the reduction, of about `bytes` of inputs, and the whole if they are fewer;
// returns whether it is done, and has let go of its inputs. Others may be reduced between the
// parts.
bool RunPart(Reduction& reduction, const kernels::Reducer& reducer, BufferPool& pool,
             uint64_t bytes);

// ---- The steps of RunPart, for a device on which several reductions are in flight: Open, Prepare
// of each chunk, a pass of a reducer for each that has a plan, Complete of each chunk in order,
// Close. A chunk that fails is passed to FailChunk, and no other chunk is reduced or completed
// after it.

// Where an input is in memory of a device.
struct DeviceInput {
  const DeviceSegment* segment = nullptr;  // Null: it is in memory of the host.
  uint64_t offset = 0;
  uint64_t size = 0;
};

// A chunk between Prepare and Complete. It refers to the reduction's inputs and result.
struct ChunkWork {
  Reduction::Target target;
  std::optional<kernels::ReductionPlan> plan;  // Absent: the result is zeros, and is written.
  std::vector<kernels::Slice> slices;
  std::vector<kernels::Input> inputs;
  // By contributor; empty if all inputs are in memory of the host.
  std::vector<DeviceInput> device_inputs;
  std::vector<const void*> addresses;  // Theirs, for HostPass::on_device.
  // Copies of them on the host.
  std::vector<std::unique_ptr<char[]>> fetched;
  std::vector<kernels::Slice> fetched_slices;
  kernels::Span span;
  std::vector<double> leaves;
  kernels::Output output;
  kernels::Facts facts;
};

void OpenReduction(Reduction& reduction, BufferPool& pool);
// `index`: of the chunk among those of all ranges.
std::optional<kernels::Failure> PrepareChunk(Reduction& reduction, size_t index, ChunkWork& work);
// The pass of the chunk, if it has a plan. Copies inputs from a device to the host first.
std::optional<kernels::Failure> ReduceChunk(const kernels::Reducer& reducer, ChunkWork& work);
void CompleteChunk(Reduction& reduction, const ChunkWork& work);
void FailChunk(Reduction& reduction, size_t index, kernels::Failure failure);
void CloseReduction(Reduction& reduction);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_REDUCTION_H_
