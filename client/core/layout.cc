// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/layout.h"

#include <algorithm>

namespace basin::client {

bool HasUsableSize(const TensorSpec& spec) {
  const std::optional<uint64_t> bytes = TensorBytes(spec);
  return bytes.has_value() && *bytes <= kMaxTensorBytes;
}

std::optional<TensorIndex> Layout::Find(const std::string& name) const {
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return std::nullopt;
  return it->second;
}

bool Layout::Extend(uint32_t first, const std::vector<TensorSpec>& tensors, uint32_t limit) {
  if (first > version() || tensors.size() > limit || first > limit - tensors.size()) return false;
  const size_t known = std::min<size_t>(version() - first, tensors.size());
  if (!std::equal(tensors.begin(), tensors.begin() + known, tensors_.begin() + first)) return false;
  const uint32_t before = version();
  for (size_t i = known; i < tensors.size(); ++i) {
    const bool fits =
        HasUsableSize(tensors[i]) && by_name_.emplace(tensors[i].name, version()).second;
    if (!fits) {
      while (version() > before) {
        by_name_.erase(tensors_.back().name);
        tensors_.pop_back();
        bases_.pop_back();
      }
      return false;
    }
    bases_.push_back(bases_.back() + ChunkCount(*TensorBytes(tensors[i])));
    tensors_.push_back(tensors[i]);
  }
  return true;
}

bool Layout::Contains(const ChunkRange& range) const {
  return range.tensor < version() && range.count > 0 && range.first < TensorChunks(range.tensor) &&
         range.count <= TensorChunks(range.tensor) - range.first;
}

Interval Layout::Flat(const ChunkRange& range) const {
  const uint64_t begin = bases_[range.tensor] + range.first;
  return {begin, begin + range.count};
}

std::vector<ChunkRange> Layout::Ranges(Interval flat, uint32_t most) const {
  std::vector<ChunkRange> ranges;
  // The last tensor that begins at or before the interval; empty tensors share its base and are
  // passed over.
  auto base = std::prev(std::upper_bound(bases_.begin(), bases_.end(), flat.begin));
  while (!flat.empty()) {
    while (*std::next(base) <= flat.begin) ++base;
    const uint64_t end = std::min({flat.end, *std::next(base), flat.begin + most});
    ranges.push_back({static_cast<TensorIndex>(base - bases_.begin()),
                      static_cast<uint32_t>(flat.begin - *base),
                      static_cast<uint32_t>(end - flat.begin)});
    flat.begin = end;
  }
  return ranges;
}

}  // namespace basin::client
