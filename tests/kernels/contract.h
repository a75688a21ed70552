// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The contract that every reduction backend must keep, as plain functions: they need the standard
// library and the backend alone, so that the same checks run in the unit tests and in a program on
// a machine with a GPU. A backend joins by calling CheckAgainstReference and CheckGolden.
//
// Thread contract: a Report belongs to one thread.

#ifndef BASIN_TESTS_KERNELS_CONTRACT_H_
#define BASIN_TESTS_KERNELS_CONTRACT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/reducer.h"

namespace basin::kernels::contract {

// The outcome of a check. It passed if there were comparisons and none failed.
class Report {
 public:
  // Counts one comparison; `message` is the difference, empty if there is none. Only the first few
  // messages are kept.
  void Add(std::string message);

  bool ok() const { return comparisons_ > 0 && failures_ == 0; }
  uint64_t comparisons() const { return comparisons_; }
  uint64_t failures() const { return failures_; }
  std::string Summary() const;  // Several lines if something failed.

 private:
  uint64_t comparisons_ = 0;
  uint64_t failures_ = 0;
  std::vector<std::string> messages_;
};

// How input values are drawn.
enum class Values : uint8_t {
  kOrdinary,    // Numbers of moderate size and either sign.
  kAnyBits,     // Every bit pattern: NaN of any payload, infinities, subnormals.
  kSpecials,    // Zeros of both signs, infinities, NaN, the ends of each range, halfway values.
  kSubnormals,  // The least magnitudes of the type and sums that cross into the normal range.
  kExtremes,    // Near the largest magnitude, so that sums overflow.
  kRareFaults,  // Ordinary, with a few NaN and infinities far apart.
};

// One reduction to check: a spec, a length, and how the values and the buffers are made. The same
// case always makes the same bytes.
struct Case {
  ReductionSpec spec;
  size_t count = 0;
  uint64_t first = 0;  // The span's place in the tensor.
  Values values = Values::kOrdinary;
  uint64_t seed = 0;
};

// For messages: "f32 WEIGHTED_AVERAGE 7 contributions 1023 elements ...".
std::string Describe(const Case& c);

// The cases of one tensor dtype: ops x lengths x contributor counts x scales x weights x wire and
// result dtypes x values.
std::vector<Case> MakeCases(DType tensor_dtype);

// Runs a case on each of `reducers` and on the reference, and compares result, norm leaves and
// facts bit by bit: over whole inputs, over misaligned ones that are cut into slices, and leaf by
// leaf; to aligned and misaligned results, in the cache and past it. Bytes around each output must
// stay untouched.
void CheckCase(const std::vector<const Reducer*>& reducers, const Case& c, Report* report);

// The same with given bytes, one vector per contribution; empty for skipped ones.
void CheckContributions(const std::vector<const Reducer*>& reducers, const Case& c,
                        const std::vector<std::vector<unsigned char>>& contributions,
                        Report* report);

// All cases of a dtype.
Report CheckAgainstReference(const std::vector<const Reducer*>& reducers, DType tensor_dtype);
Report CheckAgainstReference(const Reducer& reducer, DType tensor_dtype);

}  // namespace basin::kernels::contract

#endif  // BASIN_TESTS_KERNELS_CONTRACT_H_
