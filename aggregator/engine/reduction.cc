// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/reduction.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "kernels/plan.h"
#include "runtime/contents.h"

namespace basin::aggregator {
namespace {

constexpr uint64_t kTensorAlignment = 64;  // A line of the cache.

kernels::ReductionSpec SpecOf(const Reduction& reduction, DType dtype,
                              const std::vector<ChunkInput>& inputs) {
  const RoundSpec& round = reduction.terms->spec;
  kernels::ReductionSpec spec;
  spec.op = round.op;
  spec.tensor_dtype = dtype;
  spec.result_dtype = dtype;
  spec.prescale = round.prescale;
  spec.postscale = round.postscale;
  spec.predivide = round.predivide;
  spec.divisor = reduction.action.divisor;
  spec.contributions.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    kernels::Contribution& contribution = spec.contributions[i];
    contribution.wire_dtype =
        inputs[i].wire_dtype == DType::kUnspecified ? dtype : inputs[i].wire_dtype;
    contribution.wire_scale_exponent = inputs[i].wire_exponent;
    const Contributor& contributor = reduction.terms->contributors[i];
    contribution.weight = contributor.weight;
    const bool weighted = round.kind == ContributionKind::kSum || contributor.is_partial();
    contribution.kind =
        weighted ? kernels::ContributionKind::kSum : kernels::ContributionKind::kMean;
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

// Where the chunks go in the result, and its size. Chunks of a tensor follow each other, as in a
// frame; tensors begin where any element may.
uint64_t PlaceChunks(Reduction& reduction) {
  uint64_t end = 0;
  for (size_t i = 0; i < reduction.tensors.size(); ++i) {
    const ChunkRange& range = reduction.action.ranges[i];
    const uint64_t tensor_bytes = TensorBytes(reduction.tensors[i].spec).value_or(0);
    end = reduction.half != nullptr
              ? reduction.half->PlaceOf(range.tensor, range.first)
              : (end + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    for (uint32_t chunk = range.first; chunk < range.first + range.count; ++chunk) {
      reduction.chunks.push_back({i, chunk, end, ChunkSize(tensor_bytes, chunk)});
      end += reduction.chunks.back().bytes;
    }
  }
  return end;
}

// Whether `a` counts as the first value that was not finite; see Attempt.
bool ComesFirst(const NonFinite& a, const std::optional<NonFinite>& b) {
  return !b.has_value() ||
         std::tie(a.tensor, a.worker, a.element) < std::tie(b->tensor, b->worker, b->element);
}

void NoteFacts(Reduction& reduction, TensorIndex tensor, const kernels::Facts& facts) {
  ChunkFacts& noted = reduction.done.facts;
  noted.overflow |= facts.overflows > 0 || facts.integer_wraps > 0;
  if (!facts.first_non_finite_input.has_value()) return;
  const auto& found = *facts.first_non_finite_input;
  NonFinite nonfinite{reduction.terms->contributors[found.contribution].worker, tensor,
                      found.element};
  if (ComesFirst(nonfinite, noted.nonfinite)) noted.nonfinite = std::move(nonfinite);
}

}  // namespace

void OpenReduction(Reduction& reduction, BufferPool& pool) {
  const Reduce& action = reduction.action;
  ReduceDone& done = reduction.done;
  done.job = action.job;
  done.lane = action.lane;
  done.round = action.round;
  done.ballot = action.ballot;
  done.ranges = action.ranges;
  const uint64_t bytes = PlaceChunks(reduction);
  if (reduction.half != nullptr) {
    reduction.result = reduction.half;
  } else {
    reduction.result = pool.Take(bytes);
  }
}

std::optional<kernels::Failure> PrepareChunk(Reduction& reduction, size_t index, ChunkWork& work) {
  const Reduction::Target& target = reduction.chunks[index];
  const TensorSpec& tensor = reduction.tensors[target.tensor].spec;
  const std::vector<ChunkInput>& inputs = reduction.inputs[index];
  auto plan = kernels::ReductionPlan::Make(SpecOf(reduction, tensor.dtype, inputs));
  if (!plan.ok()) return plan.failure();
  work.target = target;
  work.output.data = reduction.result->data() + target.offset;
  // The worker that pushed this has weight 0, and the others are averaged as zeros (ALL) or the
  // value records that there is no result.
  if (plan.value().outcome() != kernels::PlanOutcome::kReduce) {
    std::memset(work.output.data, 0, target.bytes);
    return std::nullopt;
  }

  absl::InlinedVector<size_t, 9> begins;
  work.slices.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ChunkInput& input = inputs[i];
    begins.push_back(work.slices.size());
    if (input.part.owner == nullptr) continue;
    if (const DevicePlace* target = input.part.owner->on_device()) {
      work.device_inputs.resize(inputs.size());
      work.addresses.resize(inputs.size());
      work.device_inputs[i] = {target->segment.get(), target->offset + input.part.offset,
                               input.part.size};
      work.addresses[i] = target->at() + input.part.offset;
      continue;
    }
    ForEachPiece(input.part, [&](std::string_view piece) {
      work.slices.push_back({piece.data(), piece.size()});
    });
  }
  begins.push_back(work.slices.size());
  work.inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    work.inputs[i] = {work.slices.data() + begins[i], begins[i + 1] - begins[i]};
  }

  const size_t element = ElementSize(tensor.dtype);
  work.span.first = uint64_t{target.chunk} * (kChunkBytes / element);
  work.span.count = target.bytes / element;
  // The kernels read what the plan expects, whatever came.
  for (size_t i = 0; i < inputs.size(); ++i) {
    const kernels::Contribution& contribution = plan.value().spec().contributions[i];
    const uint64_t expected = work.span.count * ElementSize(contribution.wire_dtype);
    if (contribution.skipped || inputs[i].part.size == expected) continue;
    return kernels::Failure{
        kernels::FailureCode::kInvalidArgument,
        absl::StrCat("chunk ", target.chunk, " of tensor ", tensor.name, " has ",
                     inputs[i].part.size, " bytes from worker ",
                     reduction.terms->contributors[i].worker, ", not ", expected)};
  }
  work.plan = std::move(plan).value();
  if (IsFloatingPoint(tensor.dtype)) {
    work.leaves.resize(kernels::NormLeaves(work.span.count));
    work.output.norm_leaves = work.leaves.data();
  }
  return std::nullopt;
}

namespace {

// Copies the inputs that are on a device to the host.
std::optional<kernels::Failure> FetchInputs(ChunkWork& work) {
  std::vector<kernels::Slice>& slices = work.fetched_slices;
  slices.resize(work.device_inputs.size());
  for (size_t i = 0; i < work.device_inputs.size(); ++i) {
    const DeviceInput& input = work.device_inputs[i];
    if (input.segment == nullptr) continue;
    work.fetched.emplace_back(new char[input.size]);
    char* const bytes = work.fetched.back().get();
    if (auto failure = input.segment->Read(bytes, input.offset, input.size)) return failure;
    slices[i] = {bytes, input.size};
    work.inputs[i] = {&slices[i], 1};
  }
  work.device_inputs.clear();
  return std::nullopt;
}

}  // namespace

bool HasDeviceInput(const Reduction& reduction) {
  for (const std::vector<ChunkInput>& chunk : reduction.inputs) {
    for (const ChunkInput& input : chunk) {
      if (input.part.owner != nullptr && input.part.owner->on_device() != nullptr) return true;
    }
  }
  return false;
}

std::optional<kernels::Failure> ReduceChunk(const kernels::Reducer& reducer, ChunkWork& work) {
  if (!work.plan.has_value()) return std::nullopt;
  if (auto failure = FetchInputs(work)) return failure;
  return reducer.Reduce(*work.plan, work.inputs.data(), work.span, work.output, &work.facts);
}

void CompleteChunk(Reduction& reduction, const ChunkWork& work) {
  kernels::ContentDigest content;
  content.Update(work.output.data, work.target.bytes);
  reduction.done.digests.push_back(
      DigestOf(reduction.tensors[work.target.tensor].key, work.target.chunk, content.Finish()));
  // Integers have no norm, and the norm of zeros is zero.
  reduction.done.facts.squared_norms.push_back(
      work.leaves.empty() ? ChunkNorm{} : NormOf(work.leaves, work.span.count));
  NoteFacts(reduction, reduction.action.ranges[work.target.tensor].tensor, work.facts);
}

void FailChunk(Reduction& reduction, size_t index, kernels::Failure failure) {
  reduction.done.failure = std::move(failure.message);
  reduction.done.failed = reduction.action.ranges[reduction.chunks[index].tensor].tensor;
}

void CloseReduction(Reduction& reduction) { reduction.inputs.clear(); }

bool RunPart(Reduction& reduction, const kernels::Reducer& reducer, BufferPool& pool,
             uint64_t bytes) {
  const auto began = std::chrono::steady_clock::now();
  if (reduction.next == 0) OpenReduction(reduction, pool);
  const size_t count = reduction.chunks.size();
  for (uint64_t read = 0; reduction.next < count && read < bytes;) {
    ChunkWork work;
    const size_t at = reduction.next++;
    read += reduction.chunks[at].bytes * reduction.inputs[at].size();
    std::optional<kernels::Failure> failure = PrepareChunk(reduction, at, work);
    if (!failure.has_value()) failure = ReduceChunk(reducer, work);
    if (failure.has_value()) {
      FailChunk(reduction, at, *std::move(failure));
      reduction.next = count;
      break;
    }
    CompleteChunk(reduction, work);
  }
  const bool done = reduction.next == count;
  if (done) CloseReduction(reduction);
  reduction.seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return done;
}

}  // namespace basin::aggregator
