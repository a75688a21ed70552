// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The squared norm of a tensor in a trainer's memory, by the tree of facts.h: the same bits as the
// norm of a result with the same values, on every machine.
//
// Thread contract: pure functions.

#ifndef BASIN_KERNELS_NORM_H_
#define BASIN_KERNELS_NORM_H_

#include <cstddef>
#include <vector>

#include "kernels/facts.h"
#include "protocol/dtype.h"

namespace basin::kernels {

// Appends the sum of each leaf of `count` elements in logical C order to `leaves`; SquaredNorm()
// adds up those of a whole tensor. Nothing is appended for integers, which have no norm. REQUIRES:
// all parts of a tensor but the last are whole leaves.
void AppendNormLeaves(DType dtype, const void* data, size_t count, std::vector<double>* leaves);

// Appends the sum of a leaf whose lanes, kNormLanes sums of squares, were added up elsewhere.
void AppendNormLeaf(const double* lanes, std::vector<double>* leaves);

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_NORM_H_
