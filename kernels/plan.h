// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The canonical reduction, as a plan: which contributions are folded in which order, and every
// constant the arithmetic needs. A plan is made once per tensor and round, on the host, in f64, in
// this one place; each backend executes it and gives the same bits.
//
// THE DEFINITION. RN_T(v) is v rounded to the nearest value of type T, ties to even, subnormals
// kept. A is the accumulator type: f32 for f16, bf16 and f32 tensors, f64 for f64, int64 for
// integers. Contributions are numbered in the byte order of their worker ids.
//
//   c_i  = RN_A(w_i * s / f)       s prescale, f predivide, w_i weight. Two f64 operations, left to
//                                  right, each rounded; the quotient is then rounded to A. w_i is 1
//                                  unless the op is WEIGHTED_AVERAGE and contribution i is a MEAN.
//   v_i  = RN_A(x_i * 2^-e_i)      x_i as it was sent, widened to A (exact); e_i is the wire scale
//                                  exponent, 0 unless the client narrowed the tensor. Exact, except
//                                  for values that the division pushes below the normal range.
//   p_i  = RN_A(v_i * c_i)         A multiplication of its own: never fused with the addition.
//   acc  = p_0, then RN_A(acc + p_i)           SUM, AVERAGE, WEIGHTED_AVERAGE
//          p_0, then RN_A(acc * p_i)           PRODUCT
//          p_0, then min or max(acc, p_i)      MIN, MAX: NaN wins over numbers, -0 < +0
//   y    = RN_A(acc * RN_A(f * q))             SUM; q is the postscale
//          RN_A(acc / RN_A(D / (f * q)))       AVERAGE, WEIGHTED_AVERAGE; D is the divisor
//          RN_A(acc * RN_A(q))                 MIN, MAX, PRODUCT
//   out  = RN_result(y)            The only rounding to the result type. Every NaN becomes the
//                                  positive quiet NaN with an empty payload.
//
// A multiplication or division by a constant that equals 1 is the identity on every value, so an
// implementation may perform it or leave it out. Integers use two's-complement int64 arithmetic
// and keep the low bits of the result; they take no scale other than 1 and no average.
//
// A contribution adds nothing, not even +0, if it was skipped or if the op is WEIGHTED_AVERAGE and
// its weight is 0 (whatever its values are: they are not read). What the definition leaves open is
// decided here: f * q and D / (f * q) are f64 operations rounded one by one, then rounded to A; D
// is first rounded to f64; a constant that becomes infinite or 0 in A makes the plan invalid,
// because it would turn numbers into NaN or 0 unseen; SUM and AVERAGE ignore weights.

#ifndef BASIN_KERNELS_PLAN_H_
#define BASIN_KERNELS_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/failure.h"
#include "protocol/dtype.h"

namespace basin::kernels {

// What a contribution holds per element: the mean of its weight's units (samples, tokens or
// micro-batches), to be multiplied by the weight, or their sum already.
enum class ContributionKind : uint8_t { kMean, kSum };

// The contribution of one worker to one tensor, without the bytes.
struct Contribution {
  DType wire_dtype = DType::kUnspecified;
  // The client multiplied by 2^wire_scale_exponent, in f32, before it narrowed to wire_dtype.
  // In [-126, 126]; 0 unless wire_dtype differs from the tensor's dtype.
  int wire_scale_exponent = 0;
  uint64_t weight = 1;
  ContributionKind kind = ContributionKind::kMean;
  bool skipped = false;
};

// The reduction that the round declared.
struct ReductionSpec {
  ReduceOp op = ReduceOp::kUnspecified;
  DType tensor_dtype = DType::kUnspecified;
  // The tensor's dtype or, for tensors that accumulate in f32, kF16 or kBF16. The same rule holds
  // for each contribution's wire_dtype.
  DType result_dtype = DType::kUnspecified;
  double prescale = 1.0;   // s: finite, not 0.
  double postscale = 1.0;  // q: finite, not 0.
  double predivide = 1.0;  // f: finite, > 0; 1 for MIN, MAX and PRODUCT.
  // D of the averages; other ops ignore it. Divisor() computes it; relays, whose contributions
  // stand for several workers, supply their own.
  uint64_t divisor = 0;
  std::vector<Contribution> contributions;  // In the byte order of the worker ids.
};

// The contributions over which an average is taken: all of the round, as if a skipped tensor had
// been sent as zeros, or only those that did not skip this tensor.
enum class DivisorPolicy : uint8_t { kAll, kPresent };

// The count (AVERAGE) or the sum of weights (WEIGHTED_AVERAGE) of the contributions under `policy`;
// 1 for other ops. Fails if the sum of weights does not fit 64 bits.
Result<uint64_t> Divisor(ReduceOp op, DivisorPolicy policy,
                         const std::vector<Contribution>& contributions);

// One contribution that is folded, and how. The doubles hold values of type A exactly.
struct Term {
  size_t contribution;  // Index into ReductionSpec::contributions.
  DType wire_dtype;
  double unscale;  // 2^-e_i.
  double factor;   // c_i.
};

enum class Combine : uint8_t { kAdd, kMultiply, kMin, kMax };
enum class Finish : uint8_t { kNone, kMultiply, kDivide };

// The outcome of a plan.
enum class PlanOutcome : uint8_t {
  kReduce,  // There is at least one term.
  kNone,    // No worker contributed; there is no result, which differs from a result of zeros.
  kEmpty,   // The weights of a weighted average sum to 0.
};

// An executable reduction. Immutable after Make.
class ReductionPlan {
 public:
  // Checks the spec and computes every constant. The failure's sentence names the value that is
  // wrong, with the index of the contribution where there is one, and what is allowed.
  static Result<ReductionPlan> Make(ReductionSpec spec);

  PlanOutcome outcome() const { return outcome_; }
  const ReductionSpec& spec() const { return spec_; }
  DType accumulator_dtype() const { return accumulator_dtype_; }  // kF32, kF64 or kI64.
  Combine combine() const { return combine_; }
  Finish finish() const { return finish_; }
  double finish_constant() const { return finish_constant_; }  // A value of type A; 1 for kNone.
  const std::vector<Term>& terms() const { return terms_; }    // In folding order.

 private:
  explicit ReductionPlan(ReductionSpec spec) : spec_(std::move(spec)) {}

  std::optional<Failure> AddTerms();   // Sets terms_ and outcome_.
  std::optional<Failure> SetFinish();  // Sets finish_ and finish_constant_.

  ReductionSpec spec_;
  PlanOutcome outcome_ = PlanOutcome::kNone;
  DType accumulator_dtype_ = DType::kUnspecified;
  Combine combine_ = Combine::kAdd;
  Finish finish_ = Finish::kNone;
  double finish_constant_ = 1.0;
  std::vector<Term> terms_;
};

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_PLAN_H_
