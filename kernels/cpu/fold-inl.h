// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// acc := fold of contributions, for floats. Four accumulator vectors stay in registers while the
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

template <class Wire>
struct Product {
  template <class D>
  static HWY_INLINE hn::Vec<D> Of(D d, const FoldTerm& term, hn::Vec<D> x) {
    if constexpr (sizeof(typename Wire::A) == sizeof(double)) {
      return hn::Mul(x, hn::Set(d, term.factor));
    } else if constexpr (Wire::kSize == sizeof(float)) {
      return hn::Mul(x, hn::Set(d, term.factor_f32));  // Has no wire scale.
    } else {
      const auto v = hn::Mul(x, hn::Set(d, term.unscale_f32));
      return hn::Mul(v, hn::Set(d, term.factor_f32));
    }
  }
};

// ---- How acc takes in p_i ----------------------------------------------------------------------
// An op keeps acc in a state of its own: FromValue(acc), Step(state, p), ToValue(state).
// kWatchTerms: a p_i that is not finite may leave no trace in acc.

struct AddOp {
  static constexpr bool kWatchTerms = false;
  template <class D>
  using State = hn::Vec<D>;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V FromValue(D, V value) {
    return value;
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Step(D, V state, V p) {
    return hn::Add(state, p);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V ToValue(D, V state) {
    return state;
  }
};

struct MultiplyOp : AddOp {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Step(D, V state, V p) {
    return hn::Mul(state, p);
  }
};

// MAX is an integer maximum of keys that order like the values, -0 below +0: a non-negative
// float's bits are its key; of a negative one all but the sign bit are inverted. The canonical NaN
// has the greatest key, so it wins. MIN is the same on negated values.
template <bool kMin>
struct ExtremeOp {
  static constexpr bool kWatchTerms = true;
  template <class D>
  using State = hn::Vec<SignedOf<D>>;

  template <class D, class VI = State<D>>
  static HWY_INLINE VI SwapKeyAndBits(D, VI v) {
    const SignedOf<D> di;
    const VI magnitude = hn::Set(di, Bits<hn::TFromD<D>>::kMagnitude);
    return hn::Xor(v, hn::And(hn::BroadcastSignBit(v), magnitude));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE State<D> FromValue(D d, V value) {
    const V signed_value = kMin ? hn::Neg(value) : value;
    return SwapKeyAndBits(d, hn::BitCast(SignedOf<D>(), CanonicalizeNan(d, signed_value)));
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE State<D> Step(D d, State<D> state, V p) {
    return hn::Max(state, FromValue(d, p));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> ToValue(D d, State<D> state) {
    const hn::Vec<D> signed_value = hn::BitCast(d, SwapKeyAndBits(d, state));
    return kMin ? hn::Neg(signed_value) : signed_value;
  }
};

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

// The state of one step's accumulators after all terms, for the elements from `i`. `acc` is what
// came before, null if nothing. `greatest` takes in the magnitudes that must stay below infinity.
template <class Wire, class Op, class D, class State, size_t kVectors>
HWY_INLINE void FoldStep(D d, const FoldTerm* HWY_RESTRICT terms, size_t term_count,
                         const typename Wire::A* acc, size_t i, State (&states)[kVectors],
                         hn::Vec<SignedOf<D>>& greatest) {
  using V = hn::Vec<D>;
  constexpr size_t kLanes = hn::MaxLanes(D());
  const auto product = [&](const FoldTerm& term, size_t j) HWY_ATTR {
    const V x = LoadWide<Wire>(d, term.data + (i + j * kLanes) * Wire::kSize);
    const V p = Product<Wire>::Of(d, term, x);
    if (Op::kWatchTerms) greatest = hn::Max(greatest, Magnitude(d, p));
    return p;
  };
  size_t k = 0;
  if (acc == nullptr) {
    for (size_t j = 0; j < kVectors; ++j) states[j] = Op::FromValue(d, product(terms[0], j));
    k = 1;
  } else {
    for (size_t j = 0; j < kVectors; ++j) {
      states[j] = Op::FromValue(d, hn::LoadU(d, acc + i + j * kLanes));
    }
  }
  for (; k < term_count; ++k) {
    for (size_t j = 0; j < kVectors; ++j) {
      states[j] = Op::Step(d, states[j], product(terms[k], j));
    }
  }
}

template <class Wire, class Op>
void Fold(const FoldTerm* HWY_RESTRICT terms, size_t term_count, bool fresh, size_t count,
          void* HWY_RESTRICT acc_data, Watch* watch) {
  using A = typename Wire::A;
  const hn::ScalableTag<A> d;
  using D = decltype(d);
  constexpr size_t kVectors = StepVectors<Wire, D>();
  const SignedOf<D> di;
  A* acc = static_cast<A*>(acc_data);
  auto greatest = hn::Zero(di);
  for (size_t i = 0; i < count; i += StepElements<Wire>()) {
    typename Op::template State<D> states[kVectors];
    FoldStep<Wire, Op>(d, terms, term_count, fresh ? nullptr : acc, i, states, greatest);
    for (size_t j = 0; j < kVectors; ++j) {
      const auto value = Op::ToValue(d, states[j]);
      if (!Op::kWatchTerms) greatest = hn::Max(greatest, Magnitude(d, value));
      hn::StoreU(value, d, acc + i + j * hn::MaxLanes(d));
    }
  }
  if (!hn::AllTrue(di, hn::Lt(greatest, hn::Set(di, Bits<A>::kInfinity)))) {
    watch->non_finite = true;
  }
}

template <class Wire, class Op>
void FoldCount(const FoldTerm* HWY_RESTRICT terms, size_t term_count, bool fresh, size_t count,
               void* HWY_RESTRICT acc_data, Count* found) {
  using A = typename Wire::A;
  const hn::ScalableTag<A> d;
  const SignedOf<decltype(d)> di;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  A* HWY_RESTRICT acc = static_cast<A*>(acc_data);

  for (size_t i = 0; i < count; i += lanes) {
    V value = hn::LoadU(d, acc + i);
    for (size_t k = 0; k < term_count; ++k) {
      const V x = LoadWide<Wire>(d, terms[k].data + i * Wire::kSize);
      const V p = Product<Wire>::Of(d, terms[k], x);
      const bool starts = fresh && k == 0;
      const V next =
          starts ? p : Op::ToValue(d, Op::Step(d, Op::FromValue(d, value), p));
      const auto x_is_finite = IsFiniteMask(d, x);
      const auto was_finite =
          starts ? x_is_finite : hn::And(x_is_finite, IsFiniteMask(d, value));
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
