// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The two 16-bit float formats, on bit patterns with integer operations alone, so that no hardware
// mode, compiler flag or library can change a bit: IEEE 754 binary16 (f16) and bfloat16 (bf16, the
// upper half of an f32). Widening is exact. Narrowing rounds to nearest, ties to even, keeps
// subnormals, overflows to infinity, and makes every NaN the positive quiet NaN.
//
// The functions are constexpr, so that device code can use them too.
//
// Thread contract: pure functions.

#ifndef BASIN_KERNELS_FLOAT16_H_
#define BASIN_KERNELS_FLOAT16_H_

#include <cstdint>
#include <cstring>

namespace basin::kernels {

// The NaN that every NaN becomes, per type.
constexpr uint64_t kCanonicalNanF64 = 0x7ff8000000000000;
constexpr uint32_t kCanonicalNanF32 = 0x7fc00000;
constexpr uint16_t kCanonicalNanF16 = 0x7e00;
constexpr uint16_t kCanonicalNanBF16 = 0x7fc0;

constexpr uint32_t WidenBF16Bits(uint16_t bf16) { return uint32_t{bf16} << 16; }

constexpr uint32_t WidenF16Bits(uint16_t f16) {
  const uint32_t sign = uint32_t{f16 & 0x8000u} << 16;
  uint32_t exponent = (f16 >> 10) & 0x1f;
  uint32_t mantissa = f16 & 0x3ff;
  if (exponent == 0x1f) return sign | 0x7f800000 | (mantissa << 13);  // Infinity or NaN.
  if (exponent == 0) {
    if (mantissa == 0) return sign;
    // A subnormal is mantissa * 2^-24: shift the leading one into the hidden place.
    exponent = 1;
    while ((mantissa & 0x400) == 0) {
      mantissa <<= 1;
      --exponent;  // May pass below zero; the unsigned sum with the bias below is still right.
    }
    mantissa &= 0x3ff;
  }
  return sign | ((exponent + (127 - 15)) << 23) | (mantissa << 13);
}

constexpr uint16_t NarrowToBF16Bits(uint32_t f32) {
  if ((f32 & 0x7fffffff) > 0x7f800000) return kCanonicalNanBF16;
  // Half of the last kept place, less one, plus the last kept bit: carries exactly when the cut
  // part is above half, or is half and the kept part is odd. A carry into the exponent is right.
  const uint32_t last_kept = (f32 >> 16) & 1;
  return static_cast<uint16_t>((f32 + 0x7fff + last_kept) >> 16);
}

constexpr uint16_t NarrowToF16Bits(uint32_t f32) {
  const uint32_t sign = (f32 >> 16) & 0x8000;
  const uint32_t magnitude = f32 & 0x7fffffff;
  if (magnitude > 0x7f800000) return kCanonicalNanF16;
  // 65520 is halfway between the largest finite f16 and 65536, and goes to infinity (to even).
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  uint32_t kept = 0;
  uint32_t cut = 0;               // The bits that do not fit ...
  uint32_t half = 0;              // ... and what half of the last kept place is among them.
  if (magnitude >= 0x38800000) {  // At least 2^-14: normal in f16.
    const uint32_t rebiased = magnitude - ((127 - 15) << 23);
    kept = rebiased >> 13;
    cut = rebiased & 0x1fff;
    half = 0x1000;
  } else {
    // Subnormal: count units of 2^-24. At or below 2^-25 everything goes to zero (tie to even).
    if (magnitude <= 0x33000000) return static_cast<uint16_t>(sign);
    const uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    const uint32_t shift = 126 - (magnitude >> 23);  // In [14, 24].
    kept = significand >> shift;
    cut = significand & ((1u << shift) - 1);
    half = 1u << (shift - 1);
  }
  if (cut > half || (cut == half && (kept & 1) != 0)) ++kept;
  return static_cast<uint16_t>(sign | kept);
}

// The same on values.

inline float F32FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t F32ToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float WidenF16(uint16_t f16) { return F32FromBits(WidenF16Bits(f16)); }
inline float WidenBF16(uint16_t bf16) { return F32FromBits(WidenBF16Bits(bf16)); }
inline uint16_t NarrowToF16(float value) { return NarrowToF16Bits(F32ToBits(value)); }
inline uint16_t NarrowToBF16(float value) { return NarrowToBF16Bits(F32ToBits(value)); }

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_FLOAT16_H_
