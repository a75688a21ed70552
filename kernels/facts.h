// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The observations of a reduction, which need no extra read: the first value that is not finite and
// its sender, where the arithmetic overflowed, how often integers wrapped, and the squared norm of
// the result.
//
// Facts obey the same law as the result: they depend on the contributions and the plan alone, not
// on chunking, threads or backend. Hence they count steps of the computation, each of which is seen
// exactly once, wherever the work is cut.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_KERNELS_FACTS_H_
#define BASIN_KERNELS_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>

namespace basin::kernels {

// The first input that is NaN or infinite: the least contribution that has one, and its least
// element. Inputs that are not read (skipped, weight 0) do not count.
struct NonFiniteInput {
  size_t contribution = 0;
  uint64_t element = 0;  // Index in the tensor, from 0, in logical C order.
};

struct Facts {
  std::optional<NonFiniteInput> first_non_finite_input;

  // How often finite values became NaN or infinite, in the words of plan.h: steps from a finite (or
  // no) acc and a finite x_i to an acc that is not finite, and elements whose acc is finite but
  // whose out is not. For sums and products that is the number of elements that overflowed. An
  // infinity or NaN that a worker sent is not an overflow.
  uint64_t overflows = 0;

  // How often an integer operation wrapped: int64 additions and multiplications whose exact value
  // does not fit, plus results that lost bits when they were narrowed to the result dtype.
  uint64_t integer_wraps = 0;

  // Takes in the facts of other elements or other contributions of the same reduction.
  void Merge(const Facts& other);
};

bool operator==(const Facts& a, const Facts& b);
inline bool operator!=(const Facts& a, const Facts& b) { return !(a == b); }

// The squared norm of a tensor is defined by a fixed tree, in f64 without fused operations:
//   leaf   32 Ki consecutive elements from the tensor's start (the last may be shorter): the square
//          of element k is added to lane k mod 16 in the order of k; lanes start at +0; then lane l
//          takes lane l + 8, l + 4, l + 2, l + 1, and lane 0 is the leaf's sum;
//   block  64 Ki elements: first leaf + second leaf;
//   tensor the blocks' sums added in order, from +0.
// A leaf is the smallest chunk, 256 KiB of f64, so every chunk is a whole number of leaves, and a
// thread that reduces a chunk can finish its leaves alone. Integer results have no norm.
constexpr size_t kNormLanes = 16;
constexpr size_t kNormLeafElements = size_t{32} << 10;
constexpr size_t kNormBlockElements = 2 * kNormLeafElements;

constexpr size_t NormLeaves(size_t elements) {
  return (elements + kNormLeafElements - 1) / kNormLeafElements;
}
constexpr size_t NormBlocks(size_t elements) {
  return (elements + kNormBlockElements - 1) / kNormBlockElements;
}

// The sum of a block, which has two leaves, or one at the end of the tensor. REQUIRES: 2 * block <
// count. A NaN comes out as the canonical one, here and below.
double NormBlock(const double* leaves, size_t count, size_t block);

// Adds the leaf sums of a whole tensor, in element order.
double SquaredNorm(const double* leaves, size_t count);

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_FACTS_H_
