// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/outcome.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "client/transport/timeline.h"

namespace basin::client {

std::optional<double> RoundResult::SquaredNormOf(const RoundValue& value,
                                                 const std::vector<TensorSpec>& layout) {
  const std::vector<uint64_t> divisors = DivisorsOf(value);
  for (TensorIndex index = 0; index < std::min(divisors.size(), layout.size()); ++index) {
    if (divisors[index] != 0 && IsFloatingPoint(layout[index].dtype)) {
      return value.facts.squared_norm;
    }
  }
  return std::nullopt;
}

std::string RoundResult::NonFiniteOf(const RoundValue& value,
                                     const std::vector<TensorSpec>& layout) {
  const std::optional<NonFinite>& nonfinite = value.facts.nonfinite;
  const bool named = nonfinite.has_value() && nonfinite->tensor < layout.size();
  return named ? layout[nonfinite->tensor].name : "";
}

std::shared_ptr<const RoundResult> RoundResult::WithoutTensors() const {
  return std::shared_ptr<const RoundResult>(
      new RoundResult(record_, rejected_, squared_norm_, nonfinite_tensor_));
}

// REQUIRES: the tensor has an index.
RoundResult::TensorFacts RoundResult::FactsAt(const Tensor& tensor, uint64_t divisor) const {
  TensorFacts facts;
  facts.divisor = divisor;
  const std::vector<double>& norms = record_.value.facts.tensor_squared_norms;
  if (divisor != 0 && IsFloatingPoint(tensor.dtype) && *tensor.index < norms.size()) {
    facts.squared_norm = norms[*tensor.index];
  }
  return facts;
}

RoundResult::TensorFacts RoundResult::FactsOf(TensorHandle tensor) const {
  if (tensor >= tensors_.size() || !tensors_[tensor].index.has_value()) return {};
  return FactsAt(tensors_[tensor], DivisorOf(record_.value, *tensors_[tensor].index));
}

std::vector<RoundResult::TensorFacts> RoundResult::AllFacts() const {
  const std::vector<uint64_t> divisors = DivisorsOf(record_.value);
  std::vector<TensorFacts> facts(tensors_.size());
  for (TensorHandle tensor = 0; tensor < tensors_.size(); ++tensor) {
    const std::optional<TensorIndex> index = tensors_[tensor].index;
    if (index.has_value() && *index < divisors.size()) {
      facts[tensor] = FactsAt(tensors_[tensor], divisors[*index]);
    }
  }
  return facts;
}

// REQUIRES: the tensor has no result.
std::string RoundResult::WhyNoResult(TensorHandle tensor) const {
  if (tensor >= tensors_.size()) {
    return absl::StrCat("handle ", tensor, ": there are ", tensors_.size(),
                        " tensors in its lane. Use a handle that registration returned");
  }
  const RoundValue& value = record_.value;
  const bool weighted = value.spec.op == ReduceOp::kWeightedAverage;
  const bool present = value.spec.denominator == Denominator::kPresent;
  const char* why = "no contributor pushed it";
  if (weighted && value.divisor == 0) {
    why = "the weights of all contributors are 0";
  } else if (weighted && present) {
    why = "no contributor with a weight above 0 pushed it";
  }
  return absl::StrCat("tensor ", tensors_[tensor].name, ": ", why, ". Keep its old value");
}

absl::Status RoundResult::CopyTo(TensorHandle tensor, void* to, uint64_t size) const {
  if (timeline_ == nullptr) return CopyPart(tensor, size, 0, to, size);
  return CopyTo({{tensor, to, size}});
}

absl::Status RoundResult::CopyPart(TensorHandle tensor, uint64_t size, uint64_t begin, void* to,
                                   uint64_t count) const {
  if (!Has(tensor)) {
    return absl::NotFoundError(
        absl::StrCat("Round ", record_.round, " has no result for ", WhyNoResult(tensor), "."));
  }
  const TensorIndex index = *tensors_[tensor].index;
  absl::Status status;
  // Again if it was copied meanwhile by the loop.
  for (auto content = staged_->content();; content = staged_->content()) {
    const StagedTensor& staged = content->Find(index);
    status = staged.CopyPart(size, begin, to, count);
    if (!status.ok() || staged.intact()) break;
    if (content != staged_->content()) continue;
    status = absl::DataLossError(
        "the aggregator has used its memory again. Copy a result before the round after the next "
        "one begins, and see whether this worker was evicted");
    break;
  }
  if (status.ok()) return status;
  return absl::Status(
      status.code(), absl::StrCat("Round ", record_.round, ", tensor ", tensors_[tensor].name, ": ",
                                  status.message(), "."));
}

absl::Status RoundResult::CopyTo(absl::Span<const Destination> destinations) const {
  const absl::Time began = StartOfCopy();
  absl::Status status;
  for (const Destination& one : destinations) {
    status = CopyPart(one.tensor, one.size, 0, one.to, one.size);
    if (!status.ok()) break;
  }
  RecordCopy(began);
  return status;
}

absl::Status RoundResult::CopyPresentTo(absl::Span<const Destination> destinations) const {
  std::vector<Destination> present;
  std::copy_if(destinations.begin(), destinations.end(), std::back_inserter(present),
               [&](const Destination& one) { return Has(one.tensor); });
  return CopyTo(present);
}

absl::Time RoundResult::StartOfCopy() const {
  return timeline_ == nullptr ? absl::Time() : timeline_->Now();
}

void RoundResult::RecordCopy(absl::Time began) const {
  if (timeline_ != nullptr) timeline_->Copied(lane_, record_.round, began);
}

std::vector<std::string_view> RoundResult::Pieces(TensorHandle tensor) const {
  if (!Has(tensor)) return {};
  // Pieces are valid for as long as this is.
  staged_->MakePrivate();
  const auto content = staged_->content();
  const StagedTensor& staged = content->Find(*tensors_[tensor].index);
  return staged.intact() ? staged.Pieces() : std::vector<std::string_view>();
}

std::optional<TensorHandle> RoundResult::HandleOf(TensorIndex index) const {
  for (TensorHandle tensor = 0; tensor < tensors_.size(); ++tensor) {
    if (tensors_[tensor].index == index) return tensor;
  }
  return std::nullopt;
}

absl::Status Blob::CopyTo(void* to, uint64_t size) const {
  absl::Status status = bytes_.CopyTo(to, size);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("Value of tensor ", spec_.name, ": ", status.message(), "."));
}

}  // namespace basin::client
