// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/device_checks.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference.h"

namespace basin::kernels::cuda {
namespace {

using accelerator::HostPass;
using accelerator::Memory;
using accelerator::PipelineOptions;
using accelerator::Queue;

using Bytes = std::vector<unsigned char>;

// The least address offset that an element allows, at which vectors are not aligned.
size_t UnalignedOffset(DType dtype) { return ElementSize(dtype); }

ReductionSpec MakeSpec(ReduceOp op, DType dtype, size_t contributors) {
  ReductionSpec spec;
  spec.op = op;
  spec.tensor_dtype = spec.result_dtype = dtype;
  spec.contributions.resize(contributors);
  for (size_t i = 0; i < contributors; ++i) {
    Contribution& contribution = spec.contributions[i];
    contribution.wire_dtype = dtype;
    if (op == ReduceOp::kWeightedAverage) contribution.weight = i % 5;
    contribution.skipped = i % 11 == 7;
  }
  if (IsFloatingPoint(dtype)) spec.prescale = 1.0 / 3;
  spec.divisor = Divisor(op, DivisorPolicy::kAll, spec.contributions).value();
  return spec;
}

// Random bits; of floats, the exponent is kept out of the way unless `any_bits`.
Bytes Draw(DType dtype, size_t count, bool any_bits, std::mt19937_64& random) {
  Bytes bytes(count * ElementSize(dtype));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(random());
  if (IsFloatingPoint(dtype) && !any_bits) {
    const size_t size = ElementSize(dtype);
    for (size_t i = size - 1; i < bytes.size(); i += size) bytes[i] = (bytes[i] & 0x83) | 0x38;
  }
  return bytes;
}

// A reduction with its inputs, and the result of the reference.
struct Problem {
  Problem(const ReductionSpec& spec, size_t count, bool any_bits)
      : plan(ReductionPlan::Make(spec).value()),
        span{3 * kNormLeafElements, count},
        result(count * ElementSize(spec.result_dtype)),
        leaves(NormLeaves(count)) {
    std::mt19937_64 random(count * 1000 + spec.contributions.size());
    for (const Contribution& contribution : spec.contributions) {
      contributions.push_back(Draw(contribution.wire_dtype, count, any_bits, random));
    }
    for (const Bytes& bytes : contributions) slices.push_back({bytes.data(), bytes.size()});
    for (const Slice& slice : slices) inputs.push_back({&slice, 1});
    const std::unique_ptr<Reducer> reference = MakeReferenceReducer();
    (void)reference->Reduce(plan, inputs.data(), span, Output{result.data(), leaves.data()},
                            &facts);
  }

  std::string Describe() const {
    std::ostringstream text;
    text << DTypeName(plan.spec().tensor_dtype) << " " << ReduceOpName(plan.spec().op) << ", "
         << contributions.size() << " contributions, " << span.count << " elements";
    return text.str();
  }

  // The mistake in another result, or nothing.
  std::string Difference(const std::optional<Failure>& failure, const Bytes& other_result,
                         const std::vector<double>& other_leaves, const Facts& other_facts) const {
    if (failure) return Describe() + ": " + failure->message;
    if (other_result != result) return Describe() + ": other result";
    if (other_facts != facts) return Describe() + ": other facts";
    const bool has_norm = plan.accumulator_dtype() != DType::kI64;
    if (has_norm && !leaves.empty() &&
        std::memcmp(other_leaves.data(), leaves.data(), leaves.size() * sizeof(double)) != 0) {
      return Describe() + ": other norm";
    }
    return {};
  }

  ReductionPlan plan;
  Span span;
  std::vector<Bytes> contributions;
  std::vector<Slice> slices;
  std::vector<Input> inputs;
  Bytes result;
  std::vector<double> leaves;
  Facts facts;
};

void CheckOnHost(const Reducer& reducer, const Problem& problem, contract::Report* report) {
  Bytes result(problem.result.size());
  std::vector<double> leaves(problem.leaves.size());
  Facts facts;
  const auto failure = reducer.Reduce(problem.plan, problem.inputs.data(), problem.span,
                                      Output{result.data(), leaves.data()}, &facts);
  report->Add(problem.Difference(failure, result, leaves, facts));
}

// Bytes on a device, `offset` from an aligned address.
class Array {
 public:
  Array(Device* device, size_t size, size_t offset)
      : size_(size),
        offset_(offset),
        queue_(device->MakeQueue().value()),
        pinned_(device->AllocatePinned(size + 1).value()),
        memory_(device->AllocateOnDevice(size + offset + 1).value()) {}

  void* data() const { return static_cast<unsigned char*>(memory_.get()) + offset_; }

  void Put(const Bytes& bytes) {
    if (!bytes.empty()) std::memcpy(pinned_.get(), bytes.data(), size_);
    trouble_ = queue_->CopyToDevice(data(), pinned_.get(), size_);
    if (!trouble_) trouble_ = queue_->Wait();
  }

  const std::optional<Failure>& trouble() const { return trouble_; }

 private:
  const size_t size_;
  const size_t offset_;
  std::unique_ptr<Queue> queue_;
  Memory pinned_;
  Memory memory_;
  std::optional<Failure> trouble_;
};

// `unaligned`: the index of the contribution that is not aligned to 16 bytes; none if there are
// fewer.
void CheckOnDevice(DevicePipeline* pipeline, Device* device, const Problem& problem,
                   size_t unaligned, contract::Report* report) {
  std::vector<std::unique_ptr<Array>> arrays;
  std::vector<const void*> inputs;
  std::optional<Failure> failure;
  for (size_t i = 0; i < problem.contributions.size(); ++i) {
    const DType dtype = problem.plan.spec().contributions[i].wire_dtype;
    const size_t offset = i == unaligned ? UnalignedOffset(dtype) : 0;
    const Bytes& bytes = problem.contributions[i];
    arrays.push_back(std::make_unique<Array>(device, bytes.size(), offset));
    arrays.back()->Put(bytes);
    inputs.push_back(arrays.back()->data());
    if (!failure) failure = arrays.back()->trouble();
  }
  Bytes result(problem.result.size());
  std::vector<double> leaves(problem.leaves.size());
  Facts facts;
  const auto done = [&failure](const std::optional<Failure>& why) {
    if (!failure) failure = why;
  };
  pipeline->Finish(pipeline->Start({{&problem.plan, problem.inputs.data(), problem.span,
                                     Output{result.data(), leaves.data()}, &facts, inputs.data()}},
                                   done));
  std::string difference = problem.Difference(failure, result, leaves, facts);
  if (!difference.empty()) difference += ", unaligned array " + std::to_string(unaligned);
  report->Add(difference);
}

}  // namespace

contract::Report CheckManyTerms(Device* device) {
  const PipelineReducer reducer(device);
  contract::Report report;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI32}) {
    for (size_t contributors : {kMaxTermsPerTask - 1, kMaxTermsPerTask}) {
      for (ReduceOp op :
           {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kWeightedAverage, ReduceOp::kMax}) {
        const bool averages = op == ReduceOp::kAverage || op == ReduceOp::kWeightedAverage;
        if (averages && !IsFloatingPoint(dtype)) continue;
        for (const bool any_bits : {false, true}) {
          ReductionSpec spec = MakeSpec(op, dtype, contributors);
          for (Contribution& contribution : spec.contributions) contribution.skipped = false;
          const Problem problem(spec, 1500 + contributors, any_bits);
          CheckOnHost(reducer, problem, &report);
        }
      }
    }
  }
  return report;
}

contract::Report CheckManyPieces(Device* device) {
  const PipelineReducer reducer(device);
  contract::Report report;
  // A slot has room for one leaf of so many contributions of f64.
  for (size_t count : {kNormLeafElements, 2 * kNormLeafElements, 5 * kNormLeafElements + 77}) {
    const Problem problem(MakeSpec(ReduceOp::kAverage, DType::kF64, 64), count, true);
    CheckOnHost(reducer, problem, &report);
  }
  for (size_t count : {32 * kNormLeafElements - 1, 165 * kNormLeafElements + 3}) {
    const Problem problem(MakeSpec(ReduceOp::kSum, DType::kBF16, 2), count, true);
    CheckOnHost(reducer, problem, &report);
  }
  return report;
}

contract::Report CheckOnDevice(Device* device) {
  contract::Report report;
  auto made = DevicePipeline::Make(device, {});
  if (!made.ok()) {
    report.Add(made.failure().message);
    return report;
  }
  DevicePipeline* const pipeline = made.value().get();
  for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32,
                      DType::kU8}) {
    for (size_t count : {size_t{1}, size_t{15}, size_t{1025}, 2 * kNormLeafElements + 4099}) {
      for (size_t contributors : {1u, 5u}) {
        const Problem problem(MakeSpec(ReduceOp::kSum, dtype, contributors), count, count == 1025);
        for (size_t unaligned = 0; unaligned < contributors + 2; unaligned += 2) {
          CheckOnDevice(pipeline, device, problem, unaligned, &report);
        }
      }
    }
  }
  // Pieces.
  const Problem many(MakeSpec(ReduceOp::kAverage, DType::kF32, 60), 133 * kNormLeafElements + 5,
                     false);
  CheckOnDevice(pipeline, device, many, 1000, &report);
  return report;
}

namespace {

// A problem on its way through a pipeline.
struct Attempt {
  explicit Attempt(Problem the_problem)
      : problem(std::move(the_problem)),
        result(problem.result.size()),
        leaves(problem.leaves.size()) {}

  HostPass Pass() {
    return {&problem.plan, problem.inputs.data(), problem.span,
            Output{result.data(), leaves.data()}, &facts};
  }

  Problem problem;
  Bytes result;
  std::vector<double> leaves;
  Facts facts;
};

std::vector<std::unique_ptr<Attempt>> AttemptsOfManyKinds() {
  std::vector<std::unique_ptr<Attempt>> attempts;
  for (size_t count : {size_t{1}, size_t{4099}, 2 * kNormLeafElements, 3 * kNormLeafElements + 5}) {
    for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                        DType::kI32, DType::kU8}) {
      for (size_t contributors : {1u, 3u, 8u}) {
        ReductionSpec spec = MakeSpec(ReduceOp::kSum, dtype, contributors);
        // Some contributions of f32 tensors travel in a narrower dtype.
        if (dtype == DType::kF32 && contributors == 8) {
          spec.contributions[2].wire_dtype = DType::kBF16;
          spec.contributions[3].wire_dtype = DType::kF16;
          spec.contributions[3].wire_scale_exponent = 4;
        }
        attempts.push_back(std::make_unique<Attempt>(Problem(spec, count, count == 4099)));
      }
    }
  }
  return attempts;
}

}  // namespace

contract::Report CheckPipeline(Device* device) {
  contract::Report report;
  size_t expected = 0;
  size_t reported = 0;
  // One leaf of eight contributions of f64, and room for many passes.
  const size_t least = 9 * (kNormLeafElements * sizeof(double) + 2 * kAlignment) + 16384;
  for (size_t slot_bytes : {least, size_t{16} << 20}) {
    for (size_t slots : {1u, 2u, 3u}) {
      PipelineOptions options;
      options.slots = slots;
      options.slot_bytes = slot_bytes;
      auto pipeline = DevicePipeline::Make(device, options);
      if (!pipeline.ok()) {
        report.Add(pipeline.failure().message);
        continue;
      }
      std::vector<std::unique_ptr<Attempt>> attempts = AttemptsOfManyKinds();
      DevicePipeline::Ticket last = 0;
      constexpr size_t kPerStart = 5;
      for (size_t begin = 0; begin < attempts.size(); begin += kPerStart) {
        const size_t end = std::min(begin + kPerStart, attempts.size());
        std::vector<HostPass> passes;
        for (size_t i = begin; i < end; ++i) passes.push_back(attempts[i]->Pass());
        last = pipeline.value()->Start(std::move(passes), [&, begin, end](const auto& failure) {
          for (size_t i = begin; i < end; ++i) {
            const Attempt& a = *attempts[i];
            report.Add(a.problem.Difference(failure, a.result, a.leaves, a.facts));
            ++reported;
          }
        });
      }
      pipeline.value()->Finish(last);
      expected += attempts.size();
      report.Add(reported == expected ? "" : "not every pass was reported once");
    }
  }
  return report;
}

std::optional<Failure> PipelineReducer::Reduce(const ReductionPlan& plan, const Input* inputs,
                                               const Span& span, const Output& output,
                                               Facts* facts) const {
  if (!pipeline_->Fits(plan)) return reference_->Reduce(plan, inputs, span, output, facts);
  std::optional<Failure> failure;
  const auto done = [&failure](const std::optional<Failure>& why) { failure = why; };
  pipeline_->Finish(pipeline_->Start({{&plan, inputs, span, output, facts}}, done));
  return failure;
}

}  // namespace basin::kernels::cuda
