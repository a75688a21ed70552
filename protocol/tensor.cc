// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/tensor.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin {

std::optional<uint64_t> TensorBytes(const TensorSpec& spec) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  uint64_t bytes = ElementSize(spec.dtype);
  if (bytes == 0) return std::nullopt;
  // A size of zero makes the tensor empty, however large the other sizes are.
  for (const uint64_t size : spec.shape) {
    if (size == 0) return 0;
  }
  for (const uint64_t size : spec.shape) {
    if (size > kMax / bytes) return std::nullopt;
    bytes *= size;
  }
  return bytes;
}

std::string DescribeSpec(const TensorSpec& spec) {
  return absl::StrCat(DTypeName(spec.dtype), "[", absl::StrJoin(spec.shape, ","), "]");
}

}  // namespace basin
