// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Where the tensors of one Reduce begin in its result: at multiples of a line of the cache, so that
// any element may be first. The core counts the gaps, and the engine makes them.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CORE_RESULT_ALIGNMENT_H_
#define BASIN_AGGREGATOR_CORE_RESULT_ALIGNMENT_H_

#include <cstdint>

namespace basin::aggregator {

inline constexpr uint64_t kResultAlignment = 64;

// Where a tensor can begin after so many bytes.
constexpr uint64_t AlignedResult(uint64_t bytes) {
  return (bytes + kResultAlignment - 1) / kResultAlignment * kResultAlignment;
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_RESULT_ALIGNMENT_H_
