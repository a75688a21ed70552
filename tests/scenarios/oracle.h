// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Numbers that replace tensor bytes, so that a result shows which workers were counted, and how
// often.
//
// Every element of worker k's gradient is 2^(8k). A sum is then a number in base 256 whose k-th
// digit is the weight with which worker k was counted: a worker that was counted twice shows as a
// 2, and never as another worker. The sums are exact in f64 for up to kMaxWorkers workers, also
// after a division by the divisor. A chunk is one number here, whatever its size.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_TESTS_SCENARIOS_ORACLE_H_
#define BASIN_TESTS_SCENARIOS_ORACLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aggregator/core/action.h"
#include "protocol/round.h"

namespace basin::scenarios {

inline constexpr uint32_t kMaxWorkers = 6;

double GradientOf(uint32_t worker);

// Names the workers whose gradients add up to `sum`, as in "{w1,w2}" or "{3*w1,w2}"; the bare
// number if there are none.
std::string WhoIsIn(double sum, const std::vector<std::string>& workers);

// The result of the canonical reduction of one element; `values` are in contributor order.
double ReduceValues(const RoundSpec& spec, const std::vector<double>& values,
                    const std::vector<uint64_t>& weights, uint64_t divisor);

// The digest of one chunk; commutative sums of these replace the real round digest.
Digest ChunkDigest(std::string_view tensor, uint32_t chunk, double value);

// Describes one tensor's result in words: "sum of {w1,w2} divisor 2".
std::string DescribeResult(const RoundSpec& spec, uint64_t divisor, double value,
                           const std::vector<std::string>& workers);

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_ORACLE_H_
