// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of one element, where the contract suite would find an error but not name it.

#include "kernels/cuda/element.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace basin::kernels::cuda {
namespace {

TEST(ElementTest, WrapsAreSeen) {
  const int64_t values[] = {INT64_MIN,  INT64_MIN + 1, -4294967297,   -3,       -1, 0, 1, 2, 3,
                            4294967296, 1LL << 62,     INT64_MAX - 1, INT64_MAX};
  for (int64_t a : values) {
    for (int64_t b : values) {
      int64_t exact = 0;
      EXPECT_EQ(SumWraps(a, b), __builtin_add_overflow(a, b, &exact)) << a << " + " << b;
      EXPECT_EQ(WrappingSum(a, b), exact);
      EXPECT_EQ(ProductWraps(a, b), __builtin_mul_overflow(a, b, &exact)) << a << " * " << b;
      EXPECT_EQ(WrappingProduct(a, b), exact);
    }
  }
}

template <typename T>
uint64_t Bits(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <typename T>
void ExpectIdentities(std::initializer_list<T> values) {
  for (Combine combine : {Combine::kAdd, Combine::kMultiply, Combine::kMin, Combine::kMax}) {
    for (T value : values) {
      const T next = Next(combine, Identity<T>(combine), value);
      EXPECT_EQ(Bits(next), Bits(value))
          << "combine " << static_cast<int>(combine) << " of " << value << " is " << next;
    }
  }
}

TEST(ElementTest, IdentitiesChangeNothing) {
  const float inf = __builtin_huge_valf();
  ExpectIdentities<float>({0.0f, -0.0f, 1.5f, -3e38f, 1e-45f, -1e-45f, inf, -inf});
  ExpectIdentities<double>({0.0, -0.0, 1.5, -1e308, 5e-324, -5e-324, inf, -inf});
  ExpectIdentities<int64_t>({0, -1, 7, INT64_MIN, INT64_MAX});
}

}  // namespace
}  // namespace basin::kernels::cuda
