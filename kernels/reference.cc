// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Read this beside the definition in plan.h. It relies on IEEE 754 arithmetic in float and double,
// compiled without contraction of a multiplication and an addition into one (-ffp-contract=off).

#include "kernels/reference.h"

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/float16.h"
#include "kernels/float_environment.h"

namespace basin::kernels {
namespace {

static_assert(FLT_EVAL_METHOD == 0, "float expressions must be evaluated in float");
static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559);

template <typename T>
T ValueAt(const void* data, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const unsigned char*>(data) + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void SetValueAt(void* data, size_t index, T value) {
  std::memcpy(static_cast<unsigned char*>(data) + index * sizeof(T), &value, sizeof(T));
}

template <typename A>
bool IsFinite(A value) {
  if constexpr (std::is_integral_v<A>) {
    return true;
  } else {
    return std::isfinite(value);
  }
}

// x_i: the element as it was sent, in the accumulator type. Exact for every pair a plan allows.
template <typename A>
A Widen(DType wire_dtype, const void* data, size_t index) {
  switch (wire_dtype) {
    case DType::kF64:
      return static_cast<A>(ValueAt<double>(data, index));
    case DType::kF32:
      return static_cast<A>(ValueAt<float>(data, index));
    case DType::kF16:
      return static_cast<A>(WidenF16(ValueAt<uint16_t>(data, index)));
    case DType::kBF16:
      return static_cast<A>(WidenBF16(ValueAt<uint16_t>(data, index)));
    case DType::kI64:
      return static_cast<A>(ValueAt<int64_t>(data, index));
    case DType::kI32:
      return static_cast<A>(ValueAt<int32_t>(data, index));
    default:
      return static_cast<A>(ValueAt<uint8_t>(data, index));
  }
}

// p_i = RN_A(RN_A(x_i * 2^-e_i) * c_i). Integers have no scale but 1.
template <typename A>
A Scale(A x, const Term& term) {
  if constexpr (std::is_integral_v<A>) {
    return x;
  } else {
    const A v = x * static_cast<A>(term.unscale);
    return v * static_cast<A>(term.factor);
  }
}

// MIN and MAX of floats: NaN wins over numbers and -0 < +0.
template <typename A>
A Lesser(A a, A b) {
  if constexpr (!std::is_integral_v<A>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}

template <typename A>
A Greater(A a, A b) {
  if constexpr (!std::is_integral_v<A>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a > b ? a : b;
}

// The next acc. Integer sums and products wrap, which is counted.
template <typename A>
A CombineStep(Combine combine, A acc, A p, Facts* facts) {
  switch (combine) {
    case Combine::kMin:
      return Lesser(acc, p);
    case Combine::kMax:
      return Greater(acc, p);
    case Combine::kAdd:
      if constexpr (std::is_integral_v<A>) {
        A sum;
        if (__builtin_add_overflow(acc, p, &sum)) ++facts->integer_wraps;
        return sum;
      } else {
        return acc + p;
      }
    case Combine::kMultiply:
      if constexpr (std::is_integral_v<A>) {
        A product;
        if (__builtin_mul_overflow(acc, p, &product)) ++facts->integer_wraps;
        return product;
      } else {
        return acc * p;
      }
  }
  return acc;
}

// One contribution's bytes of a span in one piece.
struct Column {
  const Term* term;
  std::vector<unsigned char> bytes;
};

// One for each term of the plan, in its order.
std::vector<Column> Gather(const ReductionPlan& plan, const Input* inputs) {
  std::vector<Column> columns;
  for (const Term& term : plan.terms()) {
    Column column{&term, {}};
    const Input& input = inputs[term.contribution];
    for (size_t i = 0; i < input.slice_count; ++i) {
      const auto* data = static_cast<const unsigned char*>(input.slices[i].data);
      column.bytes.insert(column.bytes.end(), data, data + input.slices[i].size);
    }
    columns.push_back(std::move(column));
  }
  return columns;
}

// acc after all terms, for element `index` of the span, which begins at element `first`.
template <typename A>
A FoldElement(Combine combine, const std::vector<Column>& columns, size_t index, uint64_t first,
              Facts* facts) {
  A acc = {};
  bool started = false;  // acc is nothing before the first term.
  for (const Column& column : columns) {
    const A x = Widen<A>(column.term->wire_dtype, column.bytes.data(), index);
    const A p = Scale(x, *column.term);
    const A next = started ? CombineStep(combine, acc, p, facts) : p;
    if (!IsFinite(x)) {
      Facts seen;
      seen.first_non_finite_input = NonFiniteInput{column.term->contribution, first + index};
      facts->Merge(seen);
    } else if ((!started || IsFinite(acc)) && !IsFinite(next)) {
      ++facts->overflows;
    }
    acc = next;
    started = true;
  }
  return acc;
}

// y
template <typename A>
A FinishElement(const ReductionPlan& plan, A acc) {
  if constexpr (std::is_integral_v<A>) {
    return acc;
  } else {
    const A constant = static_cast<A>(plan.finish_constant());
    switch (plan.finish()) {
      case Finish::kNone:
        return acc;
      case Finish::kMultiply:
        return acc * constant;
      case Finish::kDivide:
        return acc / constant;
    }
    return acc;
  }
}

// Stores out and returns it in f64, which holds every float type exactly; *narrowed tells whether
// an integer lost bits.
template <typename A>
double StoreElement(DType result_dtype, A y, void* data, size_t index, bool* narrowed) {
  *narrowed = false;
  switch (result_dtype) {
    case DType::kF64: {
      const double out = static_cast<double>(y);
      if (std::isnan(out)) {
        SetValueAt(data, index, kCanonicalNanF64);
      } else {
        SetValueAt(data, index, out);
      }
      return out;
    }
    case DType::kF32: {
      const float out = static_cast<float>(y);
      if (std::isnan(out)) {
        SetValueAt(data, index, kCanonicalNanF32);
      } else {
        SetValueAt(data, index, out);
      }
      return out;
    }
    case DType::kF16: {
      const uint16_t out = NarrowToF16(static_cast<float>(y));
      SetValueAt(data, index, out);
      return WidenF16(out);
    }
    case DType::kBF16: {
      const uint16_t out = NarrowToBF16(static_cast<float>(y));
      SetValueAt(data, index, out);
      return WidenBF16(out);
    }
    case DType::kI64:
      SetValueAt(data, index, static_cast<int64_t>(y));
      return 0;
    case DType::kI32:
      SetValueAt(data, index, static_cast<int32_t>(y));
      *narrowed = static_cast<A>(static_cast<int32_t>(y)) != y;
      return 0;
    default:
      SetValueAt(data, index, static_cast<uint8_t>(y));
      *narrowed = static_cast<A>(static_cast<uint8_t>(y)) != y;
      return 0;
  }
}

// The leaf sums of facts.h, fed element by element.
class NormLeafSums {
 public:
  explicit NormLeafSums(double* leaves) : leaves_(leaves) {}

  void Add(size_t index, double out) {
    const double square = out * out;
    lanes_[index % kNormLanes] = lanes_[index % kNormLanes] + square;
    if ((index + 1) % kNormLeafElements == 0) Close(index / kNormLeafElements);
  }

  // Closes the last leaf of a span of `count` elements if it is a short one.
  void End(size_t count) {
    if (count % kNormLeafElements != 0) Close(count / kNormLeafElements);
  }

 private:
  void Close(size_t leaf) {
    for (size_t half = kNormLanes / 2; half > 0; half /= 2) {
      for (size_t l = 0; l < half; ++l) lanes_[l] = lanes_[l] + lanes_[l + half];
    }
    if (std::isnan(lanes_[0])) {
      SetValueAt(leaves_, leaf, kCanonicalNanF64);
    } else {
      leaves_[leaf] = lanes_[0];
    }
    for (double& lane : lanes_) lane = 0.0;
  }

  double* leaves_;
  double lanes_[kNormLanes] = {};
};

template <typename A>
void ReduceSpan(const ReductionPlan& plan, const Input* inputs, const Span& span,
                const Output& output, Facts* facts) {
  const DType result_dtype = plan.spec().result_dtype;
  const std::vector<Column> columns = Gather(plan, inputs);
  const bool with_norm = output.norm_leaves != nullptr && !std::is_integral_v<A>;
  NormLeafSums norm(output.norm_leaves);
  for (size_t i = 0; i < span.count; ++i) {
    const A acc = FoldElement<A>(plan.combine(), columns, i, span.first, facts);
    const A y = FinishElement(plan, acc);
    bool narrowed = false;
    const double out = StoreElement(result_dtype, y, output.data, i, &narrowed);
    if (narrowed) ++facts->integer_wraps;
    if (IsFinite(acc) && !std::isfinite(out)) ++facts->overflows;
    if (with_norm) norm.Add(i, out);
  }
  if (with_norm) norm.End(span.count);
}

class ReferenceReducer final : public Reducer {
 public:
  std::string_view name() const override { return "reference"; }

  std::optional<Failure> Reduce(const ReductionPlan& plan, const Input* inputs, const Span& span,
                                const Output& output, Facts* facts) const override {
    const ScopedFloatEnvironment environment;
    switch (plan.accumulator_dtype()) {
      case DType::kF32:
        ReduceSpan<float>(plan, inputs, span, output, facts);
        break;
      case DType::kF64:
        ReduceSpan<double>(plan, inputs, span, output, facts);
        break;
      default:
        ReduceSpan<int64_t>(plan, inputs, span, output, facts);
    }
    return std::nullopt;
  }
};

}  // namespace

double ReferenceSquaredNorm(DType dtype, const void* data, size_t count) {
  if (!IsFloatingPoint(dtype)) return 0;
  const ScopedFloatEnvironment environment;
  std::vector<double> leaves(NormLeaves(count));
  NormLeafSums sums(leaves.data());
  for (size_t i = 0; i < count; ++i) sums.Add(i, Widen<double>(dtype, data, i));
  sums.End(count);
  return SquaredNorm(leaves.data(), leaves.size());
}

std::unique_ptr<Reducer> MakeReferenceReducer() { return std::make_unique<ReferenceReducer>(); }

}  // namespace basin::kernels
