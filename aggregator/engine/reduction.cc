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

void AddDigest(Reduction& reduction, const ChunkWork& work) {
  kernels::ContentDigest content;
  content.Update(work.output.data, work.bytes);
  reduction.done.digests.push_back(
      kernels::TermOf(reduction.key, work.chunk, content.Finish()).low);
}

std::optional<kernels::Failure> RunChunk(Reduction& reduction, const kernels::Reducer& reducer,
                                         uint32_t index, kernels::Facts& facts) {
  ChunkWork work;
  if (auto failure = PrepareChunk(reduction, index, work); failure.has_value()) return failure;
  if (work.plan.has_value()) {
    auto failure =
        reducer.Reduce(*work.plan, work.inputs.data(), 0, nullptr, work.span, work.output, &facts);
    if (failure.has_value()) return failure;
  }
  CompleteChunk(reduction, work);
  return std::nullopt;
}

}  // namespace

void OpenReduction(Reduction& reduction, BufferPool& pool) {
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
}

std::optional<kernels::Failure> PrepareChunk(Reduction& reduction, uint32_t index,
                                             ChunkWork& work) {
  const std::vector<ChunkInput>& inputs = reduction.inputs[index];
  auto plan = kernels::ReductionPlan::Make(SpecOf(reduction, inputs));
  if (!plan.ok()) return plan.failure();
  work.chunk = reduction.action.range.first + index;
  work.bytes = ChunkSize(TensorBytes(reduction.tensor).value_or(0), work.chunk);
  work.output.data = reduction.result->data() + uint64_t{index} * kChunkBytes;
  // The worker that pushed this has weight 0, and the others are averaged as zeros (ALL) or the
  // value says that there is no result.
  if (plan.value().outcome() != kernels::PlanOutcome::kReduce) {
    std::memset(work.output.data, 0, work.bytes);
    return std::nullopt;
  }

  std::vector<size_t> begins;
  for (const ChunkInput& input : inputs) {
    begins.push_back(work.slices.size());
    if (input.part.owner == nullptr) continue;
    ForEachPiece(input.part, [&](std::string_view piece) {
      work.slices.push_back({piece.data(), piece.size()});
    });
  }
  begins.push_back(work.slices.size());
  work.inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    work.inputs[i] = {work.slices.data() + begins[i], begins[i + 1] - begins[i]};
  }

  const DType dtype = reduction.tensor.dtype;
  const size_t element = ElementSize(dtype);
  work.span.first = uint64_t{work.chunk} * (kChunkBytes / element);
  work.span.count = work.bytes / element;
  // The kernels read what the plan says, whatever came.
  for (size_t i = 0; i < inputs.size(); ++i) {
    const kernels::Contribution& contribution = plan.value().spec().contributions[i];
    const uint64_t expected = work.span.count * ElementSize(contribution.wire_dtype);
    if (contribution.skipped || inputs[i].part.size == expected) continue;
    return kernels::Failure{
        kernels::FailureCode::kInvalidArgument,
        absl::StrCat("chunk ", work.chunk, " of tensor ", reduction.tensor.name, " has ",
                     inputs[i].part.size, " bytes from worker ",
                     reduction.terms->contributors[i].worker, ", not ", expected)};
  }
  work.plan = std::move(plan).value();
  if (IsFloatingPoint(dtype)) {
    work.leaves.resize(kernels::NormLeaves(work.span.count));
    work.output.norm_leaves = work.leaves.data();
  }
  return std::nullopt;
}

void CompleteChunk(Reduction& reduction, const ChunkWork& work) {
  AddDigest(reduction, work);
  if (!work.plan.has_value()) {
    reduction.done.facts.squared_norms.emplace_back();
  } else if (!work.leaves.empty()) {
    reduction.done.facts.squared_norms.push_back(NormOf(work.leaves, work.span.count));
  }
}

void CloseReduction(Reduction& reduction, const kernels::Facts& facts) {
  ReduceDone& done = reduction.done;
  done.facts.overflow = facts.overflows > 0 || facts.integer_wraps > 0;
  if (facts.first_non_finite_input.has_value()) {
    const auto& found = *facts.first_non_finite_input;
    done.facts.nonfinite = NonFinite{reduction.terms->contributors[found.contribution].worker,
                                     reduction.action.range.tensor, found.element};
  }
  reduction.inputs.clear();
}

void Run(Reduction& reduction, const kernels::Reducer& reducer, BufferPool& pool) {
  const auto began = std::chrono::steady_clock::now();
  OpenReduction(reduction, pool);
  kernels::Facts facts;
  for (uint32_t i = 0; i < reduction.action.range.count; ++i) {
    if (auto failure = RunChunk(reduction, reducer, i, facts); failure.has_value()) {
      reduction.done.failure = std::move(failure->message);
      break;
    }
  }
  CloseReduction(reduction, facts);
  reduction.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace basin::aggregator
