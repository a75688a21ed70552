// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls in which workers bring each other rows of arrays: what they say that they call, as which
// tensors their bytes travel, and which rows belong to whom. Workers in Python say and do the same
// (gathering.py, scattering.py), so that they meet these in one call.
//
// The rows of an array are the elements of its first dimension; a number is one row.
//
// Thread contract: pure functions.

#ifndef BASIN_CLIENT_CORE_ROWS_H_
#define BASIN_CLIENT_CORE_ROWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/core/unnamed.h"
#include "protocol/round.h"
#include "protocol/tensor.h"

namespace basin::client {

uint64_t RowsOf(const TensorSpec& array);
// The bytes of one row; nullopt if they are too many, or the dtype has no size.
std::optional<uint64_t> RowBytes(const TensorSpec& array);

// "float32[3, 64]", with the names that NumPy has for dtypes; and "float32[*, 64]", if workers may
// have different numbers of rows.
std::string DescribeArray(const TensorSpec& array);
std::string DescribeRows(const TensorSpec& array);
// "3 workers (generation 5.2)", if ranks matter.
std::string DescribeMembers(const Membership& membership);

// Arrays of so many bytes as tensors, whose lengths are powers of two, so that a lane needs few of
// them, whatever the sizes are. They are in the order of the arrays.
std::vector<CallPart> PartsOfBytes(const std::vector<uint64_t>& sizes);

// Whether the numbers are not negative, and their sum is this one.
bool AddUpTo(const std::vector<int64_t>& numbers, uint64_t sum);

// Rows [begin, begin + count).
struct RowRange {
  uint64_t begin = 0;
  uint64_t count = 0;
};
// Those that a rank keeps of the result of a reduce-scatter: as many as the others, or one more for
// the first ranks. REQUIRES: rank < world_size.
RowRange RowsOfRank(uint64_t rows, uint32_t rank, uint32_t world_size);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_ROWS_H_
