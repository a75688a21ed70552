// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The canonical reduction on CPU vectors, with the instruction set chosen at run time. A span is
// worked off in blocks whose accumulators stay in the first-level cache, so that memory sees one
// read of each contribution and one write of the result.

#ifndef BASIN_KERNELS_CPU_CPU_REDUCER_H_
#define BASIN_KERNELS_CPU_CPU_REDUCER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/reducer.h"

namespace basin::kernels {

// The instruction sets this build has kernels for and this machine runs, best first: "AVX3",
// "AVX2", "SSE4", "SSSE3", "SCALAR" on x86-64.
std::vector<std::string> CpuTargets();

// A reducer for the best target, named "cpu/<target>". Never fails.
std::unique_ptr<Reducer> MakeCpuReducer();

// A reducer for one of CpuTargets(); null for any other name.
std::unique_ptr<Reducer> MakeCpuReducer(std::string_view target);

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_CPU_CPU_REDUCER_H_
