// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// From acc to out, for floats, and the squares of the result. Included once per instruction set.

#if defined(BASIN_KERNELS_CPU_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASIN_KERNELS_CPU_FINISH_INL_H_
#undef BASIN_KERNELS_CPU_FINISH_INL_H_
#else
#define BASIN_KERNELS_CPU_FINISH_INL_H_
#endif

#include <utility>

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
HWY_INLINE V FinishValue(D, V acc, V constant) {
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
  const typename Type::template NarrowTag<decltype(d)> d_narrow;
  using T = hn::TFromD<decltype(d_narrow)>;
  const auto constants = hn::Set(d, static_cast<A>(constant));
  auto greatest = hn::Zero(di);
  for (size_t i = 0; i < count; i += hn::MaxLanes(d)) {
    const auto y = FinishValue<kFinish>(d, hn::LoadU(d, acc + i), constants);
    greatest = hn::Max(greatest, Magnitude(d, y));
    const auto narrow = Type::Narrow(d, CanonicalizeNan(d, y));
    hn::StoreU(narrow, d_narrow, reinterpret_cast<T*>(out + i * Type::kSize));
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
    const V value = hn::LoadU(d, acc + i);
    const V y = finish == Finish::kDivide ? FinishValue<Finish::kDivide>(d, value, constants)
                                          : FinishValue<Finish::kMultiply>(d, value, constants);
    const auto stays_finite = IsBelow(d, y, Type::kOverflow);
    overflows += hn::CountTrue(di, hn::AndNot(stays_finite, IsFiniteMask(d, value)));
  }
  return overflows;
}

// ---- Norm --------------------------------------------------------------------------------------

// Vectors for squares of f32, which are widened half a vector at a time: a load that widens is a
// single operation on x86 if it gives 256 bits, but not if it gives 512.
using WideningD64 = hn::CappedTag<double, 4>;

// The 16 lanes of facts.h in registers, for elements that come in a layout of the given stride: as
// with the elements, vector k holds the lanes (k / kStride) * kStride * kLanes + k % kStride +
// kStride * t.
template <class D_, size_t kStride>
class NormLanes {
 public:
  using D = D_;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  static constexpr size_t kVectors = kNormLanes / kLanes;
  static_assert(kVectors * kLanes == kNormLanes);

  HWY_INLINE explicit NormLanes(const double* lanes) {
    double ordered[kNormLanes];
    for (size_t i = 0; i < kNormLanes; ++i) ordered[i] = lanes[LaneAt(i)];
    LoadSums(ordered, Indices());
  }

  HWY_INLINE void StoreTo(double* lanes) const {
    double ordered[kNormLanes];
    StoreSums(ordered, Indices());
    for (size_t i = 0; i < kNormLanes; ++i) lanes[LaneAt(i)] = ordered[i];
  }

  HWY_INLINE bool AllBelow(double limit) const { return AllSumsBelow(limit, Indices()); }

  // Adds squares of the elements `element`, `element` + kStride, ...
  HWY_INLINE void Add(size_t element, hn::Vec<D> squares) {
    hn::Vec<D>& sum = SumOf(element);
    sum = hn::Add(sum, squares);
  }

  // The same, as a * b.
  // REQUIRES: the products are exact, so that there is only one rounding, fused or not.
  HWY_INLINE void AddExactProducts(size_t element, hn::Vec<D> a, hn::Vec<D> b) {
    hn::Vec<D>& sum = SumOf(element);
    sum = hn::MulAdd(a, b, sum);
  }

 private:
  // The sums are named one by one, because an array that a loop goes through is kept in memory.
  using Indices = std::make_index_sequence<kVectors>;
  template <size_t... kIndex>
  HWY_INLINE void LoadSums(const double* from, std::index_sequence<kIndex...>) {
    ((sums_[kIndex] = hn::LoadU(D(), from + kIndex * kLanes)), ...);
  }
  template <size_t... kIndex>
  HWY_INLINE void StoreSums(double* to, std::index_sequence<kIndex...>) const {
    (hn::StoreU(sums_[kIndex], D(), to + kIndex * kLanes), ...);
  }
  template <size_t... kIndex>
  HWY_INLINE bool AllSumsBelow(double limit, std::index_sequence<kIndex...>) const {
    const D d;
    return (hn::AllTrue(d, hn::Lt(sums_[kIndex], hn::Set(d, limit))) && ...);
  }

  HWY_INLINE hn::Vec<D>& SumOf(size_t element) {
    const size_t lane = element % kNormLanes;
    return sums_[lane / (kStride * kLanes) * kStride + lane % kStride];
  }

  // The lane at place `i` when the vectors are laid side by side.
  static constexpr size_t LaneAt(size_t i) {
    const size_t k = i / kLanes;
    return k / kStride * kStride * kLanes + k % kStride + kStride * (i % kLanes);
  }

  hn::Vec<D> sums_[kVectors];
};

template <class Type>
void AddSquares(const unsigned char* HWY_RESTRICT out, size_t count, double* HWY_RESTRICT lanes) {
  using Norm = NormLanes<WideningD64, /*kStride=*/1>;
  const Norm::D d64;
  Norm norm(lanes);
  for (size_t i = 0; i < count; i += kNormLanes) {
    for (size_t j = 0; j < kNormLanes; j += Norm::kLanes) {
      const unsigned char* data = out + (i + j) * Type::kSize;
      if constexpr (sizeof(typename Type::A) == sizeof(double)) {
        const auto x = LoadWide<Type>(d64, data);
        norm.Add(j, hn::Mul(x, x));
      } else {
        const auto x = hn::PromoteTo(d64, LoadWide<Type>(hn::Rebind<float, Norm::D>(), data));
        norm.AddExactProducts(j, x, x);  // 24 bits times 24 bits.
      }
    }
  }
  norm.StoreTo(lanes);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_FINISH_INL_H_
