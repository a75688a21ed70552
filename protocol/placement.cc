// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/placement.h"

#include <algorithm>

namespace basin {
namespace {

// A backward pushes the layers one after the other, so with one part for each shard all workers
// would use the link of one shard at a time. A part has several frames, and parts are few, because
// an order to reduce names each.
constexpr uint64_t kLeastSharesInPart = 4;
constexpr uint64_t kMostTurns = 8;

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

// Chunks that are cut together, as one row of bytes.
class Row {
 public:
  struct Border {
    size_t part = 0;
    uint32_t flat = 0;  // In the part, or at its end.
    uint64_t byte = 0;
  };

  // REQUIRES: there is a part, none is empty, and they ascend.
  Row(const Bytes& bytes, const std::vector<Part>& parts) : bytes_(bytes), parts_(parts) {
    for (const Part& part : parts) {
      before_.push_back(total_);
      total_ += bytes.Before(part.end_at) - bytes.Before(part.first);
    }
  }

  uint64_t total() const { return total_; }
  Border Begin() const { return {0, parts_.front().first, 0}; }
  Border End() const { return {parts_.size() - 1, parts_.back().end_at, total_}; }

  // The border of a chunk that is next to this byte.
  Border Near(uint64_t byte) const {
    const auto after = std::upper_bound(before_.begin(), before_.end(), byte);
    const auto at = static_cast<size_t>(after - before_.begin() - 1);
    const uint64_t begin = bytes_.Before(parts_[at].first);
    const uint32_t flat = std::clamp(bytes_.BorderAt(begin + byte - before_[at]), parts_[at].first,
                                     parts_[at].end_at);
    return {at, flat, before_[at] + bytes_.Before(flat) - begin};
  }

  // What is between these borders, as parts of the shard.
  void Give(const Border& from, const Border& to, ShardId shard, std::vector<Part>& parts) const {
    for (size_t at = from.part; at <= to.part; ++at) {
      const uint32_t first = at == from.part ? from.flat : parts_[at].first;
      const uint32_t end_at = at == to.part ? to.flat : parts_[at].end_at;
      if (first < end_at) parts.push_back({first, end_at, shard});
    }
  }

 private:
  const Bytes& bytes_;
  const std::vector<Part>& parts_;
  std::vector<uint64_t> before_;  // By part.
  uint64_t total_ = 0;
};

// How often each shard gets a part of this row.
uint64_t TurnsOf(const Row& row, size_t shards, uint64_t least_bytes) {
  const uint64_t part = std::max(kLeastSharesInPart * least_bytes, kChunkBytes);
  return std::clamp<uint64_t>(row.total() / shards / part, 1, kMostTurns);
}

// Deals the row to the shards in turns. What a shard got too much or too little in one turn,
// because cuts are at borders of chunks, it gets less or more in the next.
void Deal(const Row& row, uint64_t turns, const std::vector<ShardId>& shards,
          std::vector<Part>& parts) {
  std::vector<uint64_t> has(shards.size(), 0);
  Row::Border at = row.Begin();
  for (uint64_t turn = 1; turn <= turns; ++turn) {
    const uint64_t each = EqualPart(row.total(), turn, turns * shards.size());
    auto cut = static_cast<int64_t>(at.byte);
    for (size_t to = 0; to < shards.size(); ++to) {
      cut += static_cast<int64_t>(each) - static_cast<int64_t>(has[to]);
      const bool last = turn == turns && to + 1 == shards.size();
      const uint64_t byte = std::max(static_cast<uint64_t>(std::max<int64_t>(cut, 0)), at.byte);
      const Row::Border end = last ? row.End() : row.Near(std::min(byte, row.total()));
      row.Give(at, end, shards[to], parts);
      has[to] += end.byte - at.byte;
      at = end;
    }
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
  const auto deal = [&](const std::vector<Part>& taken) {
    if (small) {
      for (const Part& part : taken) parts.push_back({part.first, part.end_at, left.front()});
    } else {
      const Row row(bytes, taken);
      Deal(row, TurnsOf(row, left.size(), placement.least_bytes), left, parts);
    }
  };
  if (chunks > 0) deal({{0, chunks, 0}});
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
    if (!taken.empty()) deal(taken);
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
