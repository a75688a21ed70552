// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Integers: int64 two's-complement arithmetic, with every wrap counted. Plain loops, which the
// compiler turns into vectors for each instruction set. Included once per instruction set.

#if defined(BASIN_KERNELS_CPU_INTEGER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASIN_KERNELS_CPU_INTEGER_INL_H_
#undef BASIN_KERNELS_CPU_INTEGER_INL_H_
#else
#define BASIN_KERNELS_CPU_INTEGER_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>

#include "kernels/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace basin::kernels::cpu {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE int64_t LoadInteger(const unsigned char* data, size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return static_cast<int64_t>(value);
}

// Adds `x` to *acc and returns 1 if the exact sum does not fit, else 0.
HWY_INLINE uint64_t AddWrapping(int64_t x, int64_t* acc) {
  const uint64_t before = static_cast<uint64_t>(*acc);
  const uint64_t sum = before + static_cast<uint64_t>(x);
  *acc = static_cast<int64_t>(sum);
  // It wrapped if both operands have the sign that the sum has not.
  return ((before ^ sum) & (static_cast<uint64_t>(x) ^ sum)) >> 63;
}

// acc op= the contribution's elements; returns the number of wraps.
template <class T, Combine kCombine>
uint64_t FoldIntegerTerm(const unsigned char* HWY_RESTRICT data, size_t count,
                         int64_t* HWY_RESTRICT acc) {
  uint64_t wraps = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t x = LoadInteger<T>(data, i);
    if constexpr (kCombine == Combine::kAdd) {
      wraps += AddWrapping(x, &acc[i]);
    } else if constexpr (kCombine == Combine::kMultiply) {
      wraps += __builtin_mul_overflow(acc[i], x, &acc[i]) ? 1 : 0;
    } else if constexpr (kCombine == Combine::kMin) {
      acc[i] = x < acc[i] ? x : acc[i];
    } else {
      acc[i] = x > acc[i] ? x : acc[i];
    }
  }
  return wraps;
}

template <class T, Combine kCombine>
void FoldInteger(const FoldTerm* terms, size_t term_count, bool fresh, size_t count, void* acc_data,
                 Watch* watch) {
  int64_t* acc = static_cast<int64_t*>(acc_data);
  size_t k = 0;
  if (fresh) {
    for (size_t i = 0; i < count; ++i) acc[i] = LoadInteger<T>(terms[0].data, i);
    k = 1;
  }
  for (; k < term_count; ++k) {
    watch->integer_wraps += FoldIntegerTerm<T, kCombine>(terms[k].data, count, acc);
  }
}

// Keeps the low bits and counts the elements that lost something.
template <class T>
void FinishInteger(const void* acc_data, Finish, double, size_t count,
                   unsigned char* HWY_RESTRICT out, Watch* watch) {
  const int64_t* HWY_RESTRICT acc = static_cast<const int64_t*>(acc_data);
  uint64_t wraps = 0;
  for (size_t i = 0; i < count; ++i) {
    const T value = static_cast<T>(acc[i]);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
    wraps += static_cast<int64_t>(value) != acc[i] ? 1 : 0;
  }
  watch->integer_wraps += wraps;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_INTEGER_INL_H_
