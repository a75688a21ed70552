// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/layout.h"

#include <algorithm>

namespace basin {

std::optional<TensorIndex> Layout::Find(const std::string& name, TensorIndex guess) const {
  if (guess < version() && tensors_[guess].name == name) return guess;
  const auto it = by_name_.find(name);
  if (it == by_name_.end()) return std::nullopt;
  return it->second;
}

TensorIndex Layout::Append(const TensorSpec& spec) {
  const TensorIndex index = version();
  const uint64_t size = *TensorBytes(spec);
  tensors_.push_back(spec);
  sizes_.push_back(size);
  bases_.push_back(chunks_);
  by_name_.emplace(spec.name, index);
  chunks_ += ChunkCount(size);
  bytes_ += size;
  return index;
}

TensorIndex Layout::TensorOf(uint32_t flat) const {
  // The last tensor whose first chunk is at or before `flat`; empty tensors share their base with
  // the next one, and upper_bound steps over them.
  const auto it = std::upper_bound(bases_.begin(), bases_.end(), flat);
  return static_cast<TensorIndex>(it - bases_.begin() - 1);
}

uint64_t Layout::SizeOf(uint32_t flat) const {
  const TensorIndex tensor = TensorOf(flat);
  return ChunkSize(sizes_[tensor], flat - bases_[tensor]);
}

bool Layout::Contains(const ChunkRange& range) const {
  return range.tensor < version() && range.count > 0 && range.first < TensorChunks(range.tensor) &&
         range.count <= TensorChunks(range.tensor) - range.first;
}

uint64_t Layout::RangeBytes(const ChunkRange& range) const {
  return basin::RangeBytes(sizes_[range.tensor], range);
}

bool Layout::ContainsFrame(const ChunkRanges& ranges) const {
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (!Contains(ranges[i])) return false;
    if (i > 0 && ranges[i].tensor <= ranges[i - 1].tensor) return false;
  }
  return !ranges.empty();
}

uint64_t Layout::RangeBytes(const ChunkRanges& ranges) const {
  uint64_t bytes = 0;
  for (const ChunkRange& range : ranges) bytes += RangeBytes(range);
  return bytes;
}

std::vector<ChunkRanges> Layout::Frames(const std::vector<ChunkRange>& ranges, uint64_t bytes,
                                        uint32_t tensors) const {
  std::vector<ChunkRanges> frames;
  uint64_t filled = 0;
  for (const ChunkRange& range : ranges) {
    const uint64_t size = RangeBytes(range);
    const bool fits = !frames.empty() && filled + size <= bytes && frames.back().size() < tensors &&
                      frames.back().back().tensor < range.tensor;
    if (!fits) {
      frames.emplace_back();
      filled = 0;
    }
    frames.back().push_back(range);
    filled += size;
  }
  return frames;
}

std::vector<ChunkRange> Layout::Ranges(FlatChunks flat, uint32_t most) const {
  std::vector<ChunkRange> ranges;
  if (flat.first == flat.end_at) return ranges;
  TensorIndex tensor = TensorOf(flat.first);
  for (uint32_t at = flat.first; at < flat.end_at; at += ranges.back().count) {
    while (FirstChunk(tensor + 1) <= at) ++tensor;
    const uint32_t end = std::min(flat.end_at, FirstChunk(tensor + 1));
    ranges.push_back({tensor, at - FirstChunk(tensor), std::min(end - at, most)});
  }
  return ranges;
}

void RangeBuilder::Add(uint32_t flat) {
  if (!ranges_.empty()) {
    ChunkRange& last = ranges_.back();
    const uint32_t next = layout_.FirstChunk(last.tensor) + last.first + last.count;
    if (flat == next && last.first + last.count < layout_.TensorChunks(last.tensor)) {
      ++last.count;
      return;
    }
  }
  const TensorIndex tensor = layout_.TensorOf(flat);
  ranges_.push_back({tensor, flat - layout_.FirstChunk(tensor), 1});
}

}  // namespace basin
