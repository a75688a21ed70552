// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The conversions of float16.h once more, without branches, so that loops over them become vector
// code on a CPU and warps stay together on a GPU. float16.h is made to be read; the tests compare
// the two on every value.
//
// REQUIRES: rounding to nearest without flushing of subnormals, which these do rely on.
//
// Thread contract: pure functions.

#ifndef BASIN_KERNELS_FLOAT16_BRANCHLESS_H_
#define BASIN_KERNELS_FLOAT16_BRANCHLESS_H_

#include <cstdint>

#include "kernels/float16.h"

namespace basin::kernels {

// Magnitudes are compared as signed integers, which they fit: older vector units have no other
// comparison.
constexpr uint32_t kMagnitudeMaskF32 = 0x7fffffff;
constexpr int32_t kInfinityF32 = 0x7f800000;

constexpr uint32_t BitsOfF32(float value) { return __builtin_bit_cast(uint32_t, value); }
constexpr float F32OfBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }

struct BranchlessF16 {
  static constexpr uint16_t Narrow(float value) {
    const uint32_t bits = BitsOfF32(value);
    const int32_t magnitude = static_cast<int32_t>(bits & kMagnitudeMaskF32);
    // Normal results: move the exponent's bias, then round at bit 13.
    const int32_t normal = (magnitude - (112 << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Subnormal results: the last place of 0.5f is 2^-24, the unit of subnormals, so the sum is
    // rounded to it, and the units are the low bits of the sum.
    const float sum = F32OfBits(static_cast<uint32_t>(magnitude)) + 0.5f;
    const int32_t subnormal = static_cast<int32_t>(BitsOfF32(sum) - BitsOfF32(0.5f));
    int32_t result = magnitude < 0x38800000 ? subnormal : normal;  // 2^-14
    result = magnitude >= 0x477ff000 ? 0x7c00 : result;            // 65520
    result |= static_cast<int32_t>((bits >> 16) & 0x8000);
    result = magnitude > kInfinityF32 ? kCanonicalNanF16 : result;
    return static_cast<uint16_t>(result);
  }

  static constexpr float Widen(uint16_t bits) {
    const int32_t magnitude = (bits & 0x7fff) << 13;
    // With the bias of f16 left in place the exponent is 112 too small, for subnormals too.
    constexpr float kTwoTo112 = F32OfBits((112u + 127) << 23);
    const float finite = F32OfBits(static_cast<uint32_t>(magnitude)) * kTwoTo112;
    const uint32_t special = static_cast<uint32_t>(magnitude | kInfinityF32);
    const uint32_t result = magnitude >= (0x7c00 << 13) ? special : BitsOfF32(finite);
    return F32OfBits(result | (uint32_t{bits & 0x8000u} << 16));
  }
};

struct BranchlessBF16 {
  static constexpr uint16_t Narrow(float value) {
    const uint32_t bits = BitsOfF32(value);
    const int32_t magnitude = static_cast<int32_t>(bits & kMagnitudeMaskF32);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return static_cast<uint16_t>(magnitude > kInfinityF32 ? kCanonicalNanBF16 : rounded);
  }

  static constexpr float Widen(uint16_t bits) { return F32OfBits(uint32_t{bits} << 16); }
};

// Every NaN becomes the canonical one.
constexpr float CanonicalF32(float value) {
  const uint32_t bits = BitsOfF32(value);
  const int32_t magnitude = static_cast<int32_t>(bits & kMagnitudeMaskF32);
  return F32OfBits(magnitude > kInfinityF32 ? kCanonicalNanF32 : bits);
}

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_FLOAT16_BRANCHLESS_H_
