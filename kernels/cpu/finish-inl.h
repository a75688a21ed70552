// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// From acc to out, for floats, and the squares of the result. Included once per instruction set.

#if defined(BASIN_KERNELS_CPU_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASIN_KERNELS_CPU_FINISH_INL_H_
#undef BASIN_KERNELS_CPU_FINISH_INL_H_
#else
#define BASIN_KERNELS_CPU_FINISH_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/float-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/facts.h"

HWY_BEFORE_NAMESPACE();
namespace basin::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y of plan.h.
template <Finish kFinish, class D, class V = hn::Vec<D>>
HWY_INLINE V FinishValue(V acc, V constant) {
  if constexpr (kFinish == Finish::kMultiply) {
    return hn::Mul(acc, constant);
  } else if constexpr (kFinish == Finish::kDivide) {
    return hn::Div(acc, constant);
  } else {
    return acc;
  }
}

template <class Type, Finish kFinish>
void FinishLoop(const typename Type::A* HWY_RESTRICT acc, double constant, size_t count,
                unsigned char* HWY_RESTRICT out, Watch* watch) {
  using A = typename Type::A;
  const hn::ScalableTag<A> d;
  const SignedOf<decltype(d)> di;
  using V = hn::Vec<decltype(d)>;
  const V constants = hn::Set(d, static_cast<A>(constant));
  auto greatest = hn::Zero(di);
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const V y = FinishValue<kFinish, decltype(d)>(hn::Load(d, acc + i), constants);
    greatest = hn::Max(greatest, Magnitude(d, y));
    Type::Store(d, CanonicalizeNan(d, y), out + i * Type::kSize);
  }
  if (!hn::AllTrue(di, hn::Lt(greatest, hn::Set(di, Type::kOverflow)))) watch->non_finite = true;
}

template <class Type>
void FinishFloat(const void* acc_data, Finish finish, double constant, size_t count,
                 unsigned char* out, Watch* watch) {
  const auto* acc = static_cast<const typename Type::A*>(acc_data);
  switch (finish) {
    case Finish::kNone:
      return FinishLoop<Type, Finish::kNone>(acc, constant, count, out, watch);
    case Finish::kMultiply:
      return FinishLoop<Type, Finish::kMultiply>(acc, constant, count, out, watch);
    case Finish::kDivide:
      return FinishLoop<Type, Finish::kDivide>(acc, constant, count, out, watch);
  }
}

template <class Type>
uint64_t FinishCount(const void* acc_data, Finish finish, double constant, size_t count) {
  using A = typename Type::A;
  const hn::ScalableTag<A> d;
  const SignedOf<decltype(d)> di;
  using V = hn::Vec<decltype(d)>;
  const auto* acc = static_cast<const A*>(acc_data);
  const V constants = hn::Set(d, static_cast<A>(constant));
  uint64_t overflows = 0;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const V value = hn::Load(d, acc + i);
    V y = value;
    if (finish == Finish::kMultiply) y = hn::Mul(value, constants);
    if (finish == Finish::kDivide) y = hn::Div(value, constants);
    const auto stays_finite = IsBelow(d, y, Type::kOverflow);
    overflows += hn::CountTrue(di, hn::AndNot(stays_finite, IsFiniteMask(d, value)));
  }
  return overflows;
}

// ---- Norm --------------------------------------------------------------------------------------

// As many results as the f64 vector has lanes, exactly widened.
template <class Type, class D64>
HWY_INLINE hn::Vec<D64> LoadAsF64(D64 d64, const unsigned char* data) {
  if constexpr (sizeof(typename Type::A) == sizeof(double)) {
    return Type::Load(d64, data);
  } else {
    return hn::PromoteTo(d64, Type::Load(hn::Rebind<float, D64>(), data));
  }
}

template <class Type>
void AddSquares(const unsigned char* HWY_RESTRICT out, size_t count,
                double* HWY_RESTRICT lane_sums) {
  const hn::ScalableTag<double> d64;
  using V = hn::Vec<decltype(d64)>;
  constexpr size_t kLanes = hn::MaxLanes(d64);
  constexpr size_t kVectorsOfLanes = kNormLanes / kLanes;
  static_assert(kVectorsOfLanes * kLanes == kNormLanes);
  V sums[kVectorsOfLanes];
  for (size_t j = 0; j < kVectorsOfLanes; ++j) sums[j] = hn::LoadU(d64, lane_sums + j * kLanes);
  for (size_t i = 0; i < count; i += kNormLanes) {
    for (size_t j = 0; j < kVectorsOfLanes; ++j) {
      const V x = LoadAsF64<Type>(d64, out + (i + j * kLanes) * Type::kSize);
      sums[j] = hn::Add(sums[j], hn::Mul(x, x));
    }
  }
  for (size_t j = 0; j < kVectorsOfLanes; ++j) hn::StoreU(sums[j], d64, lane_sums + j * kLanes);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_FINISH_INL_H_
