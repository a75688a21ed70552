// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of a lane: its tensors in index order, and the flat numbering of all their chunks.
//
// It only grows, so an index or a flat chunk number once given stays valid.
//
// Thread contract: a plain value.

#ifndef BASIN_PROTOCOL_LAYOUT_H_
#define BASIN_PROTOCOL_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "protocol/shared_list.h"
#include "protocol/tensor.h"

namespace basin {

// The flat numbers of consecutive chunks.
struct FlatChunks {
  struct Iterator {
    uint32_t at;
    uint32_t operator*() const { return at; }
    void operator++() { ++at; }
    bool operator!=(const Iterator& other) const { return at != other.at; }
  };
  Iterator begin() const { return {first}; }
  Iterator end() const { return {end_at}; }
  uint32_t first;
  uint32_t end_at;
};

class Layout {
 public:
  uint32_t version() const { return static_cast<uint32_t>(tensors_.size()); }
  uint32_t chunks() const { return chunks_; }
  uint64_t bytes() const { return bytes_; }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  // The same, for messages.
  const SharedList<TensorSpec>& shared_tensors() const { return tensors_; }

  // Looks at `guess` first: workers mostly name tensors in the order of the layout.
  std::optional<TensorIndex> Find(const std::string& name, TensorIndex guess = 0) const;

  // Adds a tensor that Find does not know. REQUIRES: TensorBytes(spec) has a value, and all chunks
  // can be counted with 32 bits.
  TensorIndex Append(const TensorSpec& spec);

  uint64_t TensorSize(TensorIndex tensor) const { return sizes_[tensor]; }
  uint32_t TensorChunks(TensorIndex tensor) const { return ChunkCount(sizes_[tensor]); }

  // Flat number of a tensor's first chunk. FirstChunk(version()) == chunks().
  uint32_t FirstChunk(TensorIndex tensor) const {
    return tensor < bases_.size() ? bases_[tensor] : chunks_;
  }
  FlatChunks Chunks(TensorIndex tensor) const {
    return {FirstChunk(tensor), FirstChunk(tensor + 1)};
  }
  FlatChunks Chunks(const ChunkRange& range) const {
    const uint32_t first = FirstChunk(range.tensor) + range.first;
    return {first, first + range.count};
  }
  TensorIndex TensorOf(uint32_t flat) const;
  uint64_t SizeOf(uint32_t flat) const;

  // Whether the range names chunks that exist.
  bool Contains(const ChunkRange& range) const;
  uint64_t RangeBytes(const ChunkRange& range) const;
  // Whether the ranges are the chunks of a frame: they exist, and their tensors ascend.
  bool ContainsFrame(const ChunkRanges& ranges) const;
  uint64_t RangeBytes(const ChunkRanges& ranges) const;
  // Cuts flat chunks into ranges within tensors, of at most `most` chunks each.
  std::vector<ChunkRange> Ranges(FlatChunks flat, uint32_t most = UINT32_MAX) const;
  // Packs ranges, whose tensors do not descend, into frames of at most `bytes` bytes and `tensors`
  // tensors. A longer range is a frame of its own.
  std::vector<ChunkRanges> Frames(const std::vector<ChunkRange>& ranges, uint64_t bytes,
                                  uint32_t tensors) const;

  auto Fields() const { return std::tie(tensors_); }

 private:
  SharedList<TensorSpec> tensors_;
  std::vector<uint64_t> sizes_;
  std::vector<uint32_t> bases_;
  absl::btree_map<std::string, TensorIndex> by_name_;
  uint32_t chunks_ = 0;
  uint64_t bytes_ = 0;
};

// Collects flat chunk numbers, given in ascending order, into ranges within tensors.
class RangeBuilder {
 public:
  explicit RangeBuilder(const Layout& layout) : layout_(layout) {}
  void Add(uint32_t flat);
  std::vector<ChunkRange> Take() { return std::move(ranges_); }

 private:
  const Layout& layout_;
  std::vector<ChunkRange> ranges_;
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_LAYOUT_H_
