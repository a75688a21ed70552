// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The scale with which an f32 tensor fits into f16. The largest magnitude of the tensor gets the
// exponent 14, one below the largest that f16 has, so that nothing overflows and small values have
// as much room as possible. The CPU and devices compute it with the same function.
//
// Magnitudes are bits of f32 without the sign. As integers they are in the order of their values;
// an infinity is above all numbers, and every NaN is above the infinity. The largest one does not
// depend on the order of a search.
//
// Thread contract: pure functions.

#ifndef BASIN_KERNELS_FIT_H_
#define BASIN_KERNELS_FIT_H_

#include <cstdint>

namespace basin::kernels {

constexpr int kMaxCastExponent = 126;  // 2^e and 2^-e are then both normal in f32.

// In place of an exponent: it is to be the fitted one.
constexpr int32_t kFitExponent = INT32_MIN;

// The exponent for a tensor with this largest magnitude; 0 for one without values other than 0, and
// for one with a value that is not finite.
constexpr int FittedExponent(uint32_t largest_magnitude) {
  constexpr uint32_t kInfinity = 0x7f800000;
  if (largest_magnitude == 0 || largest_magnitude >= kInfinity) return 0;
  // A subnormal has the exponent of the least normal here, which is more than far enough.
  const int exponent = static_cast<int>(largest_magnitude >> 23) - 127;
  return 14 - exponent < kMaxCastExponent ? 14 - exponent : kMaxCastExponent;
}

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_FIT_H_
