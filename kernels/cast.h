// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The conversion of an f32 tensor to 16 bits for sending (`wire_dtype` f16 or bf16), and back.
// Shapes do not matter here: a tensor is `count` elements in logical C order.
//
//   to the wire     RN_16(RN_32(x * 2^e))   e is the wire scale exponent of the contribution
//   from the wire   RN_32(x * 2^-e)
//
// The scale is applied in f32, before the cast, so that a power of two can bring values into the
// range of f16: 65520 and above become infinite in f16, 2^-25 and below become 0. The way back is
// exact unless the quotient leaves the normal range of f32. RN rounds to nearest, ties to even;
// subnormals are kept; every NaN becomes the canonical one. Every machine gives the same bits,
// whatever floating-point mode the caller's thread is in.
//
// An f64 tensor has no 16-bit form: its sum is taken in f64. Integers have none either.
//
// Thread contract: pure functions.

#ifndef BASIN_KERNELS_CAST_H_
#define BASIN_KERNELS_CAST_H_

#include <cstddef>
#include <cstdint>

#include "kernels/fit.h"
#include "protocol/dtype.h"

namespace basin::kernels {

// Whether an f32 tensor can be cast to `wire_dtype` with this scale exponent.
constexpr bool CanCast(DType wire_dtype, int exponent) {
  return (wire_dtype == DType::kF16 || wire_dtype == DType::kBF16) &&
         exponent >= -kMaxCastExponent && exponent <= kMaxCastExponent;
}

// Writes the `count` f32 at `source` to `wire` as `wire_dtype`. Both may lie at any address.
// REQUIRES: CanCast(wire_dtype, exponent); the buffers do not overlap.
void CastToWire(const void* source, size_t count, DType wire_dtype, int exponent, void* wire);

// The largest magnitude (fit.h) of the `count` f32 at `source`, which may lie at any address; 0
// without elements.
uint32_t LargestMagnitude(const void* source, size_t count);

// Writes the `count` values of `wire_dtype` at `wire` to `destination` as f32.
// REQUIRES: as CastToWire.
void CastFromWire(const void* wire, size_t count, DType wire_dtype, int exponent,
                  void* destination);

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_CAST_H_
