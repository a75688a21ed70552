// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Loops without branches, which compilers turn into vector code for every machine.
//
// Compiled with -ffp-contract=off: a fused multiply-add would round once where two are defined.

#include "kernels/cast.h"

#include <cassert>
#include <cstdint>
#include <cstring>

#include "kernels/float16_branchless.h"
#include "kernels/float_environment.h"

namespace basin::kernels {
namespace {

// 2^exponent; exponent in [-126, 127].
float PowerOfTwo(int exponent) { return F32OfBits(static_cast<uint32_t>(exponent + 127) << 23); }

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
    const float value = CanonicalF32(Wire::Widen(narrow) * unscale);
    std::memcpy(destination + 4 * i, &value, 4);
  }
}

inline __attribute__((always_inline)) uint32_t Largest(const unsigned char* source, size_t count) {
  // As signed integers; see float16_branchless.h.
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, source + 4 * i, 4);
    const auto magnitude = static_cast<int32_t>(bits & kMagnitudeMaskF32);
    largest = magnitude > largest ? magnitude : largest;
  }
  return static_cast<uint32_t>(largest);
}

using ToWireLoop = void(const unsigned char* source, size_t count, float scale,
                        unsigned char* wire);
using FromWireLoop = void(const unsigned char* wire, size_t count, float unscale,
                          unsigned char* destination);

using LargestLoop = uint32_t(const unsigned char* source, size_t count);

struct Loops {
  ToWireLoop* to_f16;
  ToWireLoop* to_bf16;
  FromWireLoop* from_f16;
  FromWireLoop* from_bf16;
  LargestLoop* largest;
};

// The loops for any processor of the architecture that the file is compiled for.
constexpr Loops kBaseline = {
    [](auto... arguments) { ToWire<BranchlessF16>(arguments...); },
    [](auto... arguments) { ToWire<BranchlessBF16>(arguments...); },
    [](auto... arguments) { FromWire<BranchlessF16>(arguments...); },
    [](auto... arguments) { FromWire<BranchlessBF16>(arguments...); },
    [](auto... arguments) { return Largest(arguments...); },
};

#if defined(__x86_64__) && !defined(BASIN_CAST_BASELINE)
// The same loops again, for AVX2: twice as fast for f16, where arithmetic is the bound.
#define BASIN_AVX2 __attribute__((target("avx2")))
BASIN_AVX2 void ToF16Avx2(const unsigned char* source, size_t count, float scale,
                          unsigned char* wire) {
  ToWire<BranchlessF16>(source, count, scale, wire);
}
BASIN_AVX2 void ToBF16Avx2(const unsigned char* source, size_t count, float scale,
                           unsigned char* wire) {
  ToWire<BranchlessBF16>(source, count, scale, wire);
}
BASIN_AVX2 void FromF16Avx2(const unsigned char* wire, size_t count, float unscale,
                            unsigned char* destination) {
  FromWire<BranchlessF16>(wire, count, unscale, destination);
}
BASIN_AVX2 void FromBF16Avx2(const unsigned char* wire, size_t count, float unscale,
                             unsigned char* destination) {
  FromWire<BranchlessBF16>(wire, count, unscale, destination);
}
BASIN_AVX2 uint32_t LargestAvx2(const unsigned char* source, size_t count) {
  return Largest(source, count);
}
#undef BASIN_AVX2

Loops LoopsOfThisProcessor() {
  if (__builtin_cpu_supports("avx2")) {
    return {ToF16Avx2, ToBF16Avx2, FromF16Avx2, FromBF16Avx2, LargestAvx2};
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

uint32_t LargestMagnitude(const void* source, size_t count) {
  return LoopsOfThisProcessor().largest(static_cast<const unsigned char*>(source), count);
}

}  // namespace basin::kernels
