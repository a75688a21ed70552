// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/plan.h"

#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include "kernels/float_environment.h"

namespace basin::kernels {
namespace {

constexpr int kMaxWireScaleExponent = 126;  // 2^e and 2^-e are both normal in f32.

bool IsAverage(ReduceOp op) { return op == ReduceOp::kAverage || op == ReduceOp::kWeightedAverage; }

bool IsSumLike(ReduceOp op) { return op == ReduceOp::kSum || IsAverage(op); }

template <typename... Parts>
Failure Invalid(const Parts&... parts) {
  std::ostringstream message;
  message.precision(std::numeric_limits<double>::max_digits10);
  (message << ... << parts);
  return Failure{FailureCode::kInvalidArgument, message.str()};
}

// The accumulator type of a tensor's dtype, or the reason why there is none.
Result<DType> AccumulatorDType(DType tensor_dtype) {
  switch (tensor_dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return DType::kF32;
    case DType::kF64:
      return DType::kF64;
    case DType::kI64:
    case DType::kI32:
    case DType::kU8:
      return DType::kI64;
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return Failure{FailureCode::kUnsupported, std::string("the dtype ") +
                                                    DTypeName(tensor_dtype) +
                                                    " is reserved and not supported yet"};
    case DType::kUnspecified:
      break;
  }
  return Invalid("the tensor's dtype is not set");
}

// Whether values of a tensor may travel as `wire`: unchanged or, if they accumulate in f32, as one
// of the 16-bit floats.
bool MayTravelAs(DType tensor, DType accumulator, DType wire) {
  if (wire == tensor) return true;
  return accumulator == DType::kF32 && (wire == DType::kF16 || wire == DType::kBF16);
}

// RN_A of an f64; the accumulator of integers takes no constant but 1.
double RoundToAccumulator(double value, DType accumulator) {
  return accumulator == DType::kF32 ? static_cast<double>(static_cast<float>(value)) : value;
}

bool IsUsableConstant(double value) { return std::isfinite(value) && value != 0.0; }

std::optional<Failure> CheckScales(const ReductionSpec& spec) {
  if (!IsUsableConstant(spec.prescale)) {
    return Invalid("the prescale is ", spec.prescale, "; it must be finite and not 0");
  }
  if (!IsUsableConstant(spec.postscale)) {
    return Invalid("the postscale is ", spec.postscale, "; it must be finite and not 0");
  }
  if (!IsUsableConstant(spec.predivide) || spec.predivide < 0) {
    return Invalid("the predivide is ", spec.predivide, "; it must be finite and greater than 0");
  }
  if (!IsSumLike(spec.op) && spec.predivide != 1.0) {
    return Invalid("the predivide is ", spec.predivide, ", but ", ReduceOpName(spec.op),
                   " cannot divide its terms and multiply the result back; it must be 1");
  }
  return std::nullopt;
}

std::optional<Failure> CheckIntegers(const ReductionSpec& spec) {
  if (IsAverage(spec.op)) {
    return Invalid(ReduceOpName(spec.op), " of ", DTypeName(spec.tensor_dtype),
                   " is not defined; use SUM and divide, or send a floating-point tensor");
  }
  if (spec.prescale != 1.0 || spec.postscale != 1.0 || spec.predivide != 1.0) {
    return Invalid("integers take no scale, but ", DTypeName(spec.tensor_dtype),
                   " the prescale is ", spec.prescale, ", the postscale ", spec.postscale,
                   " and the predivide ", spec.predivide, "; all must be 1");
  }
  return std::nullopt;
}

std::optional<Failure> CheckContribution(const ReductionSpec& spec, DType accumulator,
                                         size_t index) {
  const Contribution& contribution = spec.contributions[index];
  if (contribution.skipped) return std::nullopt;
  if (!MayTravelAs(spec.tensor_dtype, accumulator, contribution.wire_dtype)) {
    return Invalid("contribution ", index, " is ", DTypeName(contribution.wire_dtype),
                   " on the wire, but a tensor of ", DTypeName(spec.tensor_dtype),
                   " cannot be sent in it");
  }
  const int exponent = contribution.wire_scale_exponent;
  if (exponent < -kMaxWireScaleExponent || exponent > kMaxWireScaleExponent) {
    return Invalid("contribution ", index, " has the wire scale exponent ", exponent,
                   "; it must lie in [-126, 126]");
  }
  if (exponent != 0 && contribution.wire_dtype == spec.tensor_dtype) {
    return Invalid("contribution ", index, " has the wire scale exponent ", exponent,
                   " although it is sent in the tensor's own dtype ", DTypeName(spec.tensor_dtype),
                   "; it must be 0");
  }
  if (!IsSumLike(spec.op) && contribution.weight != 1) {
    return Invalid("contribution ", index, " has the weight ", contribution.weight, ", but ",
                   ReduceOpName(spec.op), " takes no weights; it must be 1");
  }
  return std::nullopt;
}

Combine CombineOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return Combine::kMin;
    case ReduceOp::kMax:
      return Combine::kMax;
    case ReduceOp::kProduct:
      return Combine::kMultiply;
    default:
      return Combine::kAdd;
  }
}

// c_i before it is rounded to A.
double TermFactor(const ReductionSpec& spec, const Contribution& contribution) {
  const bool weighted =
      spec.op == ReduceOp::kWeightedAverage && contribution.kind == ContributionKind::kMean;
  const double weight = weighted ? static_cast<double>(contribution.weight) : 1.0;
  const double weighted_prescale = weight * spec.prescale;
  return weighted_prescale / spec.predivide;
}

// The constant of the finishing step before it is rounded to A.
double FinishConstant(const ReductionSpec& spec) {
  const double undo_and_postscale = spec.predivide * spec.postscale;
  if (IsAverage(spec.op)) return static_cast<double>(spec.divisor) / undo_and_postscale;
  return undo_and_postscale;  // predivide is 1 for MIN, MAX and PRODUCT.
}

}  // namespace

Result<uint64_t> Divisor(ReduceOp op, DivisorPolicy policy,
                         const std::vector<Contribution>& contributions) {
  if (!IsAverage(op)) return uint64_t{1};
  uint64_t divisor = 0;
  for (const Contribution& contribution : contributions) {
    if (contribution.skipped && policy == DivisorPolicy::kPresent) continue;
    const uint64_t share = op == ReduceOp::kAverage ? 1 : contribution.weight;
    if (share > std::numeric_limits<uint64_t>::max() - divisor) {
      return Invalid("the weights of ", contributions.size(),
                     " contributions sum to more than 2^64 - 1; use a coarser unit");
    }
    divisor += share;
  }
  return divisor;
}

Result<ReductionPlan> ReductionPlan::Make(ReductionSpec spec) {
  const ScopedFloatEnvironment environment;
  if (spec.op < ReduceOp::kSum || spec.op > ReduceOp::kProduct) {
    return Invalid("the reduce op is not set");
  }
  const Result<DType> accumulator = AccumulatorDType(spec.tensor_dtype);
  if (!accumulator.ok()) return accumulator.failure();
  if (!MayTravelAs(spec.tensor_dtype, accumulator.value(), spec.result_dtype)) {
    return Invalid("the result of a tensor of ", DTypeName(spec.tensor_dtype), " cannot be ",
                   DTypeName(spec.result_dtype));
  }
  if (auto failure = CheckScales(spec)) return *std::move(failure);
  if (accumulator.value() == DType::kI64) {
    if (auto failure = CheckIntegers(spec)) return *std::move(failure);
  }

  ReductionPlan plan(std::move(spec));
  plan.accumulator_dtype_ = accumulator.value();
  plan.combine_ = CombineOf(plan.spec_.op);
  if (auto failure = plan.AddTerms()) return *std::move(failure);
  if (plan.outcome_ == PlanOutcome::kReduce) {
    if (auto failure = plan.SetFinish()) return *std::move(failure);
  }
  return plan;
}

std::optional<Failure> ReductionPlan::AddTerms() {
  bool all_skipped = true;
  terms_.reserve(spec_.contributions.size());
  for (size_t i = 0; i < spec_.contributions.size(); ++i) {
    if (auto failure = CheckContribution(spec_, accumulator_dtype_, i)) return failure;
    const Contribution& contribution = spec_.contributions[i];
    if (contribution.skipped) continue;
    all_skipped = false;
    if (spec_.op == ReduceOp::kWeightedAverage && contribution.weight == 0) continue;
    const double exact_factor = TermFactor(spec_, contribution);
    const double factor = RoundToAccumulator(exact_factor, accumulator_dtype_);
    if (!IsUsableConstant(factor)) {
      return Invalid("weight * prescale / predivide of contribution ", i, " is ", exact_factor,
                     ", which is ", factor, " in ", DTypeName(accumulator_dtype_),
                     "; it must be finite and not 0");
    }
    const double unscale = std::ldexp(1.0, -contribution.wire_scale_exponent);
    terms_.push_back(Term{i, contribution.wire_dtype, unscale, factor});
  }
  if (!terms_.empty()) {
    outcome_ = PlanOutcome::kReduce;
  } else if (!all_skipped && spec_.divisor == 0) {
    outcome_ = PlanOutcome::kEmpty;
  } else {
    outcome_ = PlanOutcome::kNone;
  }
  return std::nullopt;
}

std::optional<Failure> ReductionPlan::SetFinish() {
  if (IsAverage(spec_.op) && spec_.divisor == 0) {
    return Invalid("the divisor is 0 although ", terms_.size(), " contributions are averaged");
  }
  const double exact_constant = FinishConstant(spec_);
  finish_constant_ = RoundToAccumulator(exact_constant, accumulator_dtype_);
  if (!IsUsableConstant(finish_constant_)) {
    return Invalid("predivide, postscale and divisor combine to ", exact_constant, ", which is ",
                   finish_constant_, " in ", DTypeName(accumulator_dtype_),
                   "; it must be finite and not 0");
  }
  if (finish_constant_ == 1.0) {
    finish_ = Finish::kNone;
  } else {
    finish_ = IsAverage(spec_.op) ? Finish::kDivide : Finish::kMultiply;
  }
  return std::nullopt;
}

}  // namespace basin::kernels
