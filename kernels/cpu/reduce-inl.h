// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// From the contributions to the result in one loop, for floats whose result has the dtype they were
// sent in: fold, finish, round, store and square, a cache line of each stream at a time, so that
// the arithmetic hides behind the memory. Included once per instruction set.

#if defined(BASIN_KERNELS_CPU_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASIN_KERNELS_CPU_REDUCE_INL_H_
#undef BASIN_KERNELS_CPU_REDUCE_INL_H_
#else
#define BASIN_KERNELS_CPU_REDUCE_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/finish-inl.h"
#include "kernels/cpu/float-inl.h"
#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace basin::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A value as it comes out after rounding to Type, in the accumulator's type again.
template <class Type, class D, class V = hn::Vec<D>>
HWY_INLINE V Rounded(D d, V value) {
  return Type::Widen(d, Type::Narrow(d, value));
}

// Those lanes of `value` from `lane` on that fit an f64 vector, in f64.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<NormLanes::D> LanesAsF64(D, V value, size_t lane) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(double)) {
    return value;
  } else {
    const NormLanes::D d64;
#if HWY_TARGET == HWY_SCALAR
    (void)lane;  // There is one.
    return hn::PromoteTo(d64, value);
#else
    const hn::Half<D> d_half;
    return hn::PromoteTo(d64, lane == 0 ? hn::LowerHalf(d_half, value)
                                        : hn::UpperHalf(d_half, value));
#endif
  }
}

// The squares of one step's results: its vectors follow each other, 16 elements to a round of lanes.
template <class Type, class D, size_t kVectors, class V = hn::Vec<D>>
HWY_INLINE void AddStepSquares(D d, const V (&values)[kVectors], NormLanes* norm) {
  constexpr size_t kLanes = hn::MaxLanes(D());
  for (size_t first = 0; first < kVectors * kLanes; first += kNormLanes) {
    norm->Add([&](size_t j) HWY_ATTR {
      const size_t element = first + j * NormLanes::kLanes;
      return LanesAsF64(d, Rounded<Type>(d, values[element / kLanes]), element % kLanes);
    });
  }
}

template <class Type, class Op, bool kDivide>
void ReduceLoop(const FoldTerm* HWY_RESTRICT terms, size_t term_count,
                const typename Type::A* acc, double constant, size_t count, const Sink& sink,
                Watch* watch) {
  using A = typename Type::A;
  const hn::ScalableTag<A> d;
  using D = decltype(d);
  constexpr size_t kVectors = StepVectors<Type, D>();
  const SignedOf<D> di;
  const auto constants = hn::Set(d, static_cast<A>(constant));
  auto greatest_term = hn::Zero(di);
  auto greatest_result = hn::Zero(di);
  NormLanes norm(sink.norm_lanes);
  for (size_t i = 0; i < count; i += StepElements<Type>()) {
    typename Op::template State<D> states[kVectors];
    FoldStep<Type, Op>(d, terms, term_count, acc, i, states, greatest_term);
    hn::Vec<D> values[kVectors];
    for (size_t j = 0; j < kVectors; ++j) {
      const auto y = FinishValue<kDivide>(d, Op::ToValue(d, states[j]), constants);
      greatest_result = hn::Max(greatest_result, Magnitude(d, y));
      values[j] = CanonicalizeNan(d, y);
    }
    StoreStep<Type>(d, values, sink.bypass_cache, sink.out + i * Type::kSize);
    AddStepSquares<Type>(d, values, &norm);
  }
  norm.StoreTo(sink.norm_lanes);
  if (!hn::AllTrue(di, hn::Lt(greatest_term, hn::Set(di, Bits<A>::kInfinity))) ||
      !hn::AllTrue(di, hn::Lt(greatest_result, hn::Set(di, Type::kOverflow)))) {
    watch->non_finite = true;
  }
}

template <class Type, class Op>
void Reduce(const FoldTerm* terms, size_t term_count, const void* acc_data, Finish finish,
            double constant, size_t count, const Sink& sink, Watch* watch) {
  const auto* acc = static_cast<const typename Type::A*>(acc_data);
  if (finish == Finish::kDivide) {
    ReduceLoop<Type, Op, true>(terms, term_count, acc, constant, count, sink, watch);
  } else {
    ReduceLoop<Type, Op, false>(terms, term_count, acc, constant, count, sink, watch);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_REDUCE_INL_H_
