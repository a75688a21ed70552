// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/nccl/bucket.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "accelerator/transfer/staging.h"
#include "kernels/facts.h"

namespace basin::accelerator::nccl {
namespace {

using kernels::Finish;
using kernels::kNormLeafElements;
using kernels::PlanOutcome;
using kernels::ReductionPlan;
using kernels::Term;
using kernels::cuda::kAlignment;

constexpr size_t kMaxElementSize = 8;

unsigned char* Shifted(const void* data, uint64_t bytes) {
  return const_cast<unsigned char*>(static_cast<const unsigned char*>(data)) + bytes;
}

// The type in which ncclReduce adds.
DType AddedType(const ReductionPlan& plan) {
  const DType tensor = plan.spec().tensor_dtype;
  return IsFloatingPoint(tensor) ? plan.accumulator_dtype() : tensor;
}

DataType ToNccl(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return kFloat64;
    case DType::kI64:
      return kInt64;
    case DType::kI32:
      return kInt32;
    case DType::kU8:
      return kUint8;
    default:
      return kFloat32;
  }
}

RedOp ToNccl(kernels::Combine combine) {
  switch (combine) {
    case kernels::Combine::kMultiply:
      return kProd;
    case kernels::Combine::kMin:
      return kMin;
    case kernels::Combine::kMax:
      return kMax;
    case kernels::Combine::kAdd:
      break;
  }
  return kSum;
}

const Term* TermOf(const ReductionPlan& plan, int index) {
  for (const Term& term : plan.terms()) {
    if (term.contribution == static_cast<size_t>(index)) return &term;
  }
  return nullptr;
}

// Scratch memory of a piece with this number of elements.
size_t ScratchOf(const ReductionPlan& plan, GroupMode mode, const Position& position,
                 uint64_t count) {
  if (mode == GroupMode::kFast) return 2 * RoundUp(count * ElementSize(AddedType(plan)));
  size_t bytes = 0;
  for (const Term& term : plan.terms()) {
    if (term.contribution == static_cast<size_t>(position.leader)) continue;
    bytes += RoundUp(count * ElementSize(term.wire_dtype));
  }
  return bytes;
}

// Among numbers and NaN, the plan's minimum and maximum are NaN, and NCCL's are a number.
bool LosesNan(const ReductionPlan& plan) {
  const bool compares =
      plan.combine() == kernels::Combine::kMin || plan.combine() == kernels::Combine::kMax;
  return compares && IsFloatingPoint(plan.spec().tensor_dtype);
}

// The most elements of a piece for which the scratch memory suffices: whole leaves, so that pieces
// begin at aligned addresses.
uint64_t MostElements(const ReductionPlan& plan, GroupMode mode, const Position& position,
                      size_t scratch_bytes) {
  const size_t of_leaf = ScratchOf(plan, mode, position, kNormLeafElements);
  const size_t leaves = of_leaf == 0 ? scratch_bytes : scratch_bytes / of_leaf;
  return std::max<uint64_t>(leaves, 1) * kNormLeafElements;
}

}  // namespace

DType ResultType(const GroupTensor& tensor) {
  return tensor.finish ? tensor.plan->spec().result_dtype : AddedType(*tensor.plan);
}

absl::Status CheckPlans(const std::vector<GroupTensor>& tensors, const Position& position) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const GroupTensor& tensor = tensors[i];
    const std::string name = absl::StrCat("tensor ", i, " of the bucket");
    if (tensor.plan == nullptr) continue;
    const size_t planned = tensor.plan->spec().contributions.size();
    if (planned != static_cast<size_t>(position.size)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is planned for ", planned,
                                                     " ranks, and the group has ", position.size));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOwnPart(const std::vector<GroupTensor>& tensors, const Position& position) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const GroupTensor& tensor = tensors[i];
    const std::string name = absl::StrCat("tensor ", i, " of the bucket");
    if (tensor.plan == nullptr) return absl::InvalidArgumentError(name + " has no plan");
    if (tensor.plan->outcome() != PlanOutcome::kReduce || tensor.count == 0) continue;
    if (tensor.input == nullptr && TermOf(*tensor.plan, position.index) != nullptr) {
      return absl::InvalidArgumentError(name + " has no data");
    }
    if (tensor.result == nullptr && position.leads()) {
      return absl::InvalidArgumentError(name + " has no memory for its result");
    }
  }
  return absl::OkStatus();
}

size_t LeastScratchBytes() {
  return kMostRanks * (kNormLeafElements * kMaxElementSize + kAlignment);
}

std::vector<Step> StepsOf(const std::vector<GroupTensor>& tensors, GroupMode mode,
                          const Position& position, size_t scratch_bytes) {
  std::vector<Step> steps;
  size_t used = 0;
  size_t messages = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ReductionPlan& plan = *tensors[i].plan;
    if (plan.outcome() != PlanOutcome::kReduce) continue;
    const bool whole = plan.terms().size() == static_cast<size_t>(position.size);
    const bool fast = mode == GroupMode::kFast && whole && !LosesNan(plan);
    const GroupMode of_tensor = fast ? GroupMode::kFast : GroupMode::kDeterministic;
    const uint64_t most = MostElements(plan, of_tensor, position, scratch_bytes);
    for (uint64_t first = 0; first < tensors[i].count; first += most) {
      Piece piece{i, first, std::min(most, tensors[i].count - first), 0};
      const size_t needed = ScratchOf(plan, of_tensor, position, piece.count);
      messages += plan.terms().size();
      const bool fits = !steps.empty() && steps.back().mode == of_tensor &&
                        used + needed <= scratch_bytes && messages <= kMostMessages;
      if (!fits) {
        steps.push_back({of_tensor, {}});
        used = 0;
        messages = plan.terms().size();
      }
      piece.scratch = used;
      used += needed;
      steps.back().pieces.push_back(piece);
    }
  }
  return steps;
}

// ---- the work of a piece

ReduceTask PieceWork::Task() const {
  ReduceTask task = TaskOf(*tensor_.plan);
  task.count = piece_.count;
  task.facts = facts_;
  task.aligned = true;
  return task;
}

void* PieceWork::Result() const {
  return Shifted(tensor_.result, piece_.first * ElementSize(ResultType(tensor_)));
}

std::vector<PieceWork::Message> PieceWork::Messages() const {
  std::vector<Message> messages;
  size_t at = piece_.scratch;
  for (const Term& term : tensor_.plan->terms()) {
    const int from = static_cast<int>(term.contribution);
    if (from == position_.leader) continue;
    const size_t bytes = piece_.count * ElementSize(term.wire_dtype);
    if (position_.leads()) {
      messages.push_back({from, Shifted(scratch_, at), bytes});
      at += RoundUp(bytes);
    } else if (from == position_.index) {
      const uint64_t before = piece_.first * ElementSize(term.wire_dtype);
      messages.push_back({position_.leader, Shifted(tensor_.input, before), bytes});
    }
  }
  return messages;
}

ReduceTask PieceWork::Fold() const {
  ReduceTask task = Task();
  size_t at = piece_.scratch;
  for (const Term& term : tensor_.plan->terms()) {
    const size_t size = ElementSize(term.wire_dtype);
    const void* data = Shifted(scratch_, at);
    if (term.contribution == static_cast<size_t>(position_.index)) {
      data = Shifted(tensor_.input, piece_.first * size);
    } else {
      at += RoundUp(piece_.count * size);
    }
    task.terms[task.term_count++] = ToTaskTerm(term, data);
    task.aligned = task.aligned && IsAligned(data);
  }
  if (!tensor_.finish) {
    task.finish = Finish::kNone;
    task.finish_constant = 1.0;
  }
  task.result_dtype = ResultType(tensor_);
  task.output = Result();
  task.aligned = task.aligned && IsAligned(task.output);
  return task;
}

unsigned char* PieceWork::Sum() const {
  const size_t scaled = RoundUp(piece_.count * ElementSize(AddedType(*tensor_.plan)));
  return Shifted(scratch_, piece_.scratch + scaled);
}

bool PieceWork::Scales() const {
  const Term& term = *TermOf(*tensor_.plan, position_.index);
  return term.factor != 1.0 || term.unscale != 1.0 || term.wire_dtype != AddedType(*tensor_.plan);
}

bool PieceWork::Finishes() const {
  return tensor_.finish && (tensor_.plan->finish() != Finish::kNone ||
                            ResultType(tensor_) != AddedType(*tensor_.plan));
}

std::optional<ReduceTask> PieceWork::Scale() const {
  if (!Scales()) return std::nullopt;
  const Term& term = *TermOf(*tensor_.plan, position_.index);
  const void* const data = Shifted(tensor_.input, piece_.first * ElementSize(term.wire_dtype));
  ReduceTask task = Task();
  task.terms[task.term_count++] = ToTaskTerm(term, data);
  task.finish = Finish::kNone;
  task.finish_constant = 1.0;
  task.result_dtype = AddedType(*tensor_.plan);
  task.output = Shifted(scratch_, piece_.scratch);
  task.aligned = IsAligned(data);
  return task;
}

PieceWork::Collective PieceWork::Reduction() const {
  const DType added = AddedType(*tensor_.plan);
  const uint64_t before = piece_.first * ElementSize(added);
  Collective collective;
  collective.from = Scales() ? Shifted(scratch_, piece_.scratch) : Shifted(tensor_.input, before);
  // Other positions receive nothing, but NCCL wants an address.
  collective.to = position_.leads() && !Finishes() ? Result() : Sum();
  collective.count = piece_.count;
  collective.type = ToNccl(added);
  collective.op = ToNccl(tensor_.plan->combine());
  return collective;
}

std::optional<ReduceTask> PieceWork::Finish() const {
  if (!position_.leads() || !Finishes()) return std::nullopt;
  ReduceTask task = Task();
  task.terms[task.term_count++] = {Sum(), 1.0, 1.0, 0, AddedType(*tensor_.plan)};
  task.output = Result();
  task.aligned = IsAligned(task.output);
  return task;
}

}  // namespace basin::accelerator::nccl
