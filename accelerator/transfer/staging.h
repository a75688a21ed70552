// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The steps of a reduction on a device that a pipeline and a node's ranks share: reading inputs,
// the task of a plan, and the facts that come back.
//
// Thread contract: a SliceReader belongs to one thread; the functions are pure.

#ifndef BASIN_ACCELERATOR_TRANSFER_STAGING_H_
#define BASIN_ACCELERATOR_TRANSFER_STAGING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "accelerator/device/device.h"
#include "kernels/cuda/task.h"
#include "kernels/reducer.h"

namespace basin::accelerator {

using kernels::cuda::DeviceFacts;
using kernels::cuda::kAlignment;
using kernels::cuda::ReduceTask;
using kernels::cuda::TaskTerm;

constexpr size_t RoundUp(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

inline unsigned char* At(const Memory& memory, size_t offset) {
  return static_cast<unsigned char*>(memory.get()) + offset;
}

inline bool IsAligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

// Reads the slices of an input from front to back.
class SliceReader {
 public:
  explicit SliceReader(const kernels::Input& input)
      : slice_(input.slices), end_(input.slices + input.slice_count) {}

  void Read(unsigned char* destination, size_t size) {
    while (size > 0 && slice_ != end_) {
      const size_t piece = std::min(size, slice_->size - read_);
      if (piece > 0) {
        std::memcpy(destination, static_cast<const unsigned char*>(slice_->data) + read_, piece);
      }
      destination += piece;
      size -= piece;
      read_ += piece;
      if (read_ == slice_->size) {
        ++slice_;
        read_ = 0;
      }
    }
  }

 private:
  const kernels::Slice* slice_;
  const kernels::Slice* end_;
  size_t read_ = 0;  // Bytes of *slice_.
};

// A task without terms, inputs and outputs.
inline ReduceTask TaskOf(const kernels::ReductionPlan& plan) {
  ReduceTask task = {};
  task.combine = plan.combine();
  task.finish = plan.finish();
  task.finish_constant = plan.finish_constant();
  task.result_dtype = plan.spec().result_dtype;
  return task;
}

inline TaskTerm ToTaskTerm(const kernels::Term& term, const void* data) {
  return TaskTerm{data, term.unscale, term.factor, static_cast<uint32_t>(term.contribution),
                  term.wire_dtype};
}

inline bool HasNorm(const kernels::ReductionPlan& plan, const kernels::Output& output) {
  return output.norm_leaves != nullptr && plan.accumulator_dtype() != DType::kI64;
}

// Merges the observations of a device for the elements from `first` on.
inline void MergeFacts(const DeviceFacts& seen, uint64_t first, kernels::Facts* facts) {
  kernels::Facts part;
  if (seen.first_non_finite != kernels::cuda::kNoElement) {
    part.first_non_finite_input = kernels::NonFiniteInput{
        static_cast<size_t>(seen.first_non_finite >> kernels::cuda::kElementBits),
        first + (seen.first_non_finite & (kernels::cuda::kMaxElements - 1))};
  }
  part.overflows = seen.overflows;
  part.integer_wraps = seen.integer_wraps;
  facts->Merge(part);
}

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_TRANSFER_STAGING_H_
