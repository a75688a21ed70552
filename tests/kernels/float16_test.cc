// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The 16-bit formats against a definition that shares nothing with the implementation: values
// computed with ldexp, and rounding by looking for the nearest of two neighbours in f64.

#include "kernels/float16.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace basin::kernels {
namespace {

struct Format {
  int mantissa_bits;
  int bias;
  uint16_t canonical_nan;
  uint16_t infinity() const {
    return static_cast<uint16_t>(0x7fff >> mantissa_bits << mantissa_bits);
  }
};
constexpr Format kF16 = {10, 15, kCanonicalNanF16};
constexpr Format kBF16 = {7, 127, kCanonicalNanBF16};

// The value of a finite pattern, by the textbook. Infinity's pattern gives the power of two that
// would come after the largest finite value, which is what rounding compares with.
double ValueOf(const Format& format, uint16_t bits) {
  const int exponent = (bits & 0x7fff) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int hidden = exponent == 0 ? 0 : 1 << format.mantissa_bits;
  const int shift = (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits;
  const double magnitude = std::ldexp(hidden + mantissa, shift);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Nearest, ties to even, by comparison with both neighbours.
uint16_t Nearest(const Format& format, double value) {
  if (std::isnan(value)) return format.canonical_nan;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | format.infinity();
  uint16_t low = 0, high = format.infinity();
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (ValueOf(format, middle) <= magnitude ? low : high) = middle;
  }
  if (magnitude >= ValueOf(format, high)) return sign | high;
  const double below = magnitude - ValueOf(format, low);
  const double above = ValueOf(format, high) - magnitude;
  const bool up = below > above || (below == above && (low & 1) != 0);
  return sign | (up ? high : low);
}

bool IsNanBits(const Format& format, uint16_t bits) { return (bits & 0x7fff) > format.infinity(); }

// Every rounding decision there is: each 16-bit value, each point halfway to the next one, and the
// f32 values around them.
std::vector<uint32_t> InterestingF32(const Format& format) {
  std::vector<uint32_t> patterns;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    if (IsNanBits(format, pattern)) continue;
    const double here = ValueOf(format, pattern);
    const double next = (pattern & 0x7fff) >= format.infinity()
                            ? here
                            : ValueOf(format, static_cast<uint16_t>(pattern + 1));
    for (const double centre : {here, here + (next - here) / 2}) {
      const uint32_t at = F32ToBits(static_cast<float>(centre));
      for (uint32_t offset = 0; offset < 5; ++offset) patterns.push_back(at + offset - 2);
    }
  }
  // Also a walk through all of f32, NaN included.
  for (uint64_t bits = 0; bits <= 0xffffffff; bits += 4099) {
    patterns.push_back(static_cast<uint32_t>(bits));
  }
  for (const uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    patterns.push_back(nan);
  }
  return patterns;
}

TEST(Float16Test, WideningF16IsExactForEveryPattern) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const float wide = WidenF16(pattern);
    if (IsNanBits(kF16, pattern)) {
      EXPECT_TRUE(std::isnan(wide)) << std::hex << bits;
    } else if ((pattern & 0x7fff) == kF16.infinity()) {
      EXPECT_TRUE(std::isinf(wide)) << std::hex << bits;
    } else {
      ASSERT_EQ(static_cast<double>(wide), ValueOf(kF16, pattern)) << std::hex << bits;
    }
    EXPECT_EQ(std::signbit(wide), (pattern & 0x8000) != 0) << std::hex << bits;
  }
}

TEST(Float16Test, WideningBF16IsExactForEveryPattern) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const float wide = WidenBF16(pattern);
    if (IsNanBits(kBF16, pattern)) {
      EXPECT_TRUE(std::isnan(wide)) << std::hex << bits;
    } else if ((pattern & 0x7fff) == kBF16.infinity()) {
      EXPECT_TRUE(std::isinf(wide)) << std::hex << bits;
    } else {
      ASSERT_EQ(static_cast<double>(wide), ValueOf(kBF16, pattern)) << std::hex << bits;
    }
    EXPECT_EQ(std::signbit(wide), (pattern & 0x8000) != 0) << std::hex << bits;
  }
}

TEST(Float16Test, NarrowingToF16RoundsToNearestEven) {
  for (const uint32_t bits : InterestingF32(kF16)) {
    ASSERT_EQ(NarrowToF16Bits(bits), Nearest(kF16, F32FromBits(bits))) << std::hex << bits;
  }
}

TEST(Float16Test, NarrowingToBF16RoundsToNearestEven) {
  for (const uint32_t bits : InterestingF32(kBF16)) {
    ASSERT_EQ(NarrowToBF16Bits(bits), Nearest(kBF16, F32FromBits(bits))) << std::hex << bits;
  }
}

TEST(Float16Test, WidenedValuesNarrowToThemselves) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const uint16_t f16 = IsNanBits(kF16, pattern) ? kCanonicalNanF16 : pattern;
    const uint16_t bf16 = IsNanBits(kBF16, pattern) ? kCanonicalNanBF16 : pattern;
    EXPECT_EQ(NarrowToF16Bits(WidenF16Bits(pattern)), f16);
    EXPECT_EQ(NarrowToBF16Bits(WidenBF16Bits(pattern)), bf16);
  }
}

static_assert(NarrowToF16Bits(0x477fefff) == 0x7bff, "below 65520: the largest finite f16");
static_assert(NarrowToF16Bits(0x477ff000) == 0x7c00, "65520: infinity");
static_assert(NarrowToBF16Bits(0x3f808000) == 0x3f80 && NarrowToBF16Bits(0x3f818000) == 0x3f82,
              "ties go to even");

}  // namespace
}  // namespace basin::kernels
