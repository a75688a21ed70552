// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/reduction.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/plan.h"

namespace basin::aggregator {
namespace {

kernels::ReductionSpec SpecOf(const Reduction& reduction, const std::vector<ChunkInput>& inputs) {
  const RoundSpec& round = reduction.terms->spec;
  kernels::ReductionSpec spec;
  spec.op = round.op;
  spec.tensor_dtype = reduction.tensor.dtype;
  spec.result_dtype = reduction.tensor.dtype;
  spec.prescale = round.prescale;
  spec.postscale = round.postscale;
  spec.predivide = round.predivide;
  spec.divisor = reduction.action.divisor;
  spec.contributions.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    kernels::Contribution& contribution = spec.contributions[i];
    contribution.wire_dtype =
        inputs[i].wire_dtype == DType::kUnspecified ? reduction.tensor.dtype : inputs[i].wire_dtype;
    contribution.wire_scale_exponent = inputs[i].wire_exponent;
    contribution.weight = reduction.terms->contributors[i].weight;
    contribution.kind = round.kind == ContributionKind::kMean ? kernels::ContributionKind::kMean
                                                              : kernels::ContributionKind::kSum;
  }
  for (const uint32_t position : reduction.action.skipped) {
    spec.contributions[position].skipped = true;
  }
  return spec;
}

static_assert(kChunkBytes / sizeof(uint16_t) <= 2 * kernels::kNormBlockElements,
              "no chunk is more than two blocks of the norm");
static_assert(kChunkBytes / sizeof(double) * 2 == kernels::kNormBlockElements,
              "two chunks of f64 are a block");

ChunkNorm NormOf(const std::vector<double>& leaves, size_t elements) {
  ChunkNorm norm;
  norm.first = kernels::NormBlock(leaves.data(), leaves.size(), 0);
  if (kernels::NormBlocks(elements) > 1) {
    norm.second = kernels::NormBlock(leaves.data(), leaves.size(), 1);
  }
  return norm;
}

// Reduces chunk `index` of the range to where it belongs in the result.
std::optional<kernels::Failure> RunChunk(Reduction& reduction, const kernels::Reducer& reducer,
                                         uint32_t index, uint64_t offset, uint64_t bytes,
                                         kernels::Facts& facts) {
  const std::vector<ChunkInput>& inputs = reduction.inputs[index];
  auto plan = kernels::ReductionPlan::Make(SpecOf(reduction, inputs));
  if (!plan.ok()) return plan.failure();
  const uint32_t chunk = reduction.action.range.first + index;
  const auto add_digest = [&] {
    kernels::ContentDigest content;
    content.Update(reduction.result->data() + offset, bytes);
    reduction.done.digests.push_back(kernels::TermOf(reduction.key, chunk, content.Finish()).low);
  };
  // The worker that pushed this has weight 0, and the others are averaged as zeros (ALL) or the
  // value says that there is no result.
  if (plan.value().outcome() != kernels::PlanOutcome::kReduce) {
    std::memset(reduction.result->data() + offset, 0, bytes);
    add_digest();
    reduction.done.facts.squared_norms.emplace_back();
    return std::nullopt;
  }

  std::vector<kernels::Slice> slices;
  std::vector<size_t> begins;
  for (const ChunkInput& input : inputs) {
    begins.push_back(slices.size());
    if (input.part.owner == nullptr) continue;
    ForEachPiece(input.part, [&](std::string_view piece) {
      slices.push_back({piece.data(), piece.size()});
    });
  }
  begins.push_back(slices.size());
  std::vector<kernels::Input> gathered(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    gathered[i] = {slices.data() + begins[i], begins[i + 1] - begins[i]};
  }

  const DType dtype = reduction.tensor.dtype;
  const size_t element = ElementSize(dtype);
  kernels::Span span;
  span.first = uint64_t{chunk} * (kChunkBytes / element);
  span.count = bytes / element;
  // The kernels read what the plan says, whatever came.
  for (size_t i = 0; i < inputs.size(); ++i) {
    const kernels::Contribution& contribution = plan.value().spec().contributions[i];
    const uint64_t expected = span.count * ElementSize(contribution.wire_dtype);
    if (contribution.skipped || inputs[i].part.size == expected) continue;
    return kernels::Failure{
        kernels::FailureCode::kInvalidArgument,
        absl::StrCat("chunk ", chunk, " of tensor ", reduction.tensor.name, " has ",
                     inputs[i].part.size, " bytes from worker ",
                     reduction.terms->contributors[i].worker, ", not ", expected)};
  }
  std::vector<double> leaves(IsFloatingPoint(dtype) ? kernels::NormLeaves(span.count) : 0);
  kernels::Output output;
  output.data = reduction.result->data() + offset;
  output.norm_leaves = leaves.empty() ? nullptr : leaves.data();
  if (auto failure =
          reducer.Reduce(plan.value(), gathered.data(), 0, nullptr, span, output, &facts);
      failure.has_value()) {
    return failure;
  }
  add_digest();
  if (!leaves.empty()) reduction.done.facts.squared_norms.push_back(NormOf(leaves, span.count));
  return std::nullopt;
}

}  // namespace

void Run(Reduction& reduction, const kernels::Reducer& reducer, BufferPool& pool) {
  const auto began = std::chrono::steady_clock::now();
  const Reduce& action = reduction.action;
  ReduceDone& done = reduction.done;
  done.job = action.job;
  done.lane = action.lane;
  done.round = action.round;
  done.ballot = action.ballot;
  done.range = action.range;

  const uint64_t tensor_bytes = TensorBytes(reduction.tensor).value_or(0);
  const uint64_t begin = uint64_t{action.range.first} * kChunkBytes;
  const uint64_t end = std::min(begin + uint64_t{action.range.count} * kChunkBytes, tensor_bytes);
  reduction.result = pool.Take(end - begin);
  kernels::Facts facts;
  for (uint32_t i = 0; i < action.range.count; ++i) {
    const uint64_t bytes = ChunkSize(tensor_bytes, action.range.first + i);
    if (auto failure = RunChunk(reduction, reducer, i, uint64_t{i} * kChunkBytes, bytes, facts);
        failure.has_value()) {
      done.failure = std::move(failure->message);
      break;
    }
  }
  done.facts.overflow = facts.overflows > 0 || facts.integer_wraps > 0;
  if (facts.first_non_finite_input.has_value()) {
    const auto& found = *facts.first_non_finite_input;
    done.facts.nonfinite = NonFinite{reduction.terms->contributors[found.contribution].worker,
                                     action.range.tensor, found.element};
  }
  reduction.inputs.clear();
  reduction.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace basin::aggregator
