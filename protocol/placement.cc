// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/placement.h"

#include <algorithm>

namespace basin {
namespace {

// Consecutive chunks of one shard, by flat number.
struct Part {
  uint32_t first = 0;
  uint32_t end_at = 0;
  ShardId shard = 0;
};

// Where the bytes of the chunks are among those of a layout's first tensors.
class Bytes {
 public:
  Bytes(const Layout& layout, uint32_t tensors) : layout_(layout) {
    before_.reserve(tensors + 1);
    before_.push_back(0);
    for (TensorIndex tensor = 0; tensor < tensors; ++tensor) {
      before_.push_back(before_.back() + layout.TensorSize(tensor));
    }
  }

  uint64_t total() const { return before_.back(); }

  uint64_t Before(uint32_t flat) const {
    if (flat == 0) return 0;
    const TensorIndex tensor = layout_.TensorOf(flat - 1);
    const uint64_t chunks = flat - layout_.FirstChunk(tensor);
    return before_[tensor] + std::min(chunks * kChunkBytes, layout_.TensorSize(tensor));
  }

  // Returns the border of a chunk that is next to this byte; the lower one of two.
  uint32_t BorderAt(uint64_t byte) const {
    if (byte >= total()) return layout_.FirstChunk(static_cast<TensorIndex>(before_.size() - 1));
    const auto after = std::upper_bound(before_.begin(), before_.end(), byte);
    const auto tensor = static_cast<TensorIndex>(after - before_.begin() - 1);
    const uint64_t offset = byte - before_[tensor];
    const auto chunk = static_cast<uint32_t>(offset / kChunkBytes);
    const uint64_t lower = chunk * kChunkBytes;
    const uint64_t upper = std::min(lower + kChunkBytes, layout_.TensorSize(tensor));
    return layout_.FirstChunk(tensor) + chunk + (upper - offset < offset - lower ? 1 : 0);
  }

 private:
  const Layout& layout_;
  std::vector<uint64_t> before_;  // By tensor, and all at the end.
};

// total * part / parts, which may be more than 64 bits on the way.
uint64_t EqualPart(uint64_t total, uint64_t part, uint64_t parts) {
  return total / parts * part + total % parts * part / parts;
}

// Cuts these chunks, taken together, into equal parts of the shards. REQUIRES: `taken` ascends.
void Cut(const Bytes& bytes, const std::vector<Part>& taken, const std::vector<ShardId>& shards,
         std::vector<Part>& parts) {
  uint64_t total = 0;
  for (const Part& part : taken) total += bytes.Before(part.end_at) - bytes.Before(part.first);
  uint64_t done = 0;  // Bytes of the parts that are dealt.
  size_t to = 0;
  for (Part rest : taken) {
    const uint64_t begin = bytes.Before(rest.first);
    const uint64_t size = bytes.Before(rest.end_at) - begin;
    while (rest.first < rest.end_at) {
      const bool last = to + 1 == shards.size();
      const uint64_t cut = EqualPart(total, to + 1, shards.size());
      uint32_t border = rest.end_at;
      if (!last && cut < done + size) {
        border = std::clamp(bytes.BorderAt(begin + cut - done), rest.first, rest.end_at);
      }
      if (rest.first < border) parts.push_back({rest.first, border, shards[to]});
      rest.first = border;
      if (last || cut >= done + size) break;  // The shard takes from the next one, too.
      ++to;
    }
    done += size;
    // A cut at the very end of these chunks is also one before the next ones.
    while (to + 1 < shards.size() && EqualPart(total, to + 1, shards.size()) <= done) ++to;
  }
}

}  // namespace

bool Placement::Has(ShardId shard) const {
  const auto is = [shard](const PlacedShard& placed) { return placed.shard == shard; };
  return std::any_of(shards.begin(), shards.end(), is) &&
         std::find(lost.begin(), lost.end(), shard) == lost.end();
}

Shares::Shares(const Placement& placement, const Layout& layout, uint32_t tensors)
    : least_bytes_(placement.least_bytes), tensors_(tensors) {
  if (placement.number == 0 || placement.shards.empty()) return;
  std::vector<ShardId> left;
  for (const PlacedShard& placed : placement.shards) left.push_back(placed.shard);
  const Bytes bytes(layout, tensors);
  const bool small = bytes.total() / left.size() < placement.least_bytes;
  const uint32_t chunks = layout.FirstChunk(tensors);
  std::vector<Part> parts;
  const auto cut = [&](const std::vector<Part>& taken) {
    if (small) {
      for (const Part& part : taken) parts.push_back({part.first, part.end_at, left.front()});
    } else {
      Cut(bytes, taken, left, parts);
    }
  };
  if (chunks > 0) cut({{0, chunks, 0}});
  dealt_.push_back(left);
  for (const ShardId lost : placement.lost) {
    const auto at = std::find(left.begin(), left.end(), lost);
    if (at == left.end() || left.size() == 1) continue;
    left.erase(at);
    dealt_.push_back(left);
    std::vector<Part> taken;
    const auto is_lost = [lost](const Part& part) { return part.shard == lost; };
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(taken), is_lost);
    parts.erase(std::remove_if(parts.begin(), parts.end(), is_lost), parts.end());
    cut(taken);
    std::sort(parts.begin(), parts.end(),
              [](const Part& a, const Part& b) { return a.first < b.first; });
  }
  home_ = left.front();
  single_ = left.size() == 1;
  for (const Part& part : parts) {
    if (!runs_.empty() && runs_.back().shard == part.shard) {
      runs_.back().end_at = part.end_at;
    } else {
      runs_.push_back({part.end_at, part.shard});
    }
  }
}

std::pair<ShardId, uint32_t> Shares::Head(const Layout& layout, const ChunkRange& range) const {
  if (single_) return {home_, range.count};
  if (range.tensor >= tensors_) {
    if (layout.TensorSize(range.tensor) < least_bytes_) return {home_, range.count};
    const size_t turn = range.tensor - tensors_;
    ShardId shard = dealt_.front()[turn % dealt_.front().size()];
    for (const std::vector<ShardId>& left : dealt_) {
      if (std::find(left.begin(), left.end(), shard) == left.end()) {
        shard = left[turn % left.size()];
      }
    }
    return {shard, range.count};
  }
  const uint32_t flat = layout.FirstChunk(range.tensor) + range.first;
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), flat,
                                    [](uint32_t at, const Run& one) { return at < one.end_at; });
  return {run->shard, std::min(range.count, run->end_at - flat)};
}

ShardId Shares::Of(const Layout& layout, uint32_t flat) const {
  if (single_) return home_;
  const TensorIndex tensor = layout.TensorOf(flat);
  return Head(layout, {tensor, flat - layout.FirstChunk(tensor), 1}).first;
}

}  // namespace basin
