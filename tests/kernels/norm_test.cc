// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The norm of a contribution against the definition, element by element.

#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/reference.h"

namespace basin::kernels {
namespace {

// Values of every magnitude, so that the order of the sum shows in its last bits.
std::string Values(DType dtype, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(count * ElementSize(dtype), '\0');
  for (size_t i = 0; i < count; ++i) {
    const double value = std::ldexp(std::uniform_real_distribution<>(-1, 1)(random),
                                    static_cast<int>(random() % 20) - 10);
    char* at = bytes.data() + i * ElementSize(dtype);
    if (dtype == DType::kF64) {
      std::memcpy(at, &value, 8);
    } else if (dtype == DType::kF32) {
      const auto narrow = static_cast<float>(value);
      std::memcpy(at, &narrow, 4);
    } else {
      // Any bits whose exponent is not that of infinity.
      const auto bits = static_cast<uint16_t>(random() & 0xbbff);
      std::memcpy(at, &bits, 2);
    }
  }
  return bytes;
}

double NormOf(DType dtype, const std::string& bytes, size_t part = SIZE_MAX) {
  std::vector<double> leaves;
  const size_t count = bytes.size() / ElementSize(dtype);
  for (size_t at = 0; at < count;) {
    const size_t size = std::min(part, count - at);
    AppendNormLeaves(dtype, bytes.data() + at * ElementSize(dtype), size, &leaves);
    at += size;
  }
  return SquaredNorm(leaves.data(), leaves.size());
}

TEST(Norm, IsThatOfAResultWithTheSameValues) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    for (const size_t count : {0, 1, 15, 16, 17, 2047, 2049, 32767, 32768, 32769, 65536, 200001}) {
      const std::string bytes = Values(dtype, count, count + 1);
      EXPECT_EQ(NormOf(dtype, bytes), ReferenceSquaredNorm(dtype, bytes.data(), count))
          << DTypeName(dtype) << " " << count;
      EXPECT_EQ(NormOf(dtype, bytes, kNormLeafElements), NormOf(dtype, bytes));
    }
  }
}

TEST(Norm, StartsAnywhereInMemory) {
  const std::string bytes = "x" + Values(DType::kF32, 1000, 5);
  std::vector<double> leaves;
  AppendNormLeaves(DType::kF32, bytes.data() + 1, 1000, &leaves);
  EXPECT_EQ(leaves[0], ReferenceSquaredNorm(DType::kF32, bytes.data() + 1, 1000));
}

TEST(Norm, IsNotFiniteWhereANumberIsNot) {
  std::vector<float> values(100, 1);
  values[37] = std::numeric_limits<float>::infinity();
  std::vector<double> leaves;
  AppendNormLeaves(DType::kF32, values.data(), values.size(), &leaves);
  EXPECT_TRUE(std::isinf(leaves[0]));
  values[38] = std::nanf("");
  AppendNormLeaves(DType::kF32, values.data(), values.size(), &leaves);
  EXPECT_TRUE(std::isnan(leaves[1]));
}

TEST(Norm, IntegersHaveNone) {
  const std::vector<int64_t> values(100, 7);
  std::vector<double> leaves;
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kU8}) {
    AppendNormLeaves(dtype, values.data(), values.size(), &leaves);
  }
  EXPECT_TRUE(leaves.empty());
}

}  // namespace
}  // namespace basin::kernels
