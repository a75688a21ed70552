// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// usage: cast_test --golden=<folder of the golden vectors>

#include "kernels/cast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "kernels/float16.h"

namespace basin::kernels {

std::string golden_folder;  // Set once by main, before any test runs.

namespace {

std::vector<uint16_t> ToWire(const std::vector<uint32_t>& source, DType wire, int exponent) {
  std::vector<uint16_t> bits(source.size());
  CastToWire(source.data(), source.size(), wire, exponent, bits.data());
  return bits;
}

std::vector<uint32_t> FromWire(const std::vector<uint16_t>& source, DType wire, int exponent) {
  std::vector<uint32_t> bits(source.size());
  CastFromWire(source.data(), source.size(), wire, exponent, bits.data());
  return bits;
}

uint16_t ToWire(float value, DType wire, int exponent) {
  return ToWire(std::vector<uint32_t>{F32ToBits(value)}, wire, exponent)[0];
}

float FromWire(uint16_t bits, DType wire, int exponent) {
  return F32FromBits(FromWire(std::vector<uint16_t>{bits}, wire, exponent)[0]);
}

template <typename T>
std::vector<uint8_t> BytesOf(const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  return {bytes, bytes + values.size() * sizeof(T)};
}

// ---- Golden vectors -----------------------------------------------------------------------------

struct GoldenCast {
  std::string name;
  DType to = DType::kUnspecified;
  int exponent = 0;
  std::vector<uint32_t> input;
  std::vector<uint16_t> output;
  std::vector<uint32_t> back;
};

template <typename T>
std::vector<T> ReadHexadecimal(std::istream& fields) {
  std::vector<T> values;
  for (std::string field; fields >> field;) {
    values.push_back(static_cast<T>(std::stoul(field, nullptr, 16)));
  }
  return values;
}

// The records of cast.txt, whose format tests/golden/README.md describes.
std::vector<GoldenCast> ReadGoldenCasts() {
  std::ifstream file(golden_folder + "/cast.txt");
  std::vector<GoldenCast> records;
  GoldenCast record;
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string key;
    std::string word;
    fields >> key;
    if (key == "cast") {
      record = GoldenCast{};
      fields >> record.name;
    } else if (key == "to") {
      fields >> word;
      record.to = word == "f16" ? DType::kF16 : DType::kBF16;
    } else if (key == "wire_exponent") {
      fields >> record.exponent;
    } else if (key == "input") {
      record.input = ReadHexadecimal<uint32_t>(fields);
    } else if (key == "output") {
      record.output = ReadHexadecimal<uint16_t>(fields);
    } else if (key == "back") {
      record.back = ReadHexadecimal<uint32_t>(fields);
    } else if (key == "end") {
      records.push_back(record);
    }
  }
  return records;
}

TEST(CastTest, GoldenVectors) {
  const std::vector<GoldenCast> records = ReadGoldenCasts();
  ASSERT_GE(records.size(), 20u) << "no golden vectors in " << golden_folder;
  for (const GoldenCast& record : records) {
    ASSERT_FALSE(record.input.empty()) << record.name;
    EXPECT_EQ(ToWire(record.input, record.to, record.exponent), record.output) << record.name;
    EXPECT_EQ(FromWire(record.output, record.to, record.exponent), record.back) << record.name;
  }
}

// ---- The conversions of float16.h, which the loops must equal -----------------------------------

constexpr int kExponents[] = {0, 1, -1, 7, -24, 100, kMaxCastExponent, -kMaxCastExponent};

// All values whose low half is among these: around every place at which f16 or bf16 cuts.
std::vector<uint32_t> LowHalves() {
  std::vector<uint32_t> low = {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (int bit = 10; bit < 16; ++bit) {
    for (int nudge : {-1, 0, 1}) low.push_back(((1u << bit) + nudge) & 0xffff);
    for (int nudge : {-1, 0, 1}) low.push_back(((3u << bit) + nudge) & 0xffff);
  }
  return low;
}

void ExpectSameAsFloat16(const std::vector<uint32_t>& inputs) {
  const std::vector<uint16_t> f16 = ToWire(inputs, DType::kF16, 0);
  const std::vector<uint16_t> bf16 = ToWire(inputs, DType::kBF16, 0);
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_EQ(f16[i], NarrowToF16Bits(inputs[i])) << std::hex << inputs[i];
    ASSERT_EQ(bf16[i], NarrowToBF16Bits(inputs[i])) << std::hex << inputs[i];
  }
}

TEST(CastTest, NarrowsAsFloat16Does) {
  const std::vector<uint32_t> low = LowHalves();
  std::vector<uint32_t> inputs;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (uint32_t half : low) inputs.push_back(high << 16 | half);
    if (high % 0x400 == 0x3ff) {
      ExpectSameAsFloat16(inputs);
      inputs.clear();
    }
  }
}

// Takes half a minute: the nightly run does it.
TEST(CastTest, NarrowsEveryF32AsFloat16Does) {
  std::vector<uint32_t> inputs(0x100000);
  for (uint64_t first = 0; first < uint64_t{1} << 32; first += inputs.size()) {
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<uint32_t>(first + i);
    ExpectSameAsFloat16(inputs);
  }
}

TEST(CastTest, WidensEvery16BitValue) {
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (int exponent : kExponents) {
    const std::vector<uint32_t> f16 = FromWire(all, DType::kF16, exponent);
    const std::vector<uint32_t> bf16 = FromWire(all, DType::kBF16, exponent);
    const auto expected = [exponent](float value) {
      const float scaled = std::ldexp(value, -exponent);
      return std::isnan(scaled) ? kCanonicalNanF32 : F32ToBits(scaled);
    };
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(f16[i], expected(WidenF16(all[i]))) << std::hex << i << " 2^" << exponent;
      ASSERT_EQ(bf16[i], expected(WidenBF16(all[i]))) << std::hex << i << " 2^" << exponent;
    }
  }
}

// ---- Lengths, addresses, modes ------------------------------------------------------------------

TEST(CastTest, AnyLengthAndAddress) {
  std::mt19937 random(3);
  for (DType wire : {DType::kF16, DType::kBF16}) {
    for (size_t count : {0u, 1u, 3u, 7u, 8u, 9u, 15u, 16u, 17u, 31u, 33u, 63u, 100u}) {
      std::vector<uint32_t> source(count);
      for (uint32_t& bits : source) bits = random();
      const std::vector<uint16_t> narrow = ToWire(source, wire, 2);
      const std::vector<uint32_t> wide = FromWire(narrow, wire, 2);
      for (size_t offset : {1u, 2u, 3u, 5u}) {
        std::vector<uint8_t> from(4 * count + offset + 1, 0xcc);
        std::vector<uint8_t> to(4 * count + offset + 1, 0xcc);
        if (count > 0) std::memcpy(from.data() + offset, source.data(), 4 * count);
        CastToWire(from.data() + offset, count, wire, 2, to.data() + offset);
        EXPECT_EQ(std::vector<uint8_t>(to.begin() + offset, to.begin() + offset + 2 * count),
                  BytesOf(narrow));
        EXPECT_EQ(to[offset - 1], 0xcc);
        EXPECT_EQ(to[offset + 2 * count], 0xcc) << "wrote beyond the end";
        CastFromWire(to.data() + offset, count, wire, 2, from.data() + offset);
        EXPECT_EQ(std::vector<uint8_t>(from.begin() + offset, from.begin() + offset + 4 * count),
                  BytesOf(wide));
        EXPECT_EQ(from[offset + 4 * count], 0xcc) << "wrote beyond the end";
      }
    }
  }
}

// A caller's thread may flush subnormals or round another way (a library built with -ffast-math
// does the first when it is loaded): the bits stay the same, and so does the caller's mode.
TEST(CastTest, CallersFloatingPointModeDoesNotMatter) {
  std::vector<uint32_t> source;
  for (uint32_t bits = 0; bits < 0x80000000u; bits += 0x1357) source.push_back(bits);
  for (DType wire : {DType::kF16, DType::kBF16}) {
    for (int exponent : {0, 9, -9}) {
      const std::vector<uint16_t> narrow = ToWire(source, wire, exponent);
      const std::vector<uint32_t> wide = FromWire(narrow, wire, exponent);
      std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
      const unsigned mode = _mm_getcsr() | 0x8040;  // Flush to zero, denormals are zero.
      _mm_setcsr(mode);
#endif
      const std::vector<uint16_t> narrow_again = ToWire(source, wire, exponent);
      const std::vector<uint32_t> wide_again = FromWire(narrow, wire, exponent);
#if defined(__x86_64__)
      EXPECT_EQ(_mm_getcsr() & 0xffc0, mode & 0xffc0);
      _mm_setcsr(mode & ~0x8040u);
#endif
      EXPECT_EQ(std::fegetround(), FE_UPWARD);
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(narrow, narrow_again);
      EXPECT_EQ(wide, wide_again);
    }
  }
}

// ---- What the scale is for ----------------------------------------------------------------------

// Against frexp, for every exponent that f32 has, and around the powers of two.
TEST(CastTest, Criterion_5_5_TheFittedExponentUsesTheRangeOfF16) {
  for (int binade = -149; binade < 128; ++binade) {
    const float power = std::ldexp(1.0F, binade);
    for (const float value : {power, std::nextafter(2 * power, 0.0F), -1.5F * power}) {
      int exponent = 0;
      std::frexp(value, &exponent);
      const int fitted = FittedExponent(LargestMagnitude(&value, 1));
      EXPECT_EQ(fitted, std::min(kMaxCastExponent, 15 - exponent)) << value;
      EXPECT_TRUE(CanCast(DType::kF16, fitted));
      const float back = FromWire(ToWire(value, DType::kF16, fitted), DType::kF16, fitted);
      // Below, f16 has fewer digits for it; above, f32 may have no room for the rounded value.
      if (binade < -112 || binade == 127) continue;
      EXPECT_NEAR(back / value, 1.0F, 0x1p-11F) << value;
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const float value : {0.0F, -0.0F, kInfinity, -kInfinity, kNaN, -kNaN}) {
    EXPECT_EQ(FittedExponent(LargestMagnitude(&value, 1)), 0) << value;
  }
}

// At any place, address and length; NaN is above infinity, and that above all numbers.
TEST(CastTest, TheLargestMagnitudeIsFoundAnywhere) {
  EXPECT_EQ(LargestMagnitude(nullptr, 0), 0u);
  for (const size_t count : {1, 2, 7, 8, 9, 33}) {
    for (size_t at = 0; at < count; ++at) {
      for (const uint32_t largest :
           {0x00000001u, 0x80000002u, 0xff7fffffu, 0x7f800000u, 0xff800001u}) {
        std::vector<unsigned char> bytes(4 * count + 1);
        for (size_t i = 0; i < count; ++i) {
          const uint32_t bits = i == at ? largest : ((largest & 0x7fffffff) - 1) | (i << 31);
          std::memcpy(&bytes[4 * i + 1], &bits, 4);
        }
        EXPECT_EQ(LargestMagnitude(&bytes[1], count), largest & 0x7fffffff);
      }
    }
  }
}

TEST(CastTest, Criterion_5_5_ScaleKeepsTheCastFromOverflowing) {
  constexpr uint16_t kInfinity = 0x7c00;
  EXPECT_EQ(ToWire(65519.996f, DType::kF16, 0), 0x7bff);
  EXPECT_EQ(ToWire(65520.0f, DType::kF16, 0), kInfinity);
  EXPECT_EQ(ToWire(-65520.0f, DType::kF16, 0), kInfinity | 0x8000);
  EXPECT_EQ(FromWire(ToWire(65536.0f, DType::kF16, -4), DType::kF16, -4), 65536.0f);
  EXPECT_EQ(FromWire(ToWire(1e6f, DType::kF16, -8), DType::kF16, -8), 999936.0f);
}

TEST(CastTest, Criterion_5_5_ScaleKeepsTheCastFromUnderflowing) {
  const float tiny = 6e-8f / 8;  // What dividing before the cast by N = 8 makes of 6e-8.
  EXPECT_EQ(ToWire(tiny, DType::kF16, 0), 0);
  EXPECT_NEAR(FromWire(ToWire(tiny, DType::kF16, 20), DType::kF16, 20), tiny, tiny / 1024);
  EXPECT_EQ(ToWire(6e-8f, DType::kF16, 0), 1);
}

// Scales are applied in f32: as an f16 value 2^-24 would be a subnormal, and 2^-30 would be 0.
TEST(CastTest, Criterion_5_5_ScaleIsNeverRoundedToTheWireType) {
  for (int exponent : {-40, -30, -24, 24, 30, 40}) {
    const float value = std::ldexp(1.25f, -exponent);
    EXPECT_EQ(ToWire(value, DType::kF16, exponent), 0x3d00) << exponent;
    EXPECT_EQ(FromWire(0x3d00, DType::kF16, exponent), value) << exponent;
  }
}

TEST(CastTest, PowersOfTwoAreUndoneExactly) {
  std::mt19937 random(5);
  for (DType wire : {DType::kF16, DType::kBF16}) {
    for (int exponent : kExponents) {
      for (int i = 0; i < 1000; ++i) {
        // A value that the wire type holds, of a size that neither step moves out of range.
        const float value = FromWire(static_cast<uint16_t>(random()), wire, 0);
        const float sent = std::ldexp(value, -exponent);
        if (!std::isnormal(value) || !std::isnormal(sent)) continue;
        ASSERT_EQ(FromWire(ToWire(sent, wire, exponent), wire, exponent), sent);
      }
    }
  }
}

TEST(CastTest, OnlyF32HasAWireFormAndOnlyIn16Bits) {
  EXPECT_TRUE(CanCast(DType::kF16, 0));
  EXPECT_TRUE(CanCast(DType::kBF16, kMaxCastExponent));
  EXPECT_TRUE(CanCast(DType::kBF16, -kMaxCastExponent));
  EXPECT_FALSE(CanCast(DType::kF16, kMaxCastExponent + 1));
  EXPECT_FALSE(CanCast(DType::kF16, -kMaxCastExponent - 1));
  for (DType other : {DType::kF32, DType::kF64, DType::kI32, DType::kU8, DType::kF8E5M2}) {
    EXPECT_FALSE(CanCast(other, 0)) << DTypeName(other);
  }
}

}  // namespace
}  // namespace basin::kernels

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--golden=", 0) == 0) basin::kernels::golden_folder = argument.substr(9);
  }
  return RUN_ALL_TESTS();
}
