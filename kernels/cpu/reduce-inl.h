// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// From the contributions to the result in one loop, for floats whose result has the dtype they were
// sent in: fold, finish, round, store and square, a cache line of each stream at a time, so that
// the arithmetic hides behind the memory. The loop is right as long as every p_i and every result
// is finite, and reports it if one is not; the piece is then done again in steps. Included once per
// instruction set.

#if defined(BASIN_KERNELS_CPU_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASIN_KERNELS_CPU_REDUCE_INL_H_
#undef BASIN_KERNELS_CPU_REDUCE_INL_H_
#else
#define BASIN_KERNELS_CPU_REDUCE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include <hwy/highway.h>

#include "kernels/cpu/finish-inl.h"
#include "kernels/cpu/float-inl.h"
#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace basin::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- Rounding and storing one step -------------------------------------------------------------
// Each takes the step's finished values, stores them rounded, and leaves them in `values` as they
// were rounded.

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

#if HWY_TARGET == HWY_SCALAR

template <class D, size_t kVectors, class V = hn::Vec<D>>
HWY_INLINE void StoreStep(PairedBF16, D d, V (&values)[kVectors], bool bypass_cache,
                          unsigned char* out) {
  auto* to = reinterpret_cast<uint16_t*>(out);
  for (size_t j = 0; j < kVectors; ++j) {
    const auto bits = NarrowBF16(d, values[j]);
    values[j] = WidenBF16(d, bits);
    StoreOrStream(bits, Bits16Of<D>(), bypass_cache, to + j);
  }
}

#else

// Like NarrowToBF16Bits, for the upper and the lower halves of the bits of f32. A NaN whose payload
// is all ones in the lower half may come out as a number. No bf16 widens to one and no operation
// makes one.
template <class D16, class V16 = hn::Vec<D16>>
HWY_INLINE V16 RoundHalves(D16 d16, V16 upper, V16 lower) {
  const auto last_kept = hn::And(upper, hn::Set(d16, uint16_t{1}));
  // The sum that decides, lower + 0x7fff + last_kept, has 17 bits; an average keeps the upper 16.
  const auto addend = hn::Or(last_kept, hn::Set(d16, uint16_t{0x7ffe}));
  const auto carry = hn::ShiftRight<15>(hn::AverageRound(lower, addend));
  return hn::Add(upper, carry);
}

template <class D, size_t kVectors, class V = hn::Vec<D>>
HWY_INLINE void StoreStep(PairedBF16, D d, V (&values)[kVectors], bool bypass_cache,
                          unsigned char* out) {
  auto* to = reinterpret_cast<uint16_t*>(out);
  const hn::RebindToUnsigned<D> d32;
  const hn::Repartition<uint16_t, D> d16;
  for (size_t j = 0; j < kVectors; j += 2) {
    const auto even = hn::BitCast(d32, values[j]);
    const auto odd = hn::BitCast(d32, values[j + 1]);
    const auto upper =
        hn::OddEven(hn::BitCast(d16, odd), hn::BitCast(d16, hn::ShiftRight<16>(even)));
    const auto lower =
        hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(odd)), hn::BitCast(d16, even));
    const auto rounded = RoundHalves(d16, upper, lower);
    StoreOrStream(rounded, d16, bypass_cache, to + j * hn::MaxLanes(d));
    const auto pairs = hn::BitCast(d32, rounded);
    values[j] = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
    values[j + 1] = hn::BitCast(d, hn::And(pairs, hn::Set(d32, 0xffff0000u)));
  }
}

#endif

template <class Type>
struct LayoutOf {
  using type = Natural<Type>;
};
template <>
struct LayoutOf<TypeBF16> {
  using type = PairedBF16;
};

// ---- Squares of the results --------------------------------------------------------------------

// Adds the squares of one step's results, from the vectors they are in. Squares of f64 are rounded
// before they are added; those of f32 are exact in f64.
template <class Norm, class D, size_t kVectors, class V = hn::Vec<D>>
HWY_INLINE void AddStepSquares(D d, const V (&values)[kVectors], Norm& norm) {
  const typename Norm::D d64;
  for (size_t j = 0; j < kVectors; ++j) {
    const size_t element = j * hn::MaxLanes(d);
    if constexpr (sizeof(hn::TFromD<D>) == sizeof(double)) {
      norm.Add(element, hn::Mul(values[j], values[j]));
    } else {
      const hn::Half<D> d_half;
      const auto low = hn::PromoteTo(d64, hn::LowerHalf(d_half, values[j]));
      norm.AddExactProducts(element, low, low);
#if HWY_TARGET != HWY_SCALAR
      const auto high = hn::PromoteTo(d64, hn::UpperHalf(d_half, values[j]));
      norm.AddExactProducts(element + Norm::kLanes, high, high);
#endif
    }
  }
}

// With two results for each that f32 has, the processor is short of operations for 16-bit floats.
// So their results rest as f32 in the first-level cache for a few steps, from where they are loaded
// and widened to f64 in one operation.
template <class Layout>
class RestingResults {
 public:
  HWY_INLINE RestingResults() : steps_{} {}  // Zeros, whose squares change no sum.

  // Adds the squares of the oldest step, and takes in a new one in its place.
  template <class Norm, class D, size_t kVectors, class V = hn::Vec<D>>
  HWY_INLINE void Exchange(D d, size_t step, const V (&values)[kVectors], Norm& norm) {
    float* HWY_RESTRICT results = steps_[step % kSteps];
    AddSquares(results, norm);
    for (size_t j = 0; j < kVectors; ++j) hn::Store(values[j], d, results + j * hn::MaxLanes(d));
  }

  // Adds the squares of all that are left, after `step` steps.
  template <class Norm>
  HWY_INLINE void Drain(size_t step, Norm& norm) {
    for (size_t i = 0; i < kSteps; ++i) AddSquares(steps_[(step + i) % kSteps], norm);
  }

 private:
  static constexpr size_t kSteps = 4;
  static constexpr size_t kStep = StepElements<typename Layout::Type>();

  template <class Norm>
  static HWY_INLINE void AddSquares(const float* HWY_RESTRICT results, Norm& norm) {
    AddParts(results, norm, std::make_index_sequence<kStep / Norm::kLanes>());
  }
  template <class Norm, size_t... kPart>
  static HWY_INLINE void AddParts(const float* HWY_RESTRICT results, Norm& norm,
                                  std::index_sequence<kPart...>) {
    (AddPart<kPart * Norm::kLanes>(results, norm), ...);
  }
  template <size_t kAt, class Norm>
  static HWY_INLINE void AddPart(const float* HWY_RESTRICT results, Norm& norm) {
    constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
    constexpr size_t kStride = Layout::kStride;
    constexpr size_t kVector = kAt / kLanes;  // The one it came in.
    constexpr size_t kFirst = kVector / kStride * kStride * kLanes + kVector % kStride;
    const typename Norm::D d64;
    const hn::Rebind<float, typename Norm::D> d32;
    const auto x = hn::PromoteTo(d64, hn::Load(d32, results + kAt));
    norm.AddExactProducts(kFirst + kStride * (kAt % kLanes), x, x);
  }

  alignas(64) float steps_[kSteps][kStep];
};

struct Nothing {};

// ---- The loop ----------------------------------------------------------------------------------

template <class Type, class Op, Finish kFinish, Scaling kScaling>
void ReduceLoop(const FoldTerm* HWY_RESTRICT terms, size_t term_count,
                const typename Type::A* before, double constant, size_t count, const Sink& sink,
                Watch* watch) {
  using Layout = typename LayoutOf<Type>::type;
  using D = hn::ScalableTag<typename Type::A>;
  const D d;
  constexpr size_t kStep = StepElements<Type>();
  constexpr size_t kVectors = StepVectors<Type, D>();
  const auto constants = hn::Set(d, static_cast<typename Type::A>(constant));
  const bool bypass_cache = sink.bypass_cache;
  FiniteWatch<D> finite_terms(d);
  constexpr bool kResultsRest = Type::kSize == 2;
  NormLanes<std::conditional_t<kResultsRest, WideningD64, hn::ScalableTag<double>>, Layout::kStride>
      norm(sink.norm_lanes);
  std::conditional_t<kResultsRest, RestingResults<Layout>, Nothing> resting;
  for (size_t i = 0; i < count; i += kStep) {
    hn::Vec<D> values[kVectors];
    FoldStep<Layout, Op, kScaling, /*kAnyValues=*/false>(d, terms, term_count, before, i, values,
                                                         finite_terms);
    for (size_t j = 0; j < kVectors; ++j) {
      values[j] = FinishValue<kFinish>(d, values[j], constants);
    }
    StoreStep(Layout(), d, values, bypass_cache, sink.out + i * Type::kSize);
    if constexpr (kResultsRest) {
      resting.Exchange(d, i / kStep, values, norm);
    } else {
      AddStepSquares(d, values, norm);
    }
  }
  if constexpr (kResultsRest) resting.Drain(count / kStep, norm);
  norm.StoreTo(sink.norm_lanes);
  // Squares of f64 may overflow by themselves: a false alarm, which costs time only.
  const bool finite_results = norm.AllBelow(std::numeric_limits<double>::infinity());
  if (!finite_terms.AllFinite(d) || !finite_results) watch->redo = true;
}

// The common cases, in which no term is scaled or none has a wire scale, have loops of their own.
template <class Type, class Op, Finish kFinish>
void ReduceAsScaled(const FoldTerm* terms, size_t term_count, const typename Type::A* before,
                    double constant, size_t count, const Sink& sink, Watch* watch) {
  bool has_factor = false;
  bool has_wire_scale = false;
  for (size_t k = 0; k < term_count; ++k) {
    has_factor = has_factor || terms[k].factor != 1.0;
    has_wire_scale = has_wire_scale || terms[k].unscale_f32 != 1.0f;
  }
  auto* loop = ReduceLoop<Type, Op, kFinish, Scaling::kNone>;
  if (has_factor) loop = ReduceLoop<Type, Op, kFinish, Scaling::kFactor>;
  if constexpr (Type::kSize == 2) {
    if (has_wire_scale) loop = ReduceLoop<Type, Op, kFinish, Scaling::kWireAndFactor>;
  }
  loop(terms, term_count, before, constant, count, sink, watch);
}

// Whether division by `divisor` and multiplication by its reciprocal, both rounded to A, are the
// same on every value: a power of two that has a reciprocal in the normal range.
template <class A>
bool DividesLikeReciprocal(double divisor) {
  int exponent;
  return std::frexp(divisor, &exponent) == 0.5 && exponent > std::numeric_limits<A>::min_exponent &&
         -exponent > std::numeric_limits<A>::min_exponent;
}

template <class Type, class Op>
void Reduce(const FoldTerm* terms, size_t term_count, const void* before_data, Finish finish,
            double constant, size_t count, const Sink& sink, Watch* watch) {
  const auto* before = static_cast<const typename Type::A*>(before_data);
  if (finish == Finish::kDivide && DividesLikeReciprocal<typename Type::A>(constant)) {
    finish = Finish::kMultiply;
    constant = 1.0 / constant;
  }
  const auto reduce = [&](auto loop) {
    loop(terms, term_count, before, constant, count, sink, watch);
  };
  if constexpr (std::is_same_v<Op, AddOp>) {  // Only averages, which are sums, divide.
    if (finish == Finish::kDivide) return reduce(ReduceAsScaled<Type, Op, Finish::kDivide>);
    if (finish == Finish::kNone) return reduce(ReduceAsScaled<Type, Op, Finish::kNone>);
  }
  // The constant of kNone is 1, which changes nothing.
  reduce(ReduceAsScaled<Type, Op, Finish::kMultiply>);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_REDUCE_INL_H_
