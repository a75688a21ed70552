// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Loops without branches, which compilers turn into vector code for every machine. The conversions
// are those of float16.h; they are written once more here because that form, made to be read, does
// not vectorise. The test compares the two on every f32.
//
// Compiled with -ffp-contract=off: a fused multiply-add would round once where two are defined.

#include "kernels/cast.h"

#include <cassert>
#include <cstdint>
#include <cstring>

#include "kernels/float16.h"
#include "kernels/float_environment.h"

namespace basin::kernels {
namespace {

// Magnitudes are compared as signed integers, which they fit: older vector units have no other
// comparison.
constexpr uint32_t kMagnitudeF32 = 0x7fffffff;
constexpr int32_t kInfinityF32 = 0x7f800000;

// 2^exponent; exponent in [-126, 127].
float PowerOfTwo(int exponent) { return F32FromBits(static_cast<uint32_t>(exponent + 127) << 23); }

struct F16 {
  static uint16_t Narrow(float value) {
    const uint32_t bits = F32ToBits(value);
    const int32_t magnitude = bits & kMagnitudeF32;
    // Normal results: move the exponent's bias, then round at bit 13.
    const int32_t normal = (magnitude - (112 << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Subnormal results: the last place of 0.5f is 2^-24, the unit of subnormals, so the sum is
    // rounded to it, and the units are the low bits of the sum.
    const int32_t subnormal = F32ToBits(F32FromBits(magnitude) + 0.5f) - F32ToBits(0.5f);
    int32_t result = magnitude < 0x38800000 ? subnormal : normal;  // 2^-14
    result = magnitude >= 0x477ff000 ? 0x7c00 : result;            // 65520
    result |= (bits >> 16) & 0x8000;
    result = magnitude > kInfinityF32 ? kCanonicalNanF16 : result;
    return static_cast<uint16_t>(result);
  }

  static float Widen(uint16_t bits) {
    const int32_t magnitude = (bits & 0x7fff) << 13;
    // With the bias of f16 left in place the exponent is 112 too small, for subnormals too.
    const int32_t finite = F32ToBits(F32FromBits(magnitude) * PowerOfTwo(112));
    const int32_t result = magnitude >= (0x7c00 << 13) ? magnitude | kInfinityF32 : finite;
    return F32FromBits(result | (uint32_t{bits & 0x8000u} << 16));
  }
};

struct BF16 {
  static uint16_t Narrow(float value) {
    const uint32_t bits = F32ToBits(value);
    const int32_t magnitude = bits & kMagnitudeF32;
    const int32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return static_cast<uint16_t>(magnitude > kInfinityF32 ? kCanonicalNanBF16 : rounded);
  }

  static float Widen(uint16_t bits) { return WidenBF16(bits); }
};

template <typename Wire>
inline __attribute__((always_inline)) void ToWire(const unsigned char* source, size_t count,
                                                  float scale, unsigned char* wire) {
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, source + 4 * i, 4);
    const uint16_t narrow = Wire::Narrow(value * scale);
    std::memcpy(wire + 2 * i, &narrow, 2);
  }
}

template <typename Wire>
inline __attribute__((always_inline)) void FromWire(const unsigned char* wire, size_t count,
                                                    float unscale, unsigned char* destination) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t narrow;
    std::memcpy(&narrow, wire + 2 * i, 2);
    const uint32_t bits = F32ToBits(Wire::Widen(narrow) * unscale);
    const int32_t magnitude = bits & kMagnitudeF32;
    const uint32_t result = magnitude > kInfinityF32 ? kCanonicalNanF32 : bits;
    std::memcpy(destination + 4 * i, &result, 4);
  }
}

using ToWireLoop = void(const unsigned char* source, size_t count, float scale,
                        unsigned char* wire);
using FromWireLoop = void(const unsigned char* wire, size_t count, float unscale,
                          unsigned char* destination);

struct Loops {
  ToWireLoop* to_f16;
  ToWireLoop* to_bf16;
  FromWireLoop* from_f16;
  FromWireLoop* from_bf16;
};

// The loops for any processor of the architecture that the file is compiled for.
constexpr Loops kBaseline = {
    [](auto... arguments) { ToWire<F16>(arguments...); },
    [](auto... arguments) { ToWire<BF16>(arguments...); },
    [](auto... arguments) { FromWire<F16>(arguments...); },
    [](auto... arguments) { FromWire<BF16>(arguments...); },
};

#if defined(__x86_64__) && !defined(BASIN_CAST_BASELINE)
// The same loops again, for AVX2: twice as fast for f16, where arithmetic is the bound.
#define BASIN_AVX2 __attribute__((target("avx2")))
BASIN_AVX2 void ToF16Avx2(const unsigned char* source, size_t count, float scale,
                          unsigned char* wire) {
  ToWire<F16>(source, count, scale, wire);
}
BASIN_AVX2 void ToBF16Avx2(const unsigned char* source, size_t count, float scale,
                           unsigned char* wire) {
  ToWire<BF16>(source, count, scale, wire);
}
BASIN_AVX2 void FromF16Avx2(const unsigned char* wire, size_t count, float unscale,
                            unsigned char* destination) {
  FromWire<F16>(wire, count, unscale, destination);
}
BASIN_AVX2 void FromBF16Avx2(const unsigned char* wire, size_t count, float unscale,
                             unsigned char* destination) {
  FromWire<BF16>(wire, count, unscale, destination);
}
#undef BASIN_AVX2

Loops LoopsOfThisProcessor() {
  if (__builtin_cpu_supports("avx2")) {
    return {ToF16Avx2, ToBF16Avx2, FromF16Avx2, FromBF16Avx2};
  }
  return kBaseline;
}
#else
Loops LoopsOfThisProcessor() { return kBaseline; }
#endif

}  // namespace

void CastToWire(const void* source, size_t count, DType wire_dtype, int exponent, void* wire) {
  assert(CanCast(wire_dtype, exponent));
  const ScopedFloatEnvironment environment;
  const Loops loops = LoopsOfThisProcessor();
  ToWireLoop* const loop = wire_dtype == DType::kF16 ? loops.to_f16 : loops.to_bf16;
  loop(static_cast<const unsigned char*>(source), count, PowerOfTwo(exponent),
       static_cast<unsigned char*>(wire));
}

void CastFromWire(const void* wire, size_t count, DType wire_dtype, int exponent,
                  void* destination) {
  assert(CanCast(wire_dtype, exponent));
  const ScopedFloatEnvironment environment;
  const Loops loops = LoopsOfThisProcessor();
  FromWireLoop* const loop = wire_dtype == DType::kF16 ? loops.from_f16 : loops.from_bf16;
  loop(static_cast<const unsigned char*>(wire), count, PowerOfTwo(-exponent),
       static_cast<unsigned char*>(destination));
}

}  // namespace basin::kernels
