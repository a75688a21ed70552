// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Loops of 16 independent sums, in vectors of the compiler's for every machine.
//
// Compiled with -ffp-contract=off: a fused multiply-add would round once where two are defined.

#include "kernels/norm.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cast.h"
#include "kernels/float16.h"
#include "kernels/float_environment.h"

namespace basin::kernels {
namespace {

// Four lanes at a time, in a type that both compilers keep in registers.
using Squares = double __attribute__((vector_size(4 * sizeof(double))));
constexpr size_t kLanesOfVector = sizeof(Squares) / sizeof(double);
constexpr size_t kVectors = kNormLanes / kLanesOfVector;

template <typename T>
inline __attribute__((always_inline)) void AddSquares(const unsigned char* data, size_t count,
                                                      double* lanes) {
  typedef T Values __attribute__((vector_size(kLanesOfVector * sizeof(T))));
  // Sums of our own: `data` may be anything, so `lanes` would be stored after every addition.
  Squares sums[kVectors];
  std::memcpy(sums, lanes, sizeof(sums));
  size_t i = 0;
  for (; i + kNormLanes <= count; i += kNormLanes) {
#pragma GCC unroll 8
    for (size_t k = 0; k < kVectors; ++k) {
      Values values;
      std::memcpy(&values, data + (i + k * kLanesOfVector) * sizeof(T), sizeof(values));
      const Squares wide = __builtin_convertvector(values, Squares);
      sums[k] += wide * wide;
    }
  }
  std::memcpy(lanes, sums, sizeof(sums));
  for (; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * sizeof(T), sizeof(T));
    lanes[i % kNormLanes] += static_cast<double>(value) * static_cast<double>(value);
  }
}

// bf16 is the upper half of f32, so a word of two elements is both of them as f32: shifted, and
// without its lower half. Even and odd lanes are kept apart.
inline __attribute__((always_inline)) void AddSquaresOfBF16(const unsigned char* data, size_t count,
                                                            double* lanes) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first element is the lower half");
  typedef uint32_t Words __attribute__((vector_size(kLanesOfVector * sizeof(uint32_t))));
  typedef float Floats __attribute__((vector_size(kLanesOfVector * sizeof(float))));
  constexpr size_t kPairs = kVectors / 2;
  Squares even[kPairs];
  Squares odd[kPairs];
  const auto lane_of = [](size_t pair, size_t k) { return 2 * (pair * kLanesOfVector + k); };
  for (size_t pair = 0; pair < kPairs; ++pair) {
    for (size_t k = 0; k < kLanesOfVector; ++k) {
      even[pair][k] = lanes[lane_of(pair, k)];
      odd[pair][k] = lanes[lane_of(pair, k) + 1];
    }
  }
  size_t i = 0;
  for (; i + kNormLanes <= count; i += kNormLanes) {
#pragma GCC unroll 8
    for (size_t pair = 0; pair < kPairs; ++pair) {
      Words words;
      std::memcpy(&words, data + (i + lane_of(pair, 0)) * sizeof(uint16_t), sizeof(words));
      const Squares low = __builtin_convertvector(reinterpret_cast<Floats>(words << 16), Squares);
      const Squares high =
          __builtin_convertvector(reinterpret_cast<Floats>(words & 0xffff0000), Squares);
      even[pair] += low * low;
      odd[pair] += high * high;
    }
  }
  for (size_t pair = 0; pair < kPairs; ++pair) {
    for (size_t k = 0; k < kLanesOfVector; ++k) {
      lanes[lane_of(pair, k)] = even[pair][k];
      lanes[lane_of(pair, k) + 1] = odd[pair][k];
    }
  }
  for (; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, data + i * sizeof(bits), sizeof(bits));
    const double value = WidenBF16(bits);
    lanes[i % kNormLanes] += value * value;
  }
}

using AddSquaresLoop = void(const unsigned char* data, size_t count, double* lanes);

struct Loops {
  AddSquaresLoop* f32;
  AddSquaresLoop* f64;
  AddSquaresLoop* bf16;
};

#if defined(__x86_64__) && !defined(BASIN_CAST_BASELINE)
__attribute__((target("avx2"))) void AddF32Avx2(const unsigned char* data, size_t count,
                                                double* lanes) {
  AddSquares<float>(data, count, lanes);
}
__attribute__((target("avx2"))) void AddF64Avx2(const unsigned char* data, size_t count,
                                                double* lanes) {
  AddSquares<double>(data, count, lanes);
}
__attribute__((target("avx2"))) void AddBF16Avx2(const unsigned char* data, size_t count,
                                                 double* lanes) {
  AddSquaresOfBF16(data, count, lanes);
}

Loops LoopsOfThisProcessor() {
  if (__builtin_cpu_supports("avx2")) return {AddF32Avx2, AddF64Avx2, AddBF16Avx2};
  return {AddSquares<float>, AddSquares<double>, AddSquaresOfBF16};
}
#else
Loops LoopsOfThisProcessor() { return {AddSquares<float>, AddSquares<double>, AddSquaresOfBF16}; }
#endif

// Lane l takes lane l + 8, l + 4, l + 2, l + 1.
double SumOf(double* lanes) {
  for (size_t half = kNormLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// The sum of at most a leaf.
double LeafOf(DType dtype, const unsigned char* data, size_t count, const Loops& loops) {
  double lanes[kNormLanes] = {};
  if (dtype == DType::kF64) {
    loops.f64(data, count, lanes);
  } else if (dtype == DType::kF32) {
    loops.f32(data, count, lanes);
  } else if (dtype == DType::kBF16) {
    loops.bf16(data, count, lanes);
  } else {
    constexpr size_t kWidened = 2048;  // Stays in the nearest cache.
    float values[kWidened];
    for (size_t at = 0; at < count; at += kWidened) {
      const size_t part = std::min(kWidened, count - at);
      CastFromWire(data + 2 * at, part, dtype, 0, values);
      loops.f32(reinterpret_cast<const unsigned char*>(values), part, lanes);
    }
  }
  return SumOf(lanes);
}

}  // namespace

void AppendNormLeaves(DType dtype, const void* data, size_t count, std::vector<double>* leaves) {
  if (!IsFloatingPoint(dtype) || ElementSize(dtype) < 2) return;
  const ScopedFloatEnvironment environment;
  const Loops loops = LoopsOfThisProcessor();
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t at = 0; at < count; at += kNormLeafElements) {
    leaves->push_back(LeafOf(dtype, bytes + at * ElementSize(dtype),
                             std::min(kNormLeafElements, count - at), loops));
  }
}

void AppendNormLeaf(const double* lanes, std::vector<double>* leaves) {
  double sums[kNormLanes];
  std::copy(lanes, lanes + kNormLanes, sums);
  const ScopedFloatEnvironment environment;
  leaves->push_back(SumOf(sums));
}

}  // namespace basin::kernels
