// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The cases of the golden vectors in tests/golden, whose README describes the format. Needs only
// the standard library, like contract.h.
//
// Thread contract: plain values.

#ifndef BASIN_TESTS_KERNELS_GOLDEN_CASE_H_
#define BASIN_TESTS_KERNELS_GOLDEN_CASE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/reducer.h"

namespace basin::kernels::contract {

using ElementBytes = std::vector<unsigned char>;

struct GoldenWorker {
  std::string id;
  Contribution contribution;
  std::vector<uint64_t> values;  // Empty if it skips.
};

// A case as it stands in the file. Single-valued lines stay text in `lines`, by their first word.
struct GoldenCase {
  std::string name;
  std::map<std::string, std::string> lines;
  std::vector<GoldenWorker> workers;

  // A text that no line has if it is absent.
  const std::string& Line(const std::string& word) const;
  // The bits of the line `values`.
  std::vector<uint64_t> Values() const;
};

// Those of a file; none if it cannot be read.
std::vector<GoldenCase> ReadGoldenCases(const std::string& path);

DType DTypeFromName(const std::string& name);
ReduceOp OpFromName(const std::string& name);
double DoubleFromHex(const std::string& text);

// `count` elements that repeat `values`, from the one with this index on.
ElementBytes Repeat(const std::vector<uint64_t>& values, DType dtype, size_t count,
                    size_t first = 0);

}  // namespace basin::kernels::contract

#endif  // BASIN_TESTS_KERNELS_GOLDEN_CASE_H_
