// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/plan.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace basin::kernels {
namespace {

using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ReductionSpec Spec(ReduceOp op, DType dtype, size_t contributions) {
  ReductionSpec spec;
  spec.op = op;
  spec.tensor_dtype = spec.result_dtype = dtype;
  spec.contributions.resize(contributions);
  for (Contribution& contribution : spec.contributions) contribution.wire_dtype = dtype;
  spec.divisor = contributions;
  return spec;
}

ReductionPlan MustMake(const ReductionSpec& spec) {
  Result<ReductionPlan> plan = ReductionPlan::Make(spec);
  if (!plan.ok()) {
    ADD_FAILURE() << plan.failure().message;
    return ReductionPlan::Make(Spec(ReduceOp::kSum, DType::kF32, 1)).value();
  }
  return std::move(plan).value();
}

// The sentence with which a spec is refused; empty if it is accepted.
std::string Refusal(const ReductionSpec& spec) {
  const Result<ReductionPlan> plan = ReductionPlan::Make(spec);
  return plan.ok() ? std::string() : plan.failure().message;
}

TEST(PlanTest, Criterion_1_1_AnOpIsRequired) {
  EXPECT_THAT(Refusal(Spec(ReduceOp::kUnspecified, DType::kF32, 1)), HasSubstr("op is not set"));
}

TEST(PlanTest, Criterion_5_1_TheDivisorIsTheOneOfTheRoundNotOfConstruction) {
  // y = (f / N) * sum(x / f): the same f at N = 4 and N = 8 gives N / f.
  for (const uint64_t n : {4, 8}) {
    ReductionSpec spec = Spec(ReduceOp::kAverage, DType::kF32, n);
    spec.predivide = 4;
    const ReductionPlan plan = MustMake(spec);
    EXPECT_EQ(plan.terms()[0].factor, 0.25);
    EXPECT_EQ(plan.finish_constant(), static_cast<double>(n) / 4);
  }
}

TEST(PlanTest, ConstantsAreRoundedToTheAccumulatorOnce) {
  ReductionSpec spec = Spec(ReduceOp::kWeightedAverage, DType::kF32, 1);
  spec.prescale = 1.0 / 3;
  spec.contributions[0].weight = 7;
  spec.predivide = 3;
  spec.postscale = 0.1;
  spec.divisor = 7;
  const double factor = 7 * (1.0 / 3) / 3;
  const double divisor = 7 / (3 * 0.1);
  EXPECT_EQ(MustMake(spec).terms()[0].factor, static_cast<double>(static_cast<float>(factor)));
  EXPECT_EQ(MustMake(spec).finish_constant(), static_cast<double>(static_cast<float>(divisor)));
  spec.tensor_dtype = spec.result_dtype = spec.contributions[0].wire_dtype = DType::kF64;
  EXPECT_EQ(MustMake(spec).terms()[0].factor, factor);
  EXPECT_EQ(MustMake(spec).finish_constant(), divisor);
}

TEST(PlanTest, ATermsConstantIsComputedFromLeftToRight) {
  ReductionSpec spec = Spec(ReduceOp::kWeightedAverage, DType::kF64, 1);
  spec.contributions[0].weight = spec.divisor = 3;
  spec.prescale = 0.1;
  spec.predivide = 3;
  ASSERT_NE(3 * 0.1 / 3, 3 * (0.1 / 3)) << "the case must tell the two apart";
  EXPECT_EQ(MustMake(spec).terms()[0].factor, 3 * 0.1 / 3);
}

TEST(PlanTest, FinishIsLeftOutWhenItsConstantIsOne) {
  EXPECT_EQ(MustMake(Spec(ReduceOp::kSum, DType::kF32, 3)).finish(), Finish::kNone);
  EXPECT_EQ(MustMake(Spec(ReduceOp::kAverage, DType::kF32, 1)).finish(), Finish::kNone);
  EXPECT_EQ(MustMake(Spec(ReduceOp::kAverage, DType::kF32, 3)).finish(), Finish::kDivide);
  ReductionSpec spec = Spec(ReduceOp::kSum, DType::kF32, 3);
  spec.predivide = 8;
  spec.postscale = 0.125;
  EXPECT_EQ(MustMake(spec).finish(), Finish::kNone);
  spec.postscale = 2;
  EXPECT_EQ(MustMake(spec).finish(), Finish::kMultiply);
}

TEST(PlanTest, Criterion_3_2_ASumContributionIsNotMultipliedByItsWeight) {
  ReductionSpec spec = Spec(ReduceOp::kWeightedAverage, DType::kF32, 2);
  spec.contributions[0].weight = 5;
  spec.contributions[1].weight = 5;
  spec.contributions[1].kind = ContributionKind::kSum;
  spec.divisor = 10;
  const ReductionPlan plan = MustMake(spec);
  EXPECT_EQ(plan.terms()[0].factor, 5);
  EXPECT_EQ(plan.terms()[1].factor, 1);
}

TEST(PlanTest, Criterion_3_3_ZeroWeightsAreEmptyAndNotRead) {
  ReductionSpec spec = Spec(ReduceOp::kWeightedAverage, DType::kF32, 2);
  spec.contributions[0].weight = 0;
  spec.contributions[1].weight = 3;
  spec.divisor = 3;
  const ReductionPlan plan = MustMake(spec);
  ASSERT_EQ(plan.terms().size(), 1u);
  EXPECT_EQ(plan.terms()[0].contribution, 1u);

  spec.contributions[1].weight = 0;
  spec.divisor = 0;
  EXPECT_EQ(MustMake(spec).outcome(), PlanOutcome::kEmpty);
}

TEST(PlanTest, Criterion_3_5_SkipsAndTheDivisorOfEachPolicy) {
  ReductionSpec spec = Spec(ReduceOp::kAverage, DType::kF32, 3);
  spec.contributions[1].skipped = true;
  EXPECT_EQ(Divisor(spec.op, DivisorPolicy::kAll, spec.contributions).value(), 3u);
  EXPECT_EQ(Divisor(spec.op, DivisorPolicy::kPresent, spec.contributions).value(), 2u);
  const ReductionPlan plan = MustMake(spec);
  ASSERT_EQ(plan.terms().size(), 2u);
  EXPECT_EQ(plan.terms()[1].contribution, 2u);

  for (Contribution& contribution : spec.contributions) contribution.skipped = true;
  EXPECT_EQ(MustMake(spec).outcome(), PlanOutcome::kNone);
}

TEST(PlanTest, WeightsThatSumTooHighAreRefused) {
  std::vector<Contribution> contributions(2);
  contributions[0].weight = std::numeric_limits<uint64_t>::max();
  const auto divisor = Divisor(ReduceOp::kWeightedAverage, DivisorPolicy::kAll, contributions);
  ASSERT_FALSE(divisor.ok());
  EXPECT_THAT(divisor.failure().message, HasSubstr("2^64"));
  EXPECT_EQ(Divisor(ReduceOp::kSum, DivisorPolicy::kAll, contributions).value(), 1u);
}

TEST(PlanTest, ScalesMustBeFiniteAndNotZero) {
  for (const double bad : {0.0, -0.0, kInfinity, -kInfinity, std::nan("")}) {
    ReductionSpec spec = Spec(ReduceOp::kSum, DType::kF32, 2);
    spec.prescale = bad;
    EXPECT_THAT(Refusal(spec), HasSubstr("prescale")) << bad;
    spec = Spec(ReduceOp::kSum, DType::kF32, 2);
    spec.postscale = bad;
    EXPECT_THAT(Refusal(spec), HasSubstr("postscale")) << bad;
    spec = Spec(ReduceOp::kSum, DType::kF32, 2);
    spec.predivide = bad;
    EXPECT_THAT(Refusal(spec), HasSubstr("predivide")) << bad;
  }
  ReductionSpec spec = Spec(ReduceOp::kSum, DType::kF32, 2);
  spec.predivide = -2;
  EXPECT_THAT(Refusal(spec), HasSubstr("greater than 0"));
}

TEST(PlanTest, ConstantsThatDoNotFitTheAccumulatorAreRefused) {
  for (const double prescale : {1e300, 1e-300}) {
    ReductionSpec spec = Spec(ReduceOp::kSum, DType::kF32, 1);
    spec.prescale = prescale;
    EXPECT_THAT(Refusal(spec), HasSubstr("contribution 0"));
    spec.prescale = 1;
    spec.postscale = prescale;
    EXPECT_THAT(Refusal(spec), HasSubstr("postscale"));
    spec.tensor_dtype = spec.result_dtype = spec.contributions[0].wire_dtype = DType::kF64;
    EXPECT_EQ(Refusal(spec), "");
  }
}

TEST(PlanTest, MinMaxAndProductTakeNeitherPredivideNorWeights) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    ReductionSpec spec = Spec(op, DType::kF32, 2);
    spec.predivide = 2;
    EXPECT_THAT(Refusal(spec), HasSubstr("predivide"));
    spec.predivide = 1;
    spec.contributions[1].weight = 2;
    EXPECT_THAT(Refusal(spec), HasSubstr("contribution 1 has the weight 2"));
    spec.contributions[1].weight = 1;
    spec.prescale = 3;
    EXPECT_EQ(MustMake(spec).terms()[1].factor, 3);
  }
}

TEST(PlanTest, Criterion_5_6_IntegersTakeNoAverageAndNoScale) {
  for (const DType dtype : {DType::kI64, DType::kI32, DType::kU8}) {
    EXPECT_THAT(Refusal(Spec(ReduceOp::kAverage, dtype, 2)), HasSubstr("not defined"));
    EXPECT_THAT(Refusal(Spec(ReduceOp::kWeightedAverage, dtype, 2)), HasSubstr("not defined"));
    ReductionSpec spec = Spec(ReduceOp::kSum, dtype, 2);
    spec.prescale = 2;
    EXPECT_THAT(Refusal(spec), HasSubstr("integers take no scale"));
    EXPECT_EQ(Refusal(Spec(ReduceOp::kSum, dtype, 2)), "");
  }
}

TEST(PlanTest, WireAndResultDTypes) {
  ReductionSpec spec = Spec(ReduceOp::kSum, DType::kF32, 1);
  spec.contributions[0].wire_dtype = DType::kBF16;
  spec.contributions[0].wire_scale_exponent = 12;
  spec.result_dtype = DType::kF16;
  EXPECT_EQ(MustMake(spec).terms()[0].unscale, std::ldexp(1.0, -12));
  spec.contributions[0].wire_scale_exponent = 127;
  EXPECT_THAT(Refusal(spec), HasSubstr("[-126, 126]"));
  spec.contributions[0] = {DType::kF32, 1};
  EXPECT_THAT(Refusal(spec), HasSubstr("must be 0"));
  spec = Spec(ReduceOp::kSum, DType::kF64, 1);
  spec.contributions[0].wire_dtype = DType::kF32;
  EXPECT_THAT(Refusal(spec), HasSubstr("contribution 0 is f32 on the wire"));
  spec = Spec(ReduceOp::kSum, DType::kF16, 1);
  spec.result_dtype = DType::kF32;
  EXPECT_THAT(Refusal(spec), HasSubstr("cannot be f32"));
}

TEST(PlanTest, Fp8IsReserved) {
  const auto plan = ReductionPlan::Make(Spec(ReduceOp::kSum, DType::kF8E4M3FN, 1));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.failure().code, FailureCode::kUnsupported);
}

TEST(PlanTest, AnAverageOverNobodyIsRefused) {
  ReductionSpec spec = Spec(ReduceOp::kAverage, DType::kF32, 2);
  spec.divisor = 0;
  EXPECT_THAT(Refusal(spec), HasSubstr("divisor is 0"));
}

}  // namespace
}  // namespace basin::kernels
