// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/layout.h"

#include <algorithm>

namespace basin::client {

std::vector<ChunkRanges> Layout::Frames(const std::vector<Interval>& flat, uint32_t chunks,
                                        uint32_t tensors) const {
  std::vector<ChunkRanges> frames;
  uint64_t left = 0;  // Bytes that the last frame has room for.
  for (const Interval& run : flat) {
    for (const ChunkRange& range : Ranges(run, chunks)) {
      const uint64_t whole = TensorBytes(tensors_[range.tensor]).value_or(0);
      const uint64_t end = std::min(whole, (uint64_t{range.first} + range.count) * kChunkBytes);
      const uint64_t size = end - range.first * kChunkBytes;
      const bool fits = !frames.empty() && size <= left && frames.back().size() < tensors &&
                        frames.back().back().tensor < range.tensor;
      if (!fits) {
        frames.emplace_back();
        left = chunks * kChunkBytes;
      }
      frames.back().push_back(range);
      left -= size;
    }
  }
  return frames;
}

bool Layout::ContainsFrame(const ChunkRanges& ranges) const {
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (!Contains(ranges[i])) return false;
    if (i > 0 && ranges[i].tensor <= ranges[i - 1].tensor) return false;
  }
  return !ranges.empty();
}

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
