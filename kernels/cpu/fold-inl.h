// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// acc := fold of contributions, for floats. A step's accumulators stay in registers while the
// contributions pass, each read once; the order of the contributions is the order of the additions.
// Included once per instruction set.

#if defined(BASIN_KERNELS_CPU_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASIN_KERNELS_CPU_FOLD_INL_H_
#undef BASIN_KERNELS_CPU_FOLD_INL_H_
#else
#define BASIN_KERNELS_CPU_FOLD_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/float-inl.h"
#include "kernels/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace basin::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- p_i ---------------------------------------------------------------------------------------

// Which constants of the terms may differ from 1. Only 16-bit elements have a wire scale.
enum class Scaling { kNone, kFactor, kWireAndFactor };

template <class Wire, Scaling kScaling, class D, class V = hn::Vec<D>>
HWY_INLINE V Product(D d, const FoldTerm& term, V x) {
  if constexpr (kScaling == Scaling::kNone) {
    return x;
  } else if constexpr (sizeof(typename Wire::A) == sizeof(double)) {
    return hn::Mul(x, hn::Set(d, term.factor));
  } else if constexpr (kScaling == Scaling::kFactor || Wire::kSize == sizeof(float)) {
    return hn::Mul(x, hn::Set(d, term.factor_f32));
  } else {
    const V v = hn::Mul(x, hn::Set(d, term.unscale_f32));
    return hn::Mul(v, hn::Set(d, term.factor_f32));
  }
}

// ---- How acc takes in p_i ----------------------------------------------------------------------
// kWatchTerms: a p_i that is not finite may leave no trace in acc.

struct AddOp {
  static constexpr bool kWatchTerms = false;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Step(D, V acc, V p) {
    return hn::Add(acc, p);
  }
};

struct MultiplyOp {
  static constexpr bool kWatchTerms = false;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Step(D, V acc, V p) {
    return hn::Mul(acc, p);
  }
};

// Minimum or maximum of numbers. Equal operands have the same bits unless they are zeros of either
// sign, of which the AND of the bits is +0 and the OR is -0. AVX-512 has an instruction that orders
// the zeros as well.
template <bool kMin>
struct ExtremeOp {
  static constexpr bool kWatchTerms = true;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Step(D, V acc, V p) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    constexpr int kControl = (kMin ? 0 : 1) | 4;  // The smaller or the greater, with its own sign.
    if constexpr (sizeof(hn::TFromD<D>) == sizeof(float)) {
      return V{_mm512_range_ps(acc.raw, p.raw, kControl)};
    } else {
      return V{_mm512_range_pd(acc.raw, p.raw, kControl)};
    }
#else
    if constexpr (kMin) {
      return hn::IfThenElse(hn::Eq(acc, p), hn::Or(acc, p), hn::Min(acc, p));
    } else {
      return hn::IfThenElse(hn::Eq(acc, p), hn::And(acc, p), hn::Max(acc, p));
    }
#endif
  }
};

// The same for any values: a NaN on either side wins. Only ExtremeOp needs the help.
template <class Op, class D, class V = hn::Vec<D>>
HWY_INLINE V StepAnyValues(D d, V acc, V p) {
  const V next = Op::Step(d, acc, p);
  if constexpr (Op::kWatchTerms) {
    const V nan_or_next = hn::IfThenElse(hn::IsNaN(p), p, next);
    return hn::IfThenElse(hn::IsNaN(acc), acc, nan_or_next);
  } else {
    return next;
  }
}

// ---- The loops ---------------------------------------------------------------------------------

// What one step takes of each contribution: a cache line or, of f64, two. Streams that advance in
// step, a line at a time, are what the processor prefetches best.
template <class Wire>
constexpr size_t StepElements() {
  return Wire::kSize == 2 ? 32 : 16;
}

template <class Wire, class D>
constexpr size_t StepVectors() {
  return StepElements<Wire>() / hn::MaxLanes(D());
}

// The accumulators of one step after all terms, for the elements from `i`. `before` is what they
// start from, null for nothing. kAnyValues: also right when there are infinities and NaN.
template <class Layout, class Op, Scaling kScaling, bool kAnyValues, class D, size_t kVectors>
HWY_INLINE void FoldStep(D d, const FoldTerm* HWY_RESTRICT terms, size_t term_count,
                         const typename Layout::Type::A* before, size_t i,
                         hn::Vec<D> (&acc)[kVectors], FiniteWatch<D>& watch) {
  using Wire = typename Layout::Type;
  using V = hn::Vec<D>;
  const auto load_products = [&](const FoldTerm& term, V(&p)[kVectors]) HWY_ATTR {
    Layout::Load(d, term.data + i * Wire::kSize, p);
    for (size_t j = 0; j < kVectors; ++j) {
      p[j] = Product<Wire, kScaling>(d, term, p[j]);
      if (Op::kWatchTerms) watch.See(d, j, p[j]);
    }
  };
  size_t k = 0;
  if (before == nullptr) {
    load_products(terms[k++], acc);
  } else {
    Layout::LoadAccumulators(d, before + i, acc);
    if (!kAnyValues || Op::kWatchTerms) {
      for (size_t j = 0; j < kVectors; ++j) watch.See(d, j, acc[j]);
    }
  }
  for (; k < term_count; ++k) {
    V p[kVectors];
    load_products(terms[k], p);
    for (size_t j = 0; j < kVectors; ++j) {
      acc[j] = kAnyValues ? StepAnyValues<Op>(d, acc[j], p[j]) : Op::Step(d, acc[j], p[j]);
    }
  }
}

template <class Wire, class Op>
void Fold(const FoldTerm* HWY_RESTRICT terms, size_t term_count, bool fresh, size_t count,
          void* HWY_RESTRICT acc_data, Watch* watch) {
  using A = typename Wire::A;
  using D = hn::ScalableTag<A>;
  const D d;
  constexpr size_t kVectors = StepVectors<Wire, D>();
  A* acc = static_cast<A*>(acc_data);
  FiniteWatch<D> finite(d);
  for (size_t i = 0; i < count; i += StepElements<Wire>()) {
    hn::Vec<D> values[kVectors];
    FoldStep<Natural<Wire>, Op, Scaling::kWireAndFactor, /*kAnyValues=*/true>(
        d, terms, term_count, fresh ? nullptr : acc, i, values, finite);
    for (size_t j = 0; j < kVectors; ++j) {
      if (!Op::kWatchTerms) finite.See(d, j, values[j]);
      hn::StoreU(values[j], d, acc + i + j * hn::MaxLanes(d));
    }
  }
  if (!finite.AllFinite(d)) watch->non_finite = true;
}

template <class Wire, class Op>
void FoldCount(const FoldTerm* HWY_RESTRICT terms, size_t term_count, bool fresh, size_t count,
               void* HWY_RESTRICT acc_data, Count* found) {
  using A = typename Wire::A;
  const hn::ScalableTag<A> d;
  const SignedOf<decltype(d)> di;
  using V = hn::Vec<decltype(d)>;
  A* HWY_RESTRICT acc = static_cast<A*>(acc_data);

  for (size_t i = 0; i < count; i += hn::MaxLanes(d)) {
    V value = hn::LoadU(d, acc + i);
    for (size_t k = 0; k < term_count; ++k) {
      const V x = LoadWide<Wire>(d, terms[k].data + i * Wire::kSize);
      const V p = Product<Wire, Scaling::kWireAndFactor>(d, terms[k], x);
      const bool starts = fresh && k == 0;
      const V next = starts ? p : StepAnyValues<Op>(d, value, p);
      const auto x_is_finite = IsFiniteMask(d, x);
      const auto was_finite = starts ? x_is_finite : hn::And(x_is_finite, IsFiniteMask(d, value));
      found->overflows += hn::CountTrue(di, hn::AndNot(IsFiniteMask(d, next), was_finite));
      if (!hn::AllTrue(di, x_is_finite)) found->term_non_finite[k] = true;
      value = next;
    }
    hn::StoreU(value, d, acc + i);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_FOLD_INL_H_
