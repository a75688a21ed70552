// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// From the contributions to the result in one loop, for integers: a cache line of each stream at a
// time, in lanes as narrow as the arithmetic allows instead of int64. The loop is right as long as
// no lane overflows, and reports it if one does; the piece is then done again in steps, in int64,
// which counts the wraps. The wraps of u8, whose sums and products seldom fit, are counted here.
// Included once per instruction set.

#if defined(BASIN_KERNELS_CPU_INTEGER_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASIN_KERNELS_CPU_INTEGER_REDUCE_INL_H_
#undef BASIN_KERNELS_CPU_INTEGER_REDUCE_INL_H_
#else
#define BASIN_KERNELS_CPU_INTEGER_REDUCE_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "kernels/cpu/float-inl.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace basin::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- How a line lies in vectors ----------------------------------------------------------------

constexpr size_t kLineBytes = 64;

// Each element in a lane of its own type.
template <class T>
struct OwnLanes {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr size_t kVectors = kLineBytes / sizeof(T) / hn::MaxLanes(D());

  static HWY_INLINE void Load(const unsigned char* data, V (&x)[kVectors]) {
    const D d;
    const auto* from = reinterpret_cast<const T*>(data);
    for (size_t j = 0; j < kVectors; ++j) x[j] = hn::LoadU(d, from + j * hn::MaxLanes(d));
  }
  static HWY_INLINE void Store(const V (&x)[kVectors], bool bypass_cache, unsigned char* out) {
    const D d;
    auto* to = reinterpret_cast<T*>(out);
    for (size_t j = 0; j < kVectors; ++j) {
      StoreOrStream(x[j], d, bypass_cache, to + j * hn::MaxLanes(d));
    }
  }
};

// u8 in lanes of u16: the elements at even places in one vector, their odd neighbours in the next.
// What a lane holds beyond 8 bits is lost on the way out.
struct PairedU8 {
  using D = hn::ScalableTag<uint16_t>;
  using V = hn::Vec<D>;
  static constexpr size_t kVectors = 2 * kLineBytes / sizeof(uint16_t) / hn::MaxLanes(D());

  static HWY_INLINE void Load(const unsigned char* data, V (&x)[kVectors]) {
    const D d;
    const auto* from = reinterpret_cast<const uint16_t*>(data);
    for (size_t j = 0; j < kVectors; j += 2) {
      const V pairs = hn::LoadU(d, from + j / 2 * hn::MaxLanes(d));
      x[j] = hn::And(pairs, hn::Set(d, uint16_t{0xff}));
      x[j + 1] = hn::ShiftRight<8>(pairs);
    }
  }
  static HWY_INLINE void Store(const V (&x)[kVectors], bool bypass_cache, unsigned char* out) {
    const D d;
    auto* to = reinterpret_cast<uint16_t*>(out);
    for (size_t j = 0; j < kVectors; j += 2) {
      const V even = hn::And(x[j], hn::Set(d, uint16_t{0xff}));
      StoreOrStream(hn::Or(even, hn::ShiftLeft<8>(x[j + 1])), d, bypass_cache,
                    to + j / 2 * hn::MaxLanes(d));
    }
  }
};

// ---- Operations --------------------------------------------------------------------------------
// Each combines lanes, counts the wraps, and reports whether lanes and count are exact.

template <class T, bool kMin>
class IntegerExtreme {
 public:
  using Layout = OwnLanes<T>;
  using V = typename Layout::V;

  HWY_INLINE explicit IntegerExtreme(size_t /*term_count*/) {}
  HWY_INLINE void Start(const V (&)[Layout::kVectors]) {}
  HWY_INLINE void Step(const V (&x)[Layout::kVectors], V (&acc)[Layout::kVectors]) {
    for (size_t j = 0; j < Layout::kVectors; ++j) {
      acc[j] = kMin ? hn::Min(acc[j], x[j]) : hn::Max(acc[j], x[j]);
    }
  }
  HWY_INLINE void End(const V (&)[Layout::kVectors]) {}
  HWY_INLINE bool IsExact() const { return true; }
  HWY_INLINE uint64_t Wraps() const { return 0; }
};

// Sums of signed integers.
template <class T>
class IntegerSum {
 public:
  using Layout = OwnLanes<T>;
  using D = typename Layout::D;
  using V = typename Layout::V;

  HWY_INLINE explicit IntegerSum(size_t /*term_count*/) : wrapped_(hn::Zero(D())) {}
  HWY_INLINE void Start(const V (&)[Layout::kVectors]) {}
  HWY_INLINE void Step(const V (&x)[Layout::kVectors], V (&acc)[Layout::kVectors]) {
    for (size_t j = 0; j < Layout::kVectors; ++j) {
      const V sum = hn::Add(acc[j], x[j]);
      // It wrapped if both operands have the sign that the sum has not.
      wrapped_ = hn::Or(wrapped_, hn::And(hn::Xor(acc[j], sum), hn::Xor(x[j], sum)));
      acc[j] = sum;
    }
  }
  HWY_INLINE void End(const V (&)[Layout::kVectors]) {}
  HWY_INLINE bool IsExact() const {
    const D d;
    return hn::AllFalse(d, hn::Lt(wrapped_, hn::Zero(d)));
  }
  HWY_INLINE uint64_t Wraps() const { return 0; }

 private:
  V wrapped_;  // Negative where a sum wrapped.
};

// Products of signed integers. A product of the same factors in floating point, each converted and
// each multiplication rounded, is off by less than 2 kMaxTerms roundings: 2^-19 of its size in f32,
// much less in f64. So as long as all of them stay below the lane's limit by 2^-18, none wrapped.
template <class T>
class IntegerProduct {
 public:
  using Layout = OwnLanes<T>;
  using D = typename Layout::D;
  using V = typename Layout::V;
  using DF = hn::RebindToFloat<D>;
  static_assert(kMaxTerms <= 16);

  HWY_INLINE explicit IntegerProduct(size_t /*term_count*/) : greatest_(hn::Zero(D())) {}
  HWY_INLINE void Start(const V (&x)[Layout::kVectors]) {
    for (size_t j = 0; j < Layout::kVectors; ++j) approximate_[j] = hn::ConvertTo(DF(), x[j]);
  }
  HWY_INLINE void Step(const V (&x)[Layout::kVectors], V (&acc)[Layout::kVectors]) {
    for (size_t j = 0; j < Layout::kVectors; ++j) {
      acc[j] = hn::Mul(acc[j], x[j]);
      approximate_[j] = hn::Mul(approximate_[j], hn::ConvertTo(DF(), x[j]));
      greatest_ = hn::Max(greatest_, Magnitude(DF(), approximate_[j]));
    }
  }
  HWY_INLINE void End(const V (&)[Layout::kVectors]) {}
  HWY_INLINE bool IsExact() const {
    using F = hn::TFromD<DF>;
    constexpr F kTwoTo16 = 65536;
    constexpr F kLimit = (sizeof(T) == 4 ? kTwoTo16 : kTwoTo16 * kTwoTo16 * kTwoTo16) * 32768;
    const D d;
    const V limit = hn::BitCast(d, hn::Set(DF(), kLimit - kLimit / (4 * kTwoTo16)));
    return hn::AllTrue(d, hn::Lt(greatest_, limit));
  }
  HWY_INLINE uint64_t Wraps() const { return 0; }

 private:
  hn::Vec<DF> approximate_[Layout::kVectors];
  V greatest_;  // Bits of the greatest magnitude; they order as the magnitudes do.
};

// Counts values of u16 that do not fit u8.
class LostBits {
 public:
  using D = PairedU8::D;
  using V = PairedU8::V;
  static_assert(kMaxReduceElements <= 0xffff, "or a lane could wrap");

  HWY_INLINE LostBits() : counts_(hn::Zero(D())) {}
  HWY_INLINE void Add(const V (&values)[PairedU8::kVectors]) {
    for (const V& value : values) {
      counts_ = hn::Add(counts_, hn::Min(hn::ShiftRight<8>(value), hn::Set(D(), uint16_t{1})));
    }
  }
  HWY_INLINE uint64_t Sum() const {
    const D d;
    uint16_t lanes[hn::MaxLanes(d)];
    hn::StoreU(counts_, d, lanes);
    uint64_t sum = 0;
    for (const uint16_t lane : lanes) sum += lane;
    return sum;
  }

 private:
  V counts_;
};

// Sums of u8, which u16 holds.
class U8Sum {
 public:
  using Layout = PairedU8;
  using V = Layout::V;
  static_assert(kMaxTerms * 0xff <= 0xffff);

  HWY_INLINE explicit U8Sum(size_t /*term_count*/) {}
  HWY_INLINE void Start(const V (&)[Layout::kVectors]) {}
  HWY_INLINE void Step(const V (&x)[Layout::kVectors], V (&acc)[Layout::kVectors]) {
    for (size_t j = 0; j < Layout::kVectors; ++j) acc[j] = hn::Add(acc[j], x[j]);
  }
  HWY_INLINE void End(const V (&acc)[Layout::kVectors]) { wraps_.Add(acc); }
  HWY_INLINE bool IsExact() const { return true; }
  HWY_INLINE uint64_t Wraps() const { return wraps_.Sum(); }

 private:
  LostBits wraps_;
};

// Products of u8. The low bits of a product are accompanied by its value up to 256, which stands
// for all that do not fit u8: times 0 it fits again, times anything else it does not.
class U8Product {
 public:
  using Layout = PairedU8;
  using D = Layout::D;
  using V = Layout::V;

  HWY_INLINE explicit U8Product(size_t term_count)
      : fits_int64_(term_count <= 7), greatest_(hn::Zero(D())) {}
  HWY_INLINE void Start(const V (&x)[Layout::kVectors]) {
    for (size_t j = 0; j < Layout::kVectors; ++j) value_[j] = x[j];
  }
  HWY_INLINE void Step(const V (&x)[Layout::kVectors], V (&acc)[Layout::kVectors]) {
    for (size_t j = 0; j < Layout::kVectors; ++j) {
      acc[j] = hn::Mul(acc[j], x[j]);
      value_[j] = hn::Min(hn::Mul(value_[j], x[j]), hn::Set(D(), uint16_t{256}));
      greatest_ = hn::Max(greatest_, value_[j]);
    }
  }
  HWY_INLINE void End(const V (&)[Layout::kVectors]) { wraps_.Add(value_); }
  // More factors may wrap int64, unless they stay small.
  HWY_INLINE bool IsExact() const {
    const D d;
    return fits_int64_ || hn::AllTrue(d, hn::Eq(hn::ShiftRight<8>(greatest_), hn::Zero(d)));
  }
  HWY_INLINE uint64_t Wraps() const { return wraps_.Sum(); }

 private:
  const bool fits_int64_;
  V value_[Layout::kVectors];
  V greatest_;
  LostBits wraps_;
};

// ---- The loop ----------------------------------------------------------------------------------

// A ReduceFunction. REQUIRES: `before` is null; integers have no earlier groups here.
template <class T, class Op>
void ReduceInteger(const FoldTerm* HWY_RESTRICT terms, size_t term_count, const void* /*before*/,
                   Finish /*finish*/, double /*constant*/, size_t count, const Sink& sink,
                   Watch* watch) {
  using Layout = typename Op::Layout;
  using V = typename Layout::V;
  const bool bypass_cache = sink.bypass_cache;
  Op op(term_count);
  for (size_t at = 0; at < count * sizeof(T); at += kLineBytes) {
    V acc[Layout::kVectors];
    Layout::Load(terms[0].data + at, acc);
    op.Start(acc);
    for (size_t k = 1; k < term_count; ++k) {
      V x[Layout::kVectors];
      Layout::Load(terms[k].data + at, x);
      op.Step(x, acc);
    }
    op.End(acc);
    Layout::Store(acc, bypass_cache, sink.out + at);
  }
  watch->integer_wraps += op.Wraps();
  if (!op.IsExact()) watch->redo = true;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_INTEGER_REDUCE_INL_H_
