// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of one element, as plan.h defines it, for the device and for the host.
//
// REQUIRES of the compiler: no fused multiply-add, no flushing of subnormals, division that is
// rounded correctly. For nvcc: -fmad=false -ftz=false -prec-div=true -prec-sqrt=true.
//
// Thread contract: pure functions.

#ifndef BASIN_KERNELS_CUDA_ELEMENT_H_
#define BASIN_KERNELS_CUDA_ELEMENT_H_

#include <cstdint>

#include "kernels/cuda/host_device.h"
#include "kernels/float16_branchless.h"
#include "kernels/plan.h"

namespace basin::kernels::cuda {

// ---- Floats: bits, so that no compiler assumption about NaN matters ---------------------------

BASIN_HOST_DEVICE bool IsFinite(float x) { return (BitsOfF32(x) & 0x7f800000) != 0x7f800000; }
BASIN_HOST_DEVICE bool IsFinite(double x) {
  return (__builtin_bit_cast(uint64_t, x) & 0x7ff0000000000000) != 0x7ff0000000000000;
}
BASIN_HOST_DEVICE bool IsFinite(int64_t) { return true; }

BASIN_HOST_DEVICE bool IsNegative(float x) { return (BitsOfF32(x) >> 31) != 0; }
BASIN_HOST_DEVICE bool IsNegative(double x) { return (__builtin_bit_cast(uint64_t, x) >> 63) != 0; }

BASIN_HOST_DEVICE float Canonical(float x) { return CanonicalF32(x); }
BASIN_HOST_DEVICE double Canonical(double x) {
  return x != x ? __builtin_bit_cast(double, kCanonicalNanF64) : x;
}

// ---- p_i -------------------------------------------------------------------------------------

template <typename A>
BASIN_HOST_DEVICE A Scale(A x, double unscale, double factor) {
  const A v = x * static_cast<A>(unscale);
  return v * static_cast<A>(factor);
}

// Integers have no scale but 1.
BASIN_HOST_DEVICE int64_t Scale(int64_t x, double, double) { return x; }

// ---- acc -------------------------------------------------------------------------------------

// What acc starts from: Combine(Identity, p) has the bits of p, for every p that is not NaN.
template <typename A>
BASIN_HOST_DEVICE A Identity(Combine combine) {
  switch (combine) {
    case Combine::kMultiply:
      return A{1};
    case Combine::kMin:
      return static_cast<A>(__builtin_huge_val());
    case Combine::kMax:
      return static_cast<A>(-__builtin_huge_val());
    case Combine::kAdd:
      break;
  }
  return static_cast<A>(-0.0);  // +0 would turn a -0 into +0.
}

template <>
BASIN_HOST_DEVICE int64_t Identity<int64_t>(Combine combine) {
  switch (combine) {
    case Combine::kMultiply:
      return 1;
    case Combine::kMin:
      return INT64_MAX;
    case Combine::kMax:
      return INT64_MIN;
    case Combine::kAdd:
      break;
  }
  return 0;
}

// NaN wins over numbers and -0 < +0.
template <typename A>
BASIN_HOST_DEVICE A Lesser(A a, A b) {
  if (a != a) return a;
  if (a == b) return IsNegative(a) ? a : b;
  return a < b ? a : b;  // b if it is NaN.
}

template <typename A>
BASIN_HOST_DEVICE A Greater(A a, A b) {
  if (a != a) return a;
  if (a == b) return IsNegative(a) ? b : a;
  return a > b ? a : b;
}

BASIN_HOST_DEVICE int64_t Lesser(int64_t a, int64_t b) { return a < b ? a : b; }
BASIN_HOST_DEVICE int64_t Greater(int64_t a, int64_t b) { return a > b ? a : b; }

BASIN_HOST_DEVICE int64_t WrappingSum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
BASIN_HOST_DEVICE int64_t WrappingProduct(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// A sum wraps if both terms have the sign that it has not.
BASIN_HOST_DEVICE bool SumWraps(int64_t a, int64_t b) {
  const int64_t sum = WrappingSum(a, b);
  return ((a ^ sum) & (b ^ sum)) < 0;
}

BASIN_HOST_DEVICE bool ProductWraps(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return false;
  if (a == -1) return b == INT64_MIN;  // The one quotient that does not exist.
  if (b == -1) return a == INT64_MIN;
  const int64_t product = WrappingProduct(a, b);
  return product / b != a;
}

// The next acc.
template <typename A>
BASIN_HOST_DEVICE A Next(Combine combine, A acc, A p) {
  switch (combine) {
    case Combine::kMultiply:
      return acc * p;
    case Combine::kMin:
      return Lesser(acc, p);
    case Combine::kMax:
      return Greater(acc, p);
    case Combine::kAdd:
      break;
  }
  return acc + p;
}

BASIN_HOST_DEVICE int64_t Next(Combine combine, int64_t acc, int64_t p) {
  switch (combine) {
    case Combine::kMultiply:
      return WrappingProduct(acc, p);
    case Combine::kMin:
      return Lesser(acc, p);
    case Combine::kMax:
      return Greater(acc, p);
    case Combine::kAdd:
      break;
  }
  return WrappingSum(acc, p);
}

template <typename A>
BASIN_HOST_DEVICE bool Wraps(Combine, A, A) {
  return false;
}

BASIN_HOST_DEVICE bool Wraps(Combine combine, int64_t acc, int64_t p) {
  if (combine == Combine::kAdd) return SumWraps(acc, p);
  return combine == Combine::kMultiply && ProductWraps(acc, p);
}

// ---- y and out -------------------------------------------------------------------------------

template <typename A>
BASIN_HOST_DEVICE A FinishedValue(Finish finish, A acc, double constant) {
  switch (finish) {
    case Finish::kMultiply:
      return acc * static_cast<A>(constant);
    case Finish::kDivide:
      return acc / static_cast<A>(constant);
    case Finish::kNone:
      break;
  }
  return acc;
}

BASIN_HOST_DEVICE int64_t FinishedValue(Finish, int64_t acc, double) { return acc; }

// What the norm adds: a multiplication of its own.
BASIN_HOST_DEVICE double Square(double out) { return out * out; }

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_ELEMENT_H_
