// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a begin asks for: whether it is allowed, how two of them differ, and what a contribution
// weighs. The divisor is computed in round_attempt.cc.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CORE_SPEC_H_
#define BASIN_AGGREGATOR_CORE_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/messages.h"

namespace basin::aggregator {

// Why this begin is not allowed, as the end of a sentence; empty when it is.
std::string WhyNotAllowed(const Begin& begin);

// "op SUM where AVERAGE is that": the first field in which two specs differ.
std::string DescribeDifference(const RoundSpec& mine, const RoundSpec& reference);

// "SUM", "samples", "PRESENT": the names for people.
const char* KindName(ContributionKind kind);
const char* WeightByName(WeightBy by);  // "nothing" for none.
const char* DenominatorName(Denominator denominator);

// Why tensors of this dtype cannot be reduced by this spec, as the end of a sentence; empty when
// they can.
std::string WhyNotReducible(const RoundSpec& spec, DType dtype);

// Predivide AUTO: the power of two nearest to the square root of the number of trainers in the
// contributions, the smaller one on a tie; 1 for none. It keeps both the terms and their sum away
// from the ends of the exponent range.
double AutoPredivide(uint64_t trainers);
// Which of the `specs` of the contributors a round computes: `last`, that of the lane's last
// committed round, if any contributor asks for it; else the most common, the first one among
// equals. REQUIRES: !specs.empty().
size_t ChooseSpec(const std::vector<const RoundSpec*>& specs, const std::optional<RoundSpec>& last);

// The spec with the aggregator's choices filled in.
RoundSpec Resolve(RoundSpec spec, uint64_t trainers);
// The spec without the aggregator's choices, so that rounds of different sizes compare equal.
RoundSpec AsBegun(RoundSpec spec);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_SPEC_H_
