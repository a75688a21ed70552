// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/outcome.h"

#include "absl/strings/str_cat.h"

namespace basin::client {

bool RoundResult::Has(TensorHandle tensor) const {
  return tensor < tensors_.size() && tensors_[tensor].index.has_value() &&
         HasResult(record_.value, *tensors_[tensor].index);
}

uint64_t RoundResult::DivisorOf(TensorHandle tensor) const {
  if (!Has(tensor)) return 0;
  for (const TensorDivisor& entry : record_.value.tensor_divisors) {
    if (entry.tensor == *tensors_[tensor].index) return entry.divisor;
  }
  return record_.value.divisor;
}

double RoundResult::SquaredNormOf(TensorHandle tensor) const {
  const std::vector<double>& norms = record_.value.facts.tensor_squared_norms;
  return Has(tensor) && *tensors_[tensor].index < norms.size() ? norms[*tensors_[tensor].index] : 0;
}

absl::Status RoundResult::CopyTo(TensorHandle tensor, void* to, uint64_t size) const {
  if (!Has(tensor)) {
    return absl::NotFoundError(absl::StrCat(
        "Round ", record_.round, " has no result for tensor ",
        tensor < tensors_.size() ? tensors_[tensor].name : absl::StrCat("handle ", tensor),
        ": no contributor pushed it."));
  }
  const TensorIndex index = *tensors_[tensor].index;
  // A tensor without bytes was never staged.
  absl::Status status = index < staged_->tensors.size() ? staged_->tensors[index].CopyTo(to, size)
                                                        : StagedTensor().CopyTo(to, size);
  if (status.ok()) return status;
  return absl::Status(
      status.code(), absl::StrCat("Round ", record_.round, ", tensor ", tensors_[tensor].name, ": ",
                                  status.message(), "."));
}

std::vector<std::string_view> RoundResult::Pieces(TensorHandle tensor) const {
  if (!Has(tensor) || *tensors_[tensor].index >= staged_->tensors.size()) return {};
  return staged_->tensors[*tensors_[tensor].index].Pieces();
}

std::optional<TensorHandle> RoundResult::HandleOf(TensorIndex index) const {
  for (TensorHandle tensor = 0; tensor < tensors_.size(); ++tensor) {
    if (tensors_[tensor].index == index) return tensor;
  }
  return std::nullopt;
}

absl::Status Value::CopyTo(void* to, uint64_t size) const {
  absl::Status status = bytes_.CopyTo(to, size);
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("Value of tensor ", spec_.name, ": ", status.message(), "."));
}

}  // namespace basin::client
