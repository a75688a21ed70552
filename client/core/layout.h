// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of a lane as the aggregator gave it: tensors in index order, and the flat numbering of
// all their chunks, which is how this side keeps track of result chunks.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_LAYOUT_H_
#define BASIN_CLIENT_CORE_LAYOUT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "client/core/intervals.h"
#include "protocol/tensor.h"

namespace basin::client {

// No tensor is larger, so that its chunks can be counted with room to spare.
inline constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 44;

class Layout {
 public:
  uint32_t version() const { return static_cast<uint32_t>(tensors_.size()); }
  uint64_t chunks() const { return bases_.back(); }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  std::optional<TensorIndex> Find(const std::string& name) const;

  // Takes entries first, first + 1, ... Those that are known must be the same as before. Returns
  // whether they fit; if not, nothing changes.
  bool Extend(uint32_t first, const std::vector<TensorSpec>& tensors, uint32_t limit);

  uint32_t TensorChunks(TensorIndex tensor) const {
    return static_cast<uint32_t>(bases_[tensor + 1] - bases_[tensor]);
  }
  Interval FlatTensor(TensorIndex tensor) const { return {bases_[tensor], bases_[tensor + 1]}; }

  // Whether the range names at least one chunk, and only chunks that exist.
  bool Contains(const ChunkRange& range) const;
  // REQUIRES: Contains(range).
  Interval Flat(const ChunkRange& range) const;
  // Cuts a flat interval into ranges within tensors, of at most `most` chunks each.
  std::vector<ChunkRange> Ranges(Interval flat, uint32_t most = UINT32_MAX) const;
  // Packs the chunks of ascending intervals into frames of at most `chunks` whole chunks and
  // `tensors` tensors.
  std::vector<ChunkRanges> Frames(const std::vector<Interval>& flat, uint32_t chunks,
                                  uint32_t tensors) const;
  // Whether the ranges are the chunks of a frame: they exist, and their tensors ascend.
  bool ContainsFrame(const ChunkRanges& ranges) const;

  auto Fields() const { return std::tie(tensors_); }

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<uint64_t> bases_ = {
      0};  // The first chunk of each tensor, and the end of the last. Derived.
  std::map<std::string, TensorIndex> by_name_;  // Derived.
};

// Whether a tensor can be registered: its size is known and within kMaxTensorBytes.
bool HasUsableSize(const TensorSpec& spec);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LAYOUT_H_
