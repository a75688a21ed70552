// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/layout.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

namespace basin::client {

bool HasUsableSize(const TensorSpec& spec) {
  const std::optional<uint64_t> bytes = TensorBytes(spec);
  return bytes.has_value() && *bytes <= kMaxTensorBytes;
}

bool Extend(Layout& layout, uint32_t first, const std::vector<TensorSpec>& tensors,
            uint32_t limit) {
  const uint32_t version = layout.version();
  if (first > version || tensors.size() > limit || first > limit - tensors.size()) return false;
  const size_t known = std::min<size_t>(version - first, tensors.size());
  if (!std::equal(tensors.begin(), tensors.begin() + known, layout.tensors().begin() + first)) {
    return false;
  }
  std::set<std::string_view> names;
  uint64_t chunks = layout.chunks();
  for (size_t i = known; i < tensors.size(); ++i) {
    const TensorSpec& spec = tensors[i];
    if (!HasUsableSize(spec) || layout.Find(spec.name).has_value()) return false;
    if (!names.insert(spec.name).second) return false;
    chunks += ChunkCount(*TensorBytes(spec));
  }
  if (chunks > std::numeric_limits<uint32_t>::max()) return false;
  for (size_t i = known; i < tensors.size(); ++i) layout.Append(tensors[i]);
  return true;
}

}  // namespace basin::client
