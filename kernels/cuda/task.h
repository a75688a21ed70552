// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One launch on a device, as plain data: what to reduce, to cast or to copy. All pointers are
// device addresses, except where a comment states otherwise.
//
// Thread contract: plain values.

#ifndef BASIN_KERNELS_CUDA_TASK_H_
#define BASIN_KERNELS_CUDA_TASK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/plan.h"

namespace basin::kernels::cuda {

// A launch carries its terms among its arguments, of which a kernel may have 4 KiB. More terms take
// more launches, over an accumulator.
constexpr size_t kMaxTermsPerTask = 64;

// Arrays that are placed here begin at multiples of this number of bytes.
constexpr size_t kAlignment = 256;

struct TaskTerm {
  const void* data;  // The contribution's elements of the span, aligned to their size.
  double unscale;    // As in plan.h.
  double factor;
  uint32_t contribution;  // Below kMaxContributions.
  DType wire_dtype;
};

// Counters of a reduction. Written with atomics; every launch adds to them.
struct DeviceFacts {
  // The place of the first input that is not finite: contribution << kElementBits | element in the
  // span. kNoPlace if there is none, so that the least one wins.
  uint64_t first_non_finite;
  uint64_t overflows;
  uint64_t integer_wraps;
};
constexpr int kElementBits = 40;
constexpr uint64_t kMaxElements = uint64_t{1} << kElementBits;
constexpr uint64_t kMaxContributions = uint64_t{1} << (64 - kElementBits);
constexpr uint64_t kNoPlace = ~uint64_t{0};

// Folds the terms, in order, on top of `accumulator_in` (null: afresh). Then writes acc to
// `accumulator_out`, or finishes and writes the result to `output`; the other one is null.
// REQUIRES: term_count > 0.
struct ReduceTask {
  TaskTerm terms[kMaxTermsPerTask];
  uint32_t term_count;
  Combine combine;
  Finish finish;
  DType result_dtype;
  bool aligned;  // Every array begins at a multiple of 16 bytes.
  double finish_constant;
  const void* accumulator_in;
  void* accumulator_out;
  void* output;
  double* norm_leaves;  // As in reducer.h; null if not wanted.
  DeviceFacts* facts;
  uint64_t count;  // Elements.
};
static_assert(sizeof(ReduceTask) <= 4096, "kernel arguments");

// Several tasks in one launch. REQUIRES: all have the same source (SourceOf in reduce_body.h), and
// all or none of them have norm leaves.
struct ReduceBatch {
  const ReduceTask* tasks;      // On the host, for as long as the call that adds the launch takes.
  const ReduceTask* on_device;  // The same tasks, on the device when the launch runs.
  uint32_t count;
};

// The casts of kernels/cast.h, on arrays that are aligned to their elements.
struct CastTask {
  const void* source;
  void* destination;
  uint64_t count;
  double scale;  // 2^e to the wire, 2^-e from it.
  DType wire_dtype;
  bool to_wire;
  bool aligned;  // Both arrays begin at a multiple of 16 bytes.
};

// Small copies within a device, in one launch: they gather tensors into one array, or scatter one
// array to tensors. REQUIRES: sources and destinations do not overlap.
struct CopyItem {
  const void* source;
  void* destination;
  uint64_t bytes;
};
constexpr size_t kMaxCopies = 160;
struct CopyTask {
  CopyItem items[kMaxCopies];
  uint32_t count;
};
static_assert(sizeof(CopyTask) <= 4096, "kernel arguments");

// Casts of f32 to the wire, as in kernels/cast.h, in one launch, with what the norms of the arrays
// before the cast need. REQUIRES: sources and destinations do not overlap, and are aligned to their
// elements.
struct NarrowItem {
  const void* source;
  void* destination;
  double* lanes;  // As in facts.h: kNormLanes sums for each leaf of the source.
  uint64_t count;
  float scale;  // 2^e
  DType wire_dtype;
};
constexpr size_t kMaxNarrows = 80;
struct NarrowTask {
  NarrowItem items[kMaxNarrows];
  uint32_t count;
};
static_assert(sizeof(NarrowTask) <= 4096, "kernel arguments");

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_TASK_H_
