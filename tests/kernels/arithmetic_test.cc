// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The promises of the canonical reduction, on the reference and on every CPU target.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_reducer.h"
#include "kernels/float16.h"
#include "kernels/reference.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace basin::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// An f16 or bf16 element.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
F16 ToF16(float value) { return F16{NarrowToF16(value)}; }

template <typename T>
constexpr DType kDTypeOf = DType::kUnspecified;
template <>
constexpr DType kDTypeOf<double> = DType::kF64;
template <>
constexpr DType kDTypeOf<float> = DType::kF32;
template <>
constexpr DType kDTypeOf<F16> = DType::kF16;
template <>
constexpr DType kDTypeOf<BF16> = DType::kBF16;
template <>
constexpr DType kDTypeOf<int64_t> = DType::kI64;
template <>
constexpr DType kDTypeOf<int32_t> = DType::kI32;
template <>
constexpr DType kDTypeOf<uint8_t> = DType::kU8;

template <typename T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

// A reduction under test: the contributions' values and the spec to reduce them by.
template <typename T, typename R = T>
struct Reduction {
  explicit Reduction(ReduceOp op, std::vector<std::vector<T>> values)
      : contributions(std::move(values)) {
    spec.op = op;
    spec.tensor_dtype = kDTypeOf<T>;
    spec.result_dtype = kDTypeOf<R>;
    spec.contributions.resize(contributions.size());
    for (Contribution& contribution : spec.contributions) contribution.wire_dtype = kDTypeOf<T>;
    SetDivisor(DivisorPolicy::kAll);
  }

  void SetDivisor(DivisorPolicy policy) {
    spec.divisor = Divisor(spec.op, policy, spec.contributions).value();
  }

  std::vector<R> Run(const Reducer& reducer, Facts* facts = nullptr) const {
    Result<ReductionPlan> plan = ReductionPlan::Make(spec);
    if (!plan.ok()) {
      ADD_FAILURE() << plan.failure().message;
      return {};
    }
    EXPECT_EQ(plan.value().outcome(), PlanOutcome::kReduce);
    const size_t count = contributions[0].size();
    std::vector<Slice> slices;
    slices.reserve(contributions.size());
    for (const auto& values : contributions) {
      slices.push_back(Slice{values.data(), values.size() * sizeof(T)});
    }
    std::vector<Input> inputs;
    inputs.reserve(slices.size());
    for (const Slice& slice : slices) inputs.push_back(Input{&slice, 1});
    std::vector<R> result(count);
    Facts seen;
    const auto failure = reducer.Reduce(plan.value(), inputs.data(), Span{0, count},
                                        Output{result.data(), nullptr}, &seen);
    EXPECT_FALSE(failure.has_value());
    if (facts != nullptr) *facts = seen;
    return result;
  }

  std::vector<std::vector<T>> contributions;
  ReductionSpec spec;
};

// Runs each test on the backend of its parameter.
class ArithmeticTest : public testing::TestWithParam<std::string> {
 protected:
  ArithmeticTest()
      : owned_(GetParam() == "reference" ? MakeReferenceReducer() : MakeCpuReducer(GetParam())),
        reducer_(*owned_) {}

 private:
  const std::unique_ptr<Reducer> owned_;

 protected:
  const Reducer& reducer_;
};

std::vector<std::string> Backends() {
  std::vector<std::string> names = CpuTargets();
  names.push_back("reference");
  return names;
}

INSTANTIATE_TEST_SUITE_P(Backends, ArithmeticTest, testing::ValuesIn(Backends()),
                         [](const auto& info) { return info.param; });

template <typename T>
std::vector<std::vector<T>> RandomValues(size_t contributions, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<std::vector<T>> values(contributions, std::vector<T>(count));
  for (auto& contribution : values) {
    for (T& value : contribution) value = static_cast<T>(normal(random));
  }
  return values;
}

// How many elements differ in any bit.
template <typename T>
size_t Differences(const std::vector<T>& a, const std::vector<T>& b) {
  size_t differences = 0;
  for (size_t i = 0; i < a.size(); ++i) differences += BitsOf(a[i]) != BitsOf(b[i]) ? 1 : 0;
  return differences;
}

template <typename T>
void ExpectAverageTimesCountIsSum(const Reducer& reducer) {
  for (const size_t contributions : {2, 3, 7, 64}) {
    const auto values = RandomValues<T>(contributions, 4001, contributions);
    const std::vector<T> sum = Reduction<T>(ReduceOp::kSum, values).Run(reducer);
    const std::vector<T> average = Reduction<T>(ReduceOp::kAverage, values).Run(reducer);
    for (size_t i = 0; i < sum.size(); ++i) {
      const T product = average[i] * static_cast<T>(contributions);
      const T ulp =
          std::nextafter(std::fabs(sum[i]), std::numeric_limits<T>::infinity()) - std::fabs(sum[i]);
      ASSERT_LE(std::fabs(product - sum[i]), ulp) << i;
    }
  }
}

TEST_P(ArithmeticTest, Criterion_1_2_AverageTimesCountIsTheSumWithinOneUlp) {
  ExpectAverageTimesCountIsSum<float>(reducer_);
  ExpectAverageTimesCountIsSum<double>(reducer_);
}

TEST_P(ArithmeticTest, Criterion_1_7_HalfPrecisionIsRoundedOnce) {
  // In f16 the sum of 8 x 16384 is infinite.
  Facts facts;
  const auto eight = std::vector<std::vector<F16>>(8, {ToF16(16384)});
  EXPECT_EQ(WidenF16(Reduction<F16>(ReduceOp::kAverage, eight).Run(reducer_, &facts)[0].bits),
            16384.0f);
  EXPECT_EQ(facts, Facts());
  EXPECT_EQ(Reduction<F16>(ReduceOp::kSum, eight).Run(reducer_, &facts)[0].bits, 0x7c00);
  EXPECT_EQ(facts.overflows, 1u);
  EXPECT_FALSE(facts.first_non_finite_input.has_value());

  // Rounding to f16 at each step gives 2048 and, for the average of 512 x 0.1, 0.096.
  const auto ones = std::vector<std::vector<F16>>(4096, {ToF16(1)});
  EXPECT_EQ(WidenF16(Reduction<F16>(ReduceOp::kSum, ones).Run(reducer_)[0].bits), 4096.0f);
  const auto tenths = std::vector<std::vector<F16>>(512, {ToF16(0.1f)});
  EXPECT_EQ(Reduction<F16>(ReduceOp::kAverage, tenths).Run(reducer_)[0].bits, ToF16(0.1f).bits);
}

TEST_P(ArithmeticTest, Criterion_1_7_TheResultIsTheRoundedF32Average) {
  for (const size_t contributions : {3, 7}) {
    const auto values = RandomValues<float>(contributions, 1111, 17);
    std::vector<std::vector<F16>> narrow(contributions);
    for (size_t i = 0; i < contributions; ++i) {
      for (const float value : values[i]) narrow[i].push_back(ToF16(value));
    }
    const auto result = Reduction<F16>(ReduceOp::kAverage, narrow).Run(reducer_);
    for (size_t e = 0; e < result.size(); ++e) {
      float sum = WidenF16(narrow[0][e].bits);
      for (size_t i = 1; i < contributions; ++i) sum += WidenF16(narrow[i][e].bits);
      ASSERT_EQ(result[e].bits, NarrowToF16(sum / static_cast<float>(contributions))) << e;
    }
  }
}

TEST_P(ArithmeticTest, Criterion_3_3_UnequalSplitsGiveTheGradientOfOneBatch) {
  // Per-sample gradients g_k of a batch of 60, split unevenly over four workers of which one has
  // none. Worker means weighted by samples, sums, and a mixture give the mean over the batch; the
  // mean of the means does not.
  constexpr size_t kElements = 300;
  const std::vector<size_t> samples = {31, 0, 7, 22};
  const auto gradients = RandomValues<double>(60, kElements, 5);
  std::vector<double> whole(kElements);
  for (const auto& gradient : gradients) {
    for (size_t e = 0; e < kElements; ++e) whole[e] += gradient[e] / 60;
  }
  std::vector<std::vector<float>> means, sums;
  size_t next = 0;
  for (const size_t count : samples) {
    std::vector<float> mean(kElements, kNaN), sum(kElements, kNaN);  // 0 / 0 if there are none.
    if (count > 0) {
      for (size_t e = 0; e < kElements; ++e) {
        double total = 0;
        for (size_t k = 0; k < count; ++k) total += gradients[next + k][e];
        sum[e] = static_cast<float>(total);
        mean[e] = static_cast<float>(total / static_cast<double>(count));
      }
    }
    next += count;
    means.push_back(mean);
    sums.push_back(sum);
  }
  const auto run = [&](std::vector<std::vector<float>> values,
                       const std::vector<size_t>& sum_kinds) {
    Reduction<float> reduction(ReduceOp::kWeightedAverage, std::move(values));
    for (size_t i = 0; i < samples.size(); ++i) reduction.spec.contributions[i].weight = samples[i];
    for (const size_t i : sum_kinds) {
      reduction.spec.contributions[i].kind = ContributionKind::kSum;
    }
    reduction.SetDivisor(DivisorPolicy::kAll);
    Facts facts;
    auto result = reduction.Run(reducer_, &facts);
    EXPECT_EQ(facts, Facts()) << "a weight of 0 must keep its NaN out";
    return result;
  };
  const auto mixture = std::vector<std::vector<float>>{means[0], means[1], sums[2], means[3]};
  for (const auto& result : {run(means, {}), run(sums, {0, 1, 2, 3}), run(mixture, {2})}) {
    for (size_t e = 0; e < kElements; ++e) {
      ASSERT_NEAR(result[e], whole[e], 1e-6 * std::max(1.0, std::fabs(whole[e])));
    }
  }
  const auto of_means =
      Reduction<float>(ReduceOp::kAverage, {means[0], means[2], means[3]}).Run(reducer_);
  double worst = 0;
  for (size_t e = 0; e < kElements; ++e) worst = std::max(worst, std::fabs(of_means[e] - whole[e]));
  EXPECT_GT(worst, 1e-2);
}

TEST_P(ArithmeticTest, Criterion_3_5_SkipsCountOrNotByPolicy) {
  Reduction<float> reduction(ReduceOp::kAverage, {{6}, {kNaN}, {3}});
  reduction.spec.contributions[1].skipped = true;
  reduction.SetDivisor(DivisorPolicy::kAll);
  EXPECT_EQ(reduction.Run(reducer_)[0], 3.0f);
  reduction.SetDivisor(DivisorPolicy::kPresent);
  EXPECT_EQ(reduction.Run(reducer_)[0], 4.5f);
}

TEST_P(ArithmeticTest, Criterion_3_5_ASkipAddsNothingNotEvenZero) {
  Reduction<float> reduction(ReduceOp::kSum, {{-0.0f}, {0.0f}});
  EXPECT_FALSE(std::signbit(reduction.Run(reducer_)[0]));
  reduction.spec.contributions[1].skipped = true;
  EXPECT_TRUE(std::signbit(reduction.Run(reducer_)[0]));
}

TEST_P(ArithmeticTest, Criterion_5_1_ScalesGoWhereTheFormulasSay) {
  // Powers of two, and sums that are exact, so that each formula has one value: x sums to 24 per
  // element, N = 8.
  const std::vector<std::vector<float>> values = {{1, 8}, {2, 4}, {3, -2}, {4, 0.5f},
                                                  {5, 6}, {6, 1}, {1, 4},  {2, 2.5f}};
  const auto run = [&](ReduceOp op, double prescale, double postscale, double predivide) {
    Reduction<float> reduction(op, values);
    reduction.spec.prescale = prescale;
    reduction.spec.postscale = postscale;
    reduction.spec.predivide = predivide;
    return reduction.Run(reducer_);
  };
  using Result = std::vector<float>;
  EXPECT_EQ(run(ReduceOp::kSum, 1, 1, 1), (Result{24, 24}));
  EXPECT_EQ(run(ReduceOp::kSum, 0.5, 4, 1), (Result{48, 48}));    // q * sum of s * x_i
  EXPECT_EQ(run(ReduceOp::kSum, 1, 1, 2), (Result{24, 24}));      // f cancels
  EXPECT_EQ(run(ReduceOp::kAverage, 1, 1, 4), (Result{3, 3}));    // (f / N) * sum of x_i / f
  EXPECT_EQ(run(ReduceOp::kAverage, 0.5, 4, 1), (Result{6, 6}));  // (q / N) * sum of s * x_i
  EXPECT_EQ(run(ReduceOp::kAverage, 0.5, 4, 2), (Result{6, 6}));  // and f cancels
  EXPECT_EQ(run(ReduceOp::kAverage, 1, 8, 1), (Result{24, 24}));  // q = N makes it the sum
  // The result of a factor f / N that was fixed for 4 workers.
  EXPECT_EQ(run(ReduceOp::kSum, 0.5, 2.0 / 4, 1), (Result{6, 6}));
}

TEST_P(ArithmeticTest, Criterion_5_2_ResizingKeepsTheTrueMean) {
  for (const size_t n : {4, 8, 3}) {
    const auto values = RandomValues<float>(n, 1000, n);
    Reduction<float> reduction(ReduceOp::kAverage, values);
    const auto plain = reduction.Run(reducer_);
    for (const double f : {4, 2}) {  // Constant while the size changes; what AUTO is for all three.
      reduction.spec.predivide = f;
      EXPECT_EQ(Differences(reduction.Run(reducer_), plain), 0u);
    }
  }
}

TEST_P(ArithmeticTest, Criterion_5_4_PowersOfTwoPredivideWithoutATrace) {
  const auto values = RandomValues<float>(7, 100000, 54);
  Reduction<float> reduction(ReduceOp::kAverage, values);
  const auto plain = reduction.Run(reducer_);
  for (const double f : {2.0, 4.0, 8.0}) {
    reduction.spec.predivide = f;
    EXPECT_EQ(Differences(reduction.Run(reducer_), plain), 0u) << f;
  }
  for (const double f : {3.0, 7.0}) {
    reduction.spec.predivide = f;
    EXPECT_GT(Differences(reduction.Run(reducer_), plain), 40000u) << f;
  }
}

TEST_P(ArithmeticTest, Criterion_5_4_AveragesAreDividedNotMultipliedByAReciprocal) {
  const auto values = RandomValues<float>(7, 100000, 55);
  const auto sum = Reduction<float>(ReduceOp::kSum, values).Run(reducer_);
  const auto average = Reduction<float>(ReduceOp::kAverage, values).Run(reducer_);
  std::vector<float> divided, multiplied;
  for (const float value : sum) {
    divided.push_back(value / 7.0f);
    multiplied.push_back(value * (1.0f / 7.0f));
  }
  EXPECT_EQ(Differences(average, divided), 0u);
  EXPECT_GT(Differences(average, multiplied), 10000u);
}

TEST_P(ArithmeticTest, Criterion_5_4_AMultiplicationIsNeverFusedWithTheAddition) {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24: rounded on its own it loses the 2^-24.
  const float x = 1.0f + 0x1p-12f;
  Reduction<float> reduction(ReduceOp::kSum,
                             std::vector<std::vector<float>>(2, std::vector<float>(1000, x)));
  reduction.spec.prescale = x;
  reduction.contributions[0].assign(1000, -1.0f);
  const float product = x * x;
  const float expected = -x + product;
  ASSERT_NE(expected, std::fma(x, x, -x)) << "the case must tell the two apart";
  for (const float value : reduction.Run(reducer_)) ASSERT_EQ(value, expected);
}

TEST_P(ArithmeticTest, Criterion_5_5_ScalesAreNotRoundedToThePayload) {
  // 1e-8 is 0 in f16, and 1/3 is off by 2.4e-4 there.
  Reduction<F16> reduction(ReduceOp::kSum, {{ToF16(60000)}, {ToF16(60000)}});
  reduction.spec.prescale = 1e-8;
  const float c = static_cast<float>(1e-8);
  EXPECT_EQ(reduction.Run(reducer_)[0].bits, NarrowToF16(60000 * c + 60000 * c));
  reduction.spec.prescale = 1.0 / 3;
  const float third = static_cast<float>(1.0 / 3);
  EXPECT_EQ(reduction.Run(reducer_)[0].bits, NarrowToF16(60000 * third + 60000 * third));
}

TEST_P(ArithmeticTest, Criterion_5_5_PredivideDoesNotUnderflowF16) {
  // 6e-8 is the least f16; an eighth of it is 0 there, but not in f32.
  Reduction<F16> reduction(ReduceOp::kAverage, std::vector<std::vector<F16>>(8, {ToF16(6e-8f)}));
  reduction.spec.predivide = 8;
  EXPECT_EQ(reduction.Run(reducer_)[0].bits, ToF16(6e-8f).bits);
  EXPECT_NE(ToF16(6e-8f).bits, 0);
}

TEST_P(ArithmeticTest, Criterion_5_5_TheWireScaleIsUndoneExactly) {
  // The client sends 2^-4 * 98304, which f16 can hold, where 98304 would be infinite.
  const float value = 98304.0f;
  ASSERT_EQ(NarrowToF16(value), 0x7c00);
  Reduction<F16, float> reduction(ReduceOp::kSum, {{ToF16(value * 0x1p-4f)}});
  reduction.spec.tensor_dtype = DType::kF32;
  reduction.spec.contributions[0].wire_scale_exponent = -4;
  EXPECT_EQ(reduction.Run(reducer_)[0], value);
}

TEST_P(ArithmeticTest, Criterion_5_7_PredivideKeepsLargeValuesFinite) {
  Reduction<float> reduction(ReduceOp::kAverage, std::vector<std::vector<float>>(8, {3e38f}));
  Facts facts;
  EXPECT_EQ(reduction.Run(reducer_, &facts)[0], kInfinity);
  EXPECT_EQ(facts.overflows, 1u);
  reduction.spec.predivide = 8;
  EXPECT_NEAR(reduction.Run(reducer_, &facts)[0] / 3e38f, 1.0f, 4e-7f);
  EXPECT_EQ(facts, Facts());
}

TEST_P(ArithmeticTest, Criterion_5_7_SignsOfZeroAndNaN) {
  const auto bits = [&](ReduceOp op, std::vector<std::vector<float>> values) {
    return F32ToBits(Reduction<float>(op, std::move(values)).Run(reducer_)[0]);
  };
  EXPECT_EQ(bits(ReduceOp::kAverage, {{-0.0f}, {-0.0f}}), 0x80000000);
  EXPECT_EQ(bits(ReduceOp::kSum, {{kInfinity}, {-kInfinity}}), kCanonicalNanF32);
  const float negative_nan = F32FromBits(0xffc12345);
  const float signalling_nan = F32FromBits(0x7f812345);
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    EXPECT_EQ(bits(op, {{negative_nan}, {1.0f}}), kCanonicalNanF32);
    EXPECT_EQ(bits(op, {{1.0f}, {signalling_nan}}), kCanonicalNanF32);
    EXPECT_EQ(bits(op, {{negative_nan}, {signalling_nan}}), kCanonicalNanF32);
    EXPECT_EQ(bits(op, {{negative_nan}}), kCanonicalNanF32);
  }
  EXPECT_EQ(bits(ReduceOp::kMin, {{0.0f}, {-0.0f}}), 0x80000000);
  EXPECT_EQ(bits(ReduceOp::kMin, {{-0.0f}, {0.0f}}), 0x80000000);
  EXPECT_EQ(bits(ReduceOp::kMax, {{0.0f}, {-0.0f}}), 0u);
  EXPECT_EQ(bits(ReduceOp::kMax, {{-0.0f}, {0.0f}}), 0u);
  EXPECT_EQ(bits(ReduceOp::kMax, {{-kInfinity}, {-3.0f}}), F32ToBits(-3.0f));
  EXPECT_EQ(bits(ReduceOp::kMin, {{-kInfinity}, {-3.0f}}), F32ToBits(-kInfinity));
}

TEST_P(ArithmeticTest, Criterion_5_7_SubnormalsAreKept) {
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Reduction<float>(ReduceOp::kSum, {{least}, {least}}).Run(reducer_)[0], 2 * least);
  const BF16 least_bf16 = {1};
  EXPECT_EQ(Reduction<BF16>(ReduceOp::kSum, {{least_bf16}, {least_bf16}}).Run(reducer_)[0].bits, 2);
  const F16 least_f16 = {1};
  EXPECT_EQ(Reduction<F16>(ReduceOp::kSum, {{least_f16}, {least_f16}}).Run(reducer_)[0].bits, 2);
}

TEST_P(ArithmeticTest, IntegersWrapAndAreCounted) {
  Facts facts;
  EXPECT_EQ(Reduction<uint8_t>(ReduceOp::kSum, {{200, 1}, {100, 2}}).Run(reducer_, &facts),
            (std::vector<uint8_t>{44, 3}));
  EXPECT_EQ(facts.integer_wraps, 1u);
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Reduction<int64_t>(ReduceOp::kSum, {{most}, {1}, {-1}}).Run(reducer_, &facts)[0], most);
  EXPECT_EQ(facts.integer_wraps, 2u) << "there and back";
  EXPECT_EQ(Reduction<int32_t>(ReduceOp::kMin, {{5}, {-7}, {3}}).Run(reducer_, &facts)[0], -7);
  EXPECT_EQ(facts.integer_wraps, 0u);
}

// The rules of plan.h for integers, for contributions with one value throughout.
template <typename T>
std::pair<T, uint64_t> SumOrProduct(ReduceOp op, const std::vector<T>& values) {
  int64_t acc = values[0];
  uint64_t wraps = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    const auto x = static_cast<int64_t>(values[i]);
    const bool wrapped = op == ReduceOp::kSum ? __builtin_add_overflow(acc, x, &acc)
                                              : __builtin_mul_overflow(acc, x, &acc);
    wraps += wrapped ? 1 : 0;
  }
  const T result = static_cast<T>(acc);
  return {result, wraps + (static_cast<int64_t>(result) != acc ? 1 : 0)};
}

// The results closest to the ends of T, for which an implementation must not guess whether there is
// a wrap.
template <typename T>
void CheckIntegersAtTheirLimits(const Reducer& reducer) {
  std::mt19937_64 random(sizeof(T));
  constexpr size_t kCount = 64;
  uint64_t exact = 0;
  uint64_t wrapped = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const ReduceOp op = trial % 2 == 0 ? ReduceOp::kSum : ReduceOp::kProduct;
    const T limit = trial % 3 == 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
    const size_t contributions = 2 + random() % 15;
    std::vector<T> values;
    T rest = limit;  // The value of the last contribution.
    while (values.size() + 1 < contributions) {
      const T value = static_cast<T>(op == ReduceOp::kSum ? rest / 4 : 1 + random() % 5);
      values.push_back(value);
      rest = static_cast<T>(op == ReduceOp::kSum ? rest - value : rest / value);
    }
    const uint64_t nudge = random() % 5;  // At the limit or up to 2 away from it.
    values.push_back(static_cast<T>(static_cast<uint64_t>(rest) + nudge - 2));
    if (random() % 8 == 0) values.back() = 0;
    if (trial % 16 < 2) {  // Far beyond all limits, int64's too.
      for (T& value : values) value = static_cast<T>(random() | 0x80);
    }
    std::shuffle(values.begin(), values.end(), random);
    const auto [result, wraps] = SumOrProduct(op, values);
    (wraps == 0 ? exact : wrapped) += 1;
    std::vector<std::vector<T>> elements;
    elements.reserve(values.size());
    for (const T value : values) elements.emplace_back(kCount, value);
    Facts facts;
    EXPECT_EQ(Reduction<T>(op, std::move(elements)).Run(reducer, &facts),
              std::vector<T>(kCount, result));
    ASSERT_EQ(facts.integer_wraps, wraps * kCount) << ReduceOpName(op) << " trial " << trial;
  }
  EXPECT_GT(exact, 1000u);
  EXPECT_GT(wrapped, 300u);
}

TEST_P(ArithmeticTest, IntegersAtTheirLimits) {
  CheckIntegersAtTheirLimits<int64_t>(reducer_);
  CheckIntegersAtTheirLimits<int32_t>(reducer_);
  CheckIntegersAtTheirLimits<uint8_t>(reducer_);
}

TEST_P(ArithmeticTest, TheFirstNonFiniteInputIsNamed) {
  std::vector<std::vector<float>> values(3, std::vector<float>(100000, 1.0f));
  values[2][17] = kNaN;
  values[1][70000] = -kInfinity;
  values[1][99999] = kNaN;
  Facts facts;
  Reduction<float>(ReduceOp::kMax, values).Run(reducer_, &facts);
  ASSERT_TRUE(facts.first_non_finite_input.has_value());
  EXPECT_EQ(facts.first_non_finite_input->contribution, 1u);
  EXPECT_EQ(facts.first_non_finite_input->element, 70000u);
  EXPECT_EQ(facts.overflows, 0u);
}

// Every f16 value is widened, and every rounding decision made, as in float16.h (which has its own
// test).
TEST_P(ArithmeticTest, SixteenBitConversionsOfEveryPattern) {
  std::vector<F16> all_f16;
  std::vector<BF16> all_bf16;
  std::vector<float> around;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    all_f16.push_back({pattern});
    all_bf16.push_back({pattern});
    for (const uint32_t wide : {WidenF16Bits(pattern), WidenBF16Bits(pattern)}) {
      // The value, the tie above it in either format and in the subnormals, and their neighbours.
      for (const uint32_t step : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u,
                                  0x200000u, 0x400000u, 0x400001u}) {
        around.push_back(F32FromBits(wide + step));
      }
    }
  }
  Reduction<F16, float> widen_f16(ReduceOp::kSum, {all_f16});
  Reduction<BF16, float> widen_bf16(ReduceOp::kSum, {all_bf16});
  widen_f16.spec.tensor_dtype = widen_bf16.spec.tensor_dtype = DType::kF32;
  const auto f16_as_f32 = widen_f16.Run(reducer_);
  const auto bf16_as_f32 = widen_bf16.Run(reducer_);
  for (size_t i = 0; i < all_f16.size(); ++i) {
    const auto expected = [](float wide) {
      return std::isnan(wide) ? kCanonicalNanF32 : F32ToBits(wide);
    };
    ASSERT_EQ(F32ToBits(f16_as_f32[i]), expected(WidenF16(all_f16[i].bits))) << i;
    ASSERT_EQ(F32ToBits(bf16_as_f32[i]), expected(WidenBF16(all_bf16[i].bits))) << i;
  }
  const auto as_f16 = Reduction<float, F16>(ReduceOp::kSum, {around}).Run(reducer_);
  const auto as_bf16 = Reduction<float, BF16>(ReduceOp::kSum, {around}).Run(reducer_);
  for (size_t i = 0; i < around.size(); ++i) {
    ASSERT_EQ(as_f16[i].bits, NarrowToF16(around[i])) << std::hex << F32ToBits(around[i]);
    ASSERT_EQ(as_bf16[i].bits, NarrowToBF16(around[i])) << std::hex << F32ToBits(around[i]);
  }
}

#if defined(__x86_64__)
TEST_P(ArithmeticTest, TheCallersFloatingPointModeDoesNotMatter) {
  const float least = std::numeric_limits<float>::denorm_min();
  const auto values = RandomValues<float>(3, 1000, 9);
  Reduction<float> sum(ReduceOp::kAverage, values);
  Reduction<float> subnormal(ReduceOp::kSum, {{least}, {least}});
  sum.spec.prescale = 0.1;
  const auto expected = sum.Run(reducer_);
  const unsigned saved = _mm_getcsr();
  const unsigned hostile = saved | 0x8040 | 0x4000;  // Flush results and inputs, round up.
  _mm_setcsr(hostile);
  const auto actual = sum.Run(reducer_);
  const auto kept = subnormal.Run(reducer_);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(saved);
  EXPECT_EQ(after & 0xffc0, hostile & 0xffc0) << "the caller's mode is put back";
  EXPECT_EQ(Differences(actual, expected), 0u);
  EXPECT_EQ(F32ToBits(kept[0]), 2u);
}
#endif

}  // namespace
}  // namespace basin::kernels
