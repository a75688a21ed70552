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

// y of plan.h. The constant of kNone is 1, which changes nothing.
template <bool kDivide, class D, class V = hn::Vec<D>>
HWY_INLINE V FinishValue(D, V acc, V constant) {
  return kDivide ? hn::Div(acc, constant) : hn::Mul(acc, constant);
}

// Stores the rounded values of kVectors vectors, which follow each other in memory.
template <class Type, class D, size_t kVectors, class V = hn::Vec<D>>
HWY_INLINE void StoreStep(D d, const V (&values)[kVectors], bool bypass_cache,
                          unsigned char* HWY_RESTRICT out) {
  const typename Type::template NarrowTag<D> d_narrow;
  using T = hn::TFromD<decltype(d_narrow)>;
  T* HWY_RESTRICT to = reinterpret_cast<T*>(out);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) < sizeof(hn::TFromD<D>)) {  // Two halves make a vector.
    static_assert(kVectors % 2 == 0);
    const hn::Twice<decltype(d_narrow)> d_twice;
    for (size_t j = 0; j < kVectors; j += 2) {
      const auto both = hn::Combine(d_twice, Type::Narrow(d, values[j + 1]),
                                    Type::Narrow(d, values[j]));
      T* HWY_RESTRICT at = to + j * hn::MaxLanes(d);
      bypass_cache ? hn::Stream(both, d_twice, at) : hn::StoreU(both, d_twice, at);
    }
    return;
  }
#endif
  for (size_t j = 0; j < kVectors; ++j) {
    const auto narrow = Type::Narrow(d, values[j]);
    T* HWY_RESTRICT at = to + j * hn::MaxLanes(d);
    if (bypass_cache && sizeof(T) == sizeof(hn::TFromD<D>)) {
      hn::Stream(narrow, d_narrow, at);
    } else {
      hn::StoreU(narrow, d_narrow, at);
    }
  }
}

template <class Type, bool kDivide>
void FinishLoop(const typename Type::A* HWY_RESTRICT acc, double constant, size_t count,
                unsigned char* HWY_RESTRICT out, Watch* watch) {
  using A = typename Type::A;
  const hn::ScalableTag<A> d;
  const SignedOf<decltype(d)> di;
  constexpr size_t kLanes = hn::MaxLanes(d);
  const auto constants = hn::Set(d, static_cast<A>(constant));
  auto greatest = hn::Zero(di);
  for (size_t i = 0; i < count; i += 2 * kLanes) {
    hn::Vec<decltype(d)> values[2];
    for (size_t j = 0; j < 2; ++j) {
      const auto y =
          FinishValue<kDivide>(d, hn::LoadU(d, acc + i + j * kLanes), constants);
      greatest = hn::Max(greatest, Magnitude(d, y));
      values[j] = CanonicalizeNan(d, y);
    }
    StoreStep<Type>(d, values, /*bypass_cache=*/false, out + i * Type::kSize);
  }
  if (!hn::AllTrue(di, hn::Lt(greatest, hn::Set(di, Type::kOverflow)))) watch->non_finite = true;
}

template <class Type>
void FinishFloat(const void* acc_data, Finish finish, double constant, size_t count,
                 unsigned char* out, Watch* watch) {
  const auto* acc = static_cast<const typename Type::A*>(acc_data);
  if (finish == Finish::kDivide) {
    FinishLoop<Type, true>(acc, constant, count, out, watch);
  } else {
    FinishLoop<Type, false>(acc, constant, count, out, watch);
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
    const V y = finish == Finish::kDivide ? FinishValue<true>(d, value, constants)
                                          : FinishValue<false>(d, value, constants);
    const auto stays_finite = IsBelow(d, y, Type::kOverflow);
    overflows += hn::CountTrue(di, hn::AndNot(stays_finite, IsFiniteMask(d, value)));
  }
  return overflows;
}

// ---- Norm --------------------------------------------------------------------------------------

// The 16 lanes of facts.h in registers.
class NormLanes {
 public:
  using D = hn::ScalableTag<double>;
  static constexpr size_t kLanes = hn::MaxLanes(D());
  static constexpr size_t kVectors = kNormLanes / kLanes;
  static_assert(kVectors * kLanes == kNormLanes);

  HWY_INLINE explicit NormLanes(const double* sums) {
    for (size_t j = 0; j < kVectors; ++j) sums_[j] = hn::LoadU(D(), sums + j * kLanes);
  }
  HWY_INLINE void StoreTo(double* sums) const {
    for (size_t j = 0; j < kVectors; ++j) hn::StoreU(sums_[j], D(), sums + j * kLanes);
  }
  // Adds the squares of 16 results, which `load(j)` gives in f64, a vector at a time.
  template <class Load>
  HWY_INLINE void Add(const Load& load) {
    for (size_t j = 0; j < kVectors; ++j) {
      const hn::Vec<D> x = load(j);
      sums_[j] = hn::Add(sums_[j], hn::Mul(x, x));
    }
  }

 private:
  hn::Vec<D> sums_[kVectors];
};

template <class Type>
void AddSquares(const unsigned char* HWY_RESTRICT out, size_t count, double* HWY_RESTRICT sums) {
  const NormLanes::D d64;
  NormLanes lanes(sums);
  for (size_t i = 0; i < count; i += kNormLanes) {
    lanes.Add([&](size_t j) HWY_ATTR {
      const unsigned char* data = out + (i + j * NormLanes::kLanes) * Type::kSize;
      if constexpr (sizeof(typename Type::A) == sizeof(double)) {
        return LoadWide<Type>(d64, data);
      } else {
        return hn::PromoteTo(d64, LoadWide<Type>(hn::Rebind<float, NormLanes::D>(), data));
      }
    });
  }
  lanes.StoreTo(sums);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_FINISH_INL_H_
