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

// A launch carries its terms among its arguments, of which a kernel may have 4 KiB.
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
  // The first input that is not finite: contribution << kElementBits | element in the
  // span. kNoElement if there is none, so that the least one wins.
  uint64_t first_non_finite;
  uint64_t overflows;
  uint64_t integer_wraps;
};
constexpr int kElementBits = 40;
constexpr uint64_t kMaxElements = uint64_t{1} << kElementBits;
constexpr uint64_t kMaxContributions = uint64_t{1} << (64 - kElementBits);
constexpr uint64_t kNoElement = ~uint64_t{0};

// Folds the terms, in order, finishes, and writes the result to `output`. REQUIRES: term_count > 0.
struct ReduceTask {
  TaskTerm terms[kMaxTermsPerTask];
  uint32_t term_count;
  Combine combine;
  Finish finish;
  DType result_dtype;
  bool aligned;  // Every array begins at a multiple of 16 bytes.
  double finish_constant;
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

// Searches of f32 arrays for their largest magnitudes (kernels/fit.h), in one launch.
struct MagnitudeItem {
  const void* source;
  uint32_t* largest;  // Raised to the largest magnitude of the source.
  uint64_t count;
};
constexpr size_t kMaxMagnitudes = 160;
struct MagnitudeTask {
  MagnitudeItem items[kMaxMagnitudes];
  uint32_t count;
};
static_assert(sizeof(MagnitudeTask) <= 4096, "kernel arguments");

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
  // If there is one, the scale is the fitted one for this largest magnitude instead.
  const uint32_t* largest = nullptr;
};
constexpr size_t kMaxNarrows = 80;
struct NarrowTask {
  NarrowItem items[kMaxNarrows];
  uint32_t count;
};
static_assert(sizeof(NarrowTask) <= 4096, "kernel arguments");

// What measure.h needs of contributions that stay on the device, in one launch.

constexpr size_t kHashSums = 8;  // The accumulators of XXH3.

// The constants of XXH3: what the sums start from, the secret of each stripe of a block and the
// next one's, that of the last stripe, and the multiplier between blocks.
struct HashKeys {
  uint64_t start[kHashSums];
  uint64_t stripe[16 + kHashSums];
  uint64_t last[kHashSums];
  uint64_t multiplier;
};

// Shorter chunks come as they are, because XXH3 has other rules for them.
constexpr size_t kShortChunk = 240;
union ChunkRecord {
  uint64_t sums[kHashSums];
  unsigned char bytes[kShortChunk];
};

// The bytes of a tensor as they travel. REQUIRES: they are aligned to the tensor's elements.
struct MeasureItem {
  const void* data;
  uint64_t bytes;
  ChunkRecord* records;  // One per chunk.
  double* lanes;         // As in facts.h: kNormLanes sums per leaf. Null: the norm is not wanted.
  uint32_t chunk_bytes;
  DType dtype;  // That of the elements; matters to the norm.
};
constexpr size_t kMaxMeasures = 90;
struct MeasureTask {
  HashKeys keys;
  MeasureItem items[kMaxMeasures];
  uint32_t count;
};
static_assert(sizeof(MeasureTask) <= 4096, "kernel arguments");

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_TASK_H_
