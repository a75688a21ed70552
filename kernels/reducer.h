// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A backend of the canonical reduction (plan.h): scalar reference, CPU vectors, CUDA. All give the
// same bits for the same plan and inputs; one contract suite in tests/kernels checks each of them.
//
// A reducer works on a span of a tensor: `count` elements from element `first`. It takes all
// contributions in one pass, which reads each input byte once and writes each output byte once.
//
// Ownership: the caller owns all buffers; a reducer keeps no pointer after a call returns.
// Thread contract: calls on one reducer are safe from several threads at once as long as their
// output buffers do not overlap. The caller's floating-point mode does not matter: a reducer sets
// round-to-nearest without flushing of subnormals for itself and restores the mode.
// Failure: only a backend's device can fail; a broken REQUIRES is a bug of the caller.

#ifndef BASIN_KERNELS_REDUCER_H_
#define BASIN_KERNELS_REDUCER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/facts.h"
#include "kernels/failure.h"
#include "kernels/plan.h"

namespace basin::kernels {

// Contiguous bytes of one contribution. Slices come from the network as they are: any address, any
// length (also 0), and an element may begin in one slice and end in the next.
struct Slice {
  const void* data;
  size_t size;  // Bytes.
};

// The bytes of one contribution for a span: its slices in order hold exactly `count` elements of
// the contribution's wire dtype, little-endian. Unused, and may be empty, for contributions that
// are not terms of the plan.
struct Input {
  const Slice* slices = nullptr;
  size_t slice_count = 0;
};

// A part of a tensor.
// REQUIRES: `first` is a multiple of kNormLeafElements, and so is `count` unless the span ends the
// tensor; the norm's leaves are then whole.
struct Span {
  uint64_t first = 0;
  size_t count = 0;
};

// Where a result goes. Neither buffer overlaps an input.
struct Output {
  void* data = nullptr;  // span.count elements of the result dtype, at any address.
  // NormLeaves(span.count) sums of squares of the rounded result, or null if not wanted. Not
  // written for integers. A NaN in it is the canonical one.
  double* norm_leaves = nullptr;
  // A hint: the result is not read soon, so it need not displace other data in the caches.
  bool bypass_cache = false;
};

class Reducer {
 public:
  virtual ~Reducer() = default;

  // For logs and reports: "reference", "cpu/AVX3", "cuda".
  virtual std::string_view name() const = 0;

  // Folds all terms of the plan, finishes, and writes the result. `inputs` is indexed by
  // contribution; only the entries of terms are read. The observations are merged into *facts.
  // REQUIRES: plan.outcome() == kReduce.
  virtual std::optional<Failure> Reduce(const ReductionPlan& plan, const Input* inputs,
                                        const Span& span, const Output& output,
                                        Facts* facts) const = 0;
};

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_REDUCER_H_
