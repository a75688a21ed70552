// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Vectors of floating-point values between memory and accumulator: widening loads, the single
// rounding on the way out, and the tests on bit patterns. Included once per instruction set.
//
// Highway's own f16 and bf16 conversions are used only where they are the processor's (F16C): the
// emulated ones truncate, and lose infinities and signs of zero.

#if defined(BASIN_KERNELS_CPU_FLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASIN_KERNELS_CPU_FLOAT_INL_H_
#undef BASIN_KERNELS_CPU_FLOAT_INL_H_
#else
#define BASIN_KERNELS_CPU_FLOAT_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/float16.h"
#include "kernels/plan.h"

HWY_BEFORE_NAMESPACE();
namespace basin::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef BASIN_HAVE_F16C
// x86 has F16C wherever Highway's AVX2 target runs. Better targets have smaller numbers.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define BASIN_HAVE_F16C 1
#else
#define BASIN_HAVE_F16C 0
#endif

// ---- Bit patterns of a float vector: f32 in i32, f64 in i64 ------------------------------------

template <class D>
using SignedOf = hn::RebindToSigned<D>;

template <class D>
struct Bits;  // Constants of a float type.

template <>
struct Bits<float> {
  static constexpr int32_t kMagnitude = 0x7fffffff;
  static constexpr int32_t kInfinity = 0x7f800000;
  static constexpr int32_t kCanonicalNan = kCanonicalNanF32;
};

template <>
struct Bits<double> {
  static constexpr int64_t kMagnitude = 0x7fffffffffffffff;
  static constexpr int64_t kInfinity = 0x7ff0000000000000;
  static constexpr int64_t kCanonicalNan = kCanonicalNanF64;
};

// The magnitude's bits: they order as the magnitudes do, with NaN above infinity.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<SignedOf<D>> Magnitude(D, V v) {
  const SignedOf<D> di;
  return hn::And(hn::BitCast(di, v), hn::Set(di, Bits<hn::TFromD<D>>::kMagnitude));
}

// Lanes below `limit`, which is a magnitude's bits.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Mask<SignedOf<D>> IsBelow(D d, V v, hn::TFromD<SignedOf<D>> limit) {
  const SignedOf<D> di;
  return hn::Lt(Magnitude(d, v), hn::Set(di, limit));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Mask<SignedOf<D>> IsFiniteMask(D d, V v) {
  return IsBelow(d, v, Bits<hn::TFromD<D>>::kInfinity);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V CanonicalizeNan(D d, V v) {
  const SignedOf<D> di;
  const V nan = hn::BitCast(d, hn::Set(di, Bits<hn::TFromD<D>>::kCanonicalNan));
  return hn::IfThenElse(hn::IsNaN(v), nan, v);
}

// ---- Watching for values that are not finite ---------------------------------------------------

// Remembers whether any vector that it saw had an infinity or a NaN: 0 times those is NaN, 0 times
// anything else is 0. (A fused operation is welcome here, because nothing is rounded.) Neighbours
// go to separate sums, so that none waits for the one before.
template <class D>
class FiniteWatch {
 public:
  HWY_INLINE explicit FiniteWatch(D d) : even_(hn::Zero(d)), odd_(hn::Zero(d)) {}
  HWY_INLINE void See(D d, size_t index, hn::Vec<D> v) {
    hn::Vec<D>& sum = index % 2 == 0 ? even_ : odd_;
    sum = hn::MulAdd(v, hn::Zero(d), sum);
  }
  HWY_INLINE bool AllFinite(D d) const {
    return hn::AllTrue(d, hn::Eq(hn::Add(even_, odd_), hn::Zero(d)));
  }

 private:
  hn::Vec<D> even_;
  hn::Vec<D> odd_;
};

// ---- 16-bit floats, as bit patterns in u16 vectors of as many lanes -----------------------------

template <class D>
using Bits16Of = hn::Rebind<uint16_t, D>;

template <class D, class V16 = hn::Vec<Bits16Of<D>>>
HWY_INLINE hn::Vec<D> WidenBF16(D d, V16 bits) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), bits)));
}

// Like NarrowToBF16Bits; a NaN must be canonical already.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<Bits16Of<D>> NarrowBF16(D, V v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto last_kept = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(hn::Set(du, 0x7fffu), last_kept));
  return hn::DemoteTo(Bits16Of<D>(), hn::BitCast(SignedOf<D>(), hn::ShiftRight<16>(rounded)));
}

#if BASIN_HAVE_F16C

template <class D, class V16 = hn::Vec<Bits16Of<D>>>
HWY_INLINE hn::Vec<D> WidenF16(D d, V16 bits) {
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<Bits16Of<D>> NarrowF16(D, V v) {
  return hn::BitCast(Bits16Of<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
}

#else

// Like WidenF16Bits, without branches. A subnormal m * 2^-24 is (1 + m / 1024) * 2^-14 less 2^-14,
// and the subtraction is exact.
template <class D, class V16 = hn::Vec<Bits16Of<D>>>
HWY_INLINE hn::Vec<D> WidenF16(D d, V16 narrow) {
  const SignedOf<D> di;
  const auto bits = hn::BitCast(di, hn::PromoteTo(hn::RebindToUnsigned<D>(), narrow));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(di, 0x8000)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(di, 0x7fff)));
  const auto normal = hn::Add(magnitude, hn::Set(di, (127 - 15) << 23));
  const auto infinite_or_nan = hn::Or(magnitude, hn::Set(di, 0x7f800000));
  const auto two_to_minus_14 = hn::Set(di, 0x38800000);
  const auto subnormal = hn::BitCast(di, hn::Sub(hn::BitCast(d, hn::Or(magnitude, two_to_minus_14)),
                                                 hn::BitCast(d, two_to_minus_14)));
  const auto is_subnormal = hn::Lt(magnitude, hn::Set(di, 1 << 23));
  const auto is_finite = hn::Lt(magnitude, hn::Set(di, 0x1f << 23));
  const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
  const auto widened = hn::IfThenElse(is_finite, finite, infinite_or_nan);
  return hn::BitCast(d, hn::Or(sign, widened));
}

// Like NarrowToF16Bits, without branches; a NaN must be canonical already. A subnormal result is
// rounded by adding 0.5, whose last place is 2^-24.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<Bits16Of<D>> NarrowF16(D d, V v) {
  const SignedOf<D> di;
  const auto bits = hn::BitCast(di, v);
  const auto magnitude = Magnitude(d, v);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
  const auto half = hn::Set(di, 0x3f000000);
  const auto subnormal =
      hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half))), half);
  const auto last_kept = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
  const auto rebiased = hn::Sub(magnitude, hn::Set(di, (127 - 15) << 23));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(rebiased, hn::Set(di, 0xfff)), last_kept));
  // From 65520 on: infinity.
  const auto large = hn::Set(di, 0x7c00);
  const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), subnormal, normal);
  const auto number = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x477ff000)), finite, large);
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, 0x7f800000));
  const auto narrow = hn::IfThenElse(is_nan, hn::Set(di, kCanonicalNanF16), number);
  return hn::DemoteTo(Bits16Of<D>(), hn::Or(sign, narrow));
}

#endif  // BASIN_HAVE_F16C

// ---- Element types -----------------------------------------------------------------------------
// For each: the type A of its accumulator, the exact widening to A and the single rounding from it
// (of values whose NaN are canonical), and the least magnitude that is rounded to infinity.

template <class T>
struct WideType {
  using A = T;
  static constexpr size_t kSize = sizeof(T);
  static constexpr auto kOverflow = Bits<T>::kInfinity;
  template <class D>
  using NarrowTag = D;
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Widen(D, V v) {
    return v;
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Narrow(D, V v) {
    return v;
  }
};

using TypeF64 = WideType<double>;
using TypeF32 = WideType<float>;

struct TypeF16 {
  using A = float;
  static constexpr size_t kSize = 2;
  static constexpr int32_t kOverflow = 0x477ff000;  // 65520: halfway from 65504 to 65536, to even.
  template <class D>
  using NarrowTag = Bits16Of<D>;
  template <class D, class V16 = hn::Vec<Bits16Of<D>>>
  static HWY_INLINE hn::Vec<D> Widen(D d, V16 bits) {
    return WidenF16(d, bits);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE hn::Vec<Bits16Of<D>> Narrow(D d, V v) {
    return NarrowF16(d, v);
  }
};

struct TypeBF16 {
  using A = float;
  static constexpr size_t kSize = 2;
  static constexpr int32_t kOverflow = 0x7f7f8000;  // Halfway from the largest bf16 to infinity.
  template <class D>
  using NarrowTag = Bits16Of<D>;
  template <class D, class V16 = hn::Vec<Bits16Of<D>>>
  static HWY_INLINE hn::Vec<D> Widen(D d, V16 bits) {
    return WidenBF16(d, bits);
  }
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE hn::Vec<Bits16Of<D>> Narrow(D d, V v) {
    return NarrowBF16(d, v);
  }
};

// Loads one element for each lane of D, from any address, widened.
template <class Type, class D>
HWY_INLINE hn::Vec<D> LoadWide(D d, const unsigned char* data) {
  const typename Type::template NarrowTag<D> d_narrow;
  using T = hn::TFromD<decltype(d_narrow)>;
  return Type::Widen(d, hn::LoadU(d_narrow, reinterpret_cast<const T*>(data)));
}

// ---- Layouts -----------------------------------------------------------------------------------
// How the elements of one step are spread over vectors of accumulators: vector j holds, from its
// first lane on, the elements (j / kStride) * kStride * lanes + j % kStride + kStride * lane.

// In order.
template <class Type_>
struct Natural {
  using Type = Type_;
  static constexpr size_t kStride = 1;

  template <class D, size_t kVectors, class V = hn::Vec<D>>
  static HWY_INLINE void Load(D d, const unsigned char* data, V (&x)[kVectors]) {
    for (size_t j = 0; j < kVectors; ++j) {
      x[j] = LoadWide<Type>(d, data + j * hn::MaxLanes(d) * Type::kSize);
    }
  }
  template <class D, size_t kVectors, class V = hn::Vec<D>>
  static HWY_INLINE void LoadAccumulators(D d, const typename Type::A* acc, V (&x)[kVectors]) {
    for (size_t j = 0; j < kVectors; ++j) x[j] = hn::LoadU(d, acc + j * hn::MaxLanes(d));
  }
};

// bf16 in pairs: the elements at even places in one vector, their odd neighbours in the next. An
// f32 is then one operation away from a pair of bf16, in either direction.
struct PairedBF16 {
  using Type = TypeBF16;
  static constexpr size_t kStride = 2;

  template <class D, size_t kVectors, class V = hn::Vec<D>>
  static HWY_INLINE void Load(D d, const unsigned char* data, V (&x)[kVectors]) {
    const hn::RebindToUnsigned<D> du;
    const auto odd_half = hn::Set(du, 0xffff0000u);
    for (size_t j = 0; j < kVectors; j += 2) {
      const auto* from = reinterpret_cast<const uint32_t*>(data + j * hn::MaxLanes(d) * 2);
      const auto pairs = hn::LoadU(du, from);
      x[j] = hn::BitCast(d, hn::ShiftLeft<16>(pairs));
      x[j + 1] = hn::BitCast(d, hn::And(pairs, odd_half));
    }
  }
  template <class D, size_t kVectors, class V = hn::Vec<D>>
  static HWY_INLINE void LoadAccumulators(D d, const float* acc, V (&x)[kVectors]) {
    for (size_t j = 0; j < kVectors; j += 2) {
      const V low = hn::LoadU(d, acc + j * hn::MaxLanes(d));
      const V high = hn::LoadU(d, acc + (j + 1) * hn::MaxLanes(d));
#if HWY_TARGET == HWY_SCALAR
      x[j] = low;
      x[j + 1] = high;
#else
      x[j] = hn::ConcatEven(d, high, low);
      x[j + 1] = hn::ConcatOdd(d, high, low);
#endif
    }
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_FLOAT_INL_H_
