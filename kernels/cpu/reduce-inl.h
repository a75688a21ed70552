// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// From the contributions to the result in one loop, for floats whose result has the dtype they were
// sent in: fold, finish, round, store and square, a cache line of each stream at a time, so that
// the arithmetic hides behind the memory. The loop is right as long as every p_i and every result
// is finite, and says so if one is not; the piece is then done again in steps. Included once per
// instruction set.

#if defined(BASIN_KERNELS_CPU_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASIN_KERNELS_CPU_REDUCE_INL_H_
#undef BASIN_KERNELS_CPU_REDUCE_INL_H_
#else
#define BASIN_KERNELS_CPU_REDUCE_INL_H_
#endif

#include <type_traits>

#include <hwy/highway.h>

#include "kernels/cpu/finish-inl.h"
#include "kernels/cpu/float-inl.h"
#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace basin::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- Rounding and storing one step -------------------------------------------------------------
// Each takes the step's finished values, stores them rounded, and leaves them in `values` as they
// were rounded.

template <class T, class Tag>
HWY_INLINE void StoreOrStream(hn::Vec<Tag> v, Tag tag, bool bypass_cache, T* HWY_RESTRICT to) {
  bypass_cache ? hn::Stream(v, tag, to) : hn::StoreU(v, tag, to);
}

// f32 and f64: there is nothing to round.
template <class Layout, class D, size_t kVectors, class V = hn::Vec<D>>
HWY_INLINE void StoreStep(Layout, D d, V (&values)[kVectors], bool bypass_cache,
                          unsigned char* out) {
  auto* to = reinterpret_cast<hn::TFromD<D>*>(out);
  for (size_t j = 0; j < kVectors; ++j) {
    StoreOrStream(values[j], d, bypass_cache, to + j * hn::MaxLanes(d));
  }
}

template <class D, size_t kVectors, class V = hn::Vec<D>>
HWY_INLINE void StoreStep(Natural<TypeF16>, D d, V (&values)[kVectors], bool bypass_cache,
                          unsigned char* out) {
  auto* to = reinterpret_cast<uint16_t*>(out);
  const Bits16Of<D> d16;
#if HWY_TARGET == HWY_SCALAR
  for (size_t j = 0; j < kVectors; ++j) {
    const auto bits = NarrowF16(d, values[j]);
    values[j] = WidenF16(d, bits);
    StoreOrStream(bits, d16, bypass_cache, to + j);
  }
#else
  for (size_t j = 0; j < kVectors; j += 2) {
    const auto low = NarrowF16(d, values[j]);
    const auto high = NarrowF16(d, values[j + 1]);
    values[j] = WidenF16(d, low);
    values[j + 1] = WidenF16(d, high);
    const hn::Twice<decltype(d16)> d_both;
    StoreOrStream(hn::Combine(d_both, high, low), d_both, bypass_cache, to + j * hn::MaxLanes(d));
  }
#endif
}

// As NarrowToBF16Bits, left in the upper half of an f32. A NaN whose payload is all ones in the
// lower half may come out as a number. No bf16 widens to one and no operation makes one.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundInPlace(D, V v) {
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto last_kept = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(d32, 0x7fffu)), last_kept);
  return hn::And(rounded, hn::Set(d32, 0xffff0000u));
}

template <class D, size_t kVectors, class V = hn::Vec<D>>
HWY_INLINE void StoreStep(PairedBF16, D d, V (&values)[kVectors], bool bypass_cache,
                          unsigned char* out) {
  auto* to = reinterpret_cast<uint32_t*>(out);
  for (size_t j = 0; j < kVectors; j += 2) {
    const auto even = RoundInPlace(d, values[j]);
    const auto odd = RoundInPlace(d, values[j + 1]);
    values[j] = hn::BitCast(d, even);
    values[j + 1] = hn::BitCast(d, odd);
    const auto pairs = hn::Or(odd, hn::ShiftRight<16>(even));
    StoreOrStream(pairs, hn::RebindToUnsigned<D>(), bypass_cache, to + j / 2 * hn::MaxLanes(d));
  }
}

template <class Type>
struct LayoutOf {
  using type = Natural<Type>;
};
template <>
struct LayoutOf<TypeBF16> {
  using type = PairedBF16;
};

// ---- Squaring one step -------------------------------------------------------------------------

// The squares of results in `half`, in f64. That of an f16 is exact in f32 already.
template <class Type, class DHalf, class D64, class VHalf = hn::Vec<DHalf>>
HWY_INLINE hn::Vec<D64> SquaresAsF64(DHalf, VHalf half, D64 d64) {
  if constexpr (std::is_same_v<Type, TypeF16>) {
    return hn::PromoteTo(d64, hn::Mul(half, half));
  } else {
    const auto x = hn::PromoteTo(d64, half);
    return hn::Mul(x, x);
  }
}

template <class Layout, class D, size_t kVectors, class Norm, class V = hn::Vec<D>>
HWY_INLINE void AddStepSquares(D d, const V (&values)[kVectors], Norm* norm) {
  using Type = typename Layout::Type;
  constexpr size_t kStride = Layout::kStride;
  for (size_t j = 0; j < kVectors; ++j) {
    const size_t element = j / kStride * kStride * hn::MaxLanes(d) + j % kStride;
    if constexpr (sizeof(hn::TFromD<D>) == sizeof(double)) {
      norm->Add(element, hn::Mul(values[j], values[j]));
    } else {
      const typename Norm::D d64;
      const hn::Half<D> d_half;
      const auto low = hn::LowerHalf(d_half, values[j]);
      norm->Add(element, SquaresAsF64<Type>(d_half, low, d64));
#if HWY_TARGET != HWY_SCALAR
      const auto high = hn::UpperHalf(d_half, values[j]);
      norm->Add(element + kStride * Norm::kLanes, SquaresAsF64<Type>(d_half, high, d64));
#endif
    }
  }
}

// ---- The loop ----------------------------------------------------------------------------------

template <class Type, class Op, Finish kFinish, bool kScaled>
void ReduceLoop(const FoldTerm* HWY_RESTRICT terms, size_t term_count,
                const typename Type::A* before, double constant, size_t count, const Sink& sink,
                Watch* watch) {
  using A = typename Type::A;
  using D = hn::ScalableTag<A>;
  using Layout = typename LayoutOf<Type>::type;
  const D d;
  constexpr size_t kVectors = StepVectors<Type, D>();
  const auto constants = hn::Set(d, static_cast<A>(constant));
  const bool bypass_cache = sink.bypass_cache;
  FiniteWatch<D> finite_terms(d);
  NormLanes<Layout::kStride> norm(sink.norm_lanes);
  for (size_t i = 0; i < count; i += StepElements<Type>()) {
    hn::Vec<D> values[kVectors];
    FoldStep<Layout, Op, kScaled, /*kAnyValues=*/false>(d, terms, term_count, before, i, values,
                                                        finite_terms);
    for (size_t j = 0; j < kVectors; ++j) {
      values[j] = FinishValue<kFinish>(d, values[j], constants);
    }
    StoreStep(Layout(), d, values, bypass_cache, sink.out + i * Type::kSize);
    AddStepSquares<Layout>(d, values, &norm);
  }
  norm.StoreTo(sink.norm_lanes);
  // A result that is not finite leaves its trace in the sums of squares. (So do squares of f64 that
  // overflow: a false alarm, which costs time only.)
  if (!finite_terms.AllFinite(d) || !norm.AllFinite()) watch->non_finite = true;
}

// The common case, in which no term is scaled, has a loop of its own.
template <class Type, class Op, Finish kFinish>
void ReduceScaledOrNot(const FoldTerm* terms, size_t term_count, const typename Type::A* before,
                       double constant, size_t count, const Sink& sink, Watch* watch) {
  bool scaled = false;
  for (size_t k = 0; k < term_count; ++k) {
    scaled = scaled || terms[k].factor != 1.0 || terms[k].unscale_f32 != 1.0f;
  }
  const auto loop =
      scaled ? ReduceLoop<Type, Op, kFinish, true> : ReduceLoop<Type, Op, kFinish, false>;
  loop(terms, term_count, before, constant, count, sink, watch);
}

template <class Type, class Op>
void Reduce(const FoldTerm* terms, size_t term_count, const void* before_data, Finish finish,
            double constant, size_t count, const Sink& sink, Watch* watch) {
  const auto* before = static_cast<const typename Type::A*>(before_data);
  const auto reduce = [&](auto loop) {
    loop(terms, term_count, before, constant, count, sink, watch);
  };
  if constexpr (std::is_same_v<Op, AddOp>) {  // Only averages, which are sums, divide.
    if (finish == Finish::kDivide) return reduce(ReduceScaledOrNot<Type, Op, Finish::kDivide>);
    if (finish == Finish::kNone) return reduce(ReduceScaledOrNot<Type, Op, Finish::kNone>);
  }
  // The constant of kNone is 1, which changes nothing.
  reduce(ReduceScaledOrNot<Type, Op, Finish::kMultiply>);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_REDUCE_INL_H_
