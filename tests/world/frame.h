// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What travels on the data streams of a world without bytes: a stand-in `C` in place of the bytes
// of each chunk.
//
// Thread contract: plain values.

#ifndef BASIN_TESTS_WORLD_FRAME_H_
#define BASIN_TESTS_WORLD_FRAME_H_

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "aggregator/core/event.h"
#include "protocol/messages.h"

namespace basin::world {

template <typename C>
using Chunks = absl::InlinedVector<C, 4>;

// Where a chunk is among those of a frame. REQUIRES: it is one of them.
inline size_t IndexIn(const ChunkRanges& ranges, TensorIndex tensor, uint32_t chunk) {
  size_t index = 0;
  for (const ChunkRange& range : ranges) {
    if (range.tensor == tensor && chunk - range.first < range.count) {
      return index + chunk - range.first;
    }
    index += range.count;
  }
  return index;
}

// Calls take(tensor, chunk) for each chunk of a frame, in order.
template <typename Ranges, typename Take>
void ForEachChunk(const Ranges& ranges, Take&& take) {
  for (const ChunkRange& range : ranges) {
    for (uint32_t i = 0; i < range.count; ++i) take(range.tensor, range.first + i);
  }
}

// The digests of a frame's chunks, as the receiver computes them. `Bytes`: see AggregatorShell.
template <typename Bytes, typename Frame>
aggregator::ChunkDigests DigestsOf(const Bytes& bytes, const Frame& frame) {
  aggregator::ChunkDigests digests;
  auto content = frame.chunks.begin();
  ForEachChunk(frame.ranges, [&](TensorIndex tensor, uint32_t chunk) {
    digests.push_back(bytes.DigestOf(tensor, chunk, *content++));
  });
  return digests;
}

// Worker to aggregator.
template <typename C>
struct PushFrame {
  aggregator::FrameKind kind = aggregator::FrameKind::kContribution;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;  // kSupply: the value's.
  ChunkRanges ranges;
  uint64_t bytes = 0;
  Chunks<C> chunks;
  std::vector<uint64_t> sizes;  // The chunks'. Empty in a frame of one tensor.
  auto Fields() const { return std::tie(kind, lane, round, ballot, ranges, bytes, chunks, sizes); }

  // The stand-in of a chunk, and its size. REQUIRES: it is in `ranges`.
  const C& At(TensorIndex tensor, uint32_t chunk) const {
    return chunks[IndexIn(ranges, tensor, chunk)];
  }
  uint64_t SizeOf(TensorIndex tensor, uint32_t chunk) const {
    const size_t index = IndexIn(ranges, tensor, chunk);
    if (!sizes.empty()) return sizes[index];
    // All chunks of one tensor are whole but, at most, the last.
    return std::min(kChunkBytes, bytes - index * kChunkBytes);
  }
};

// Aggregator to worker.
template <typename C>
struct ResultFrame {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRanges ranges;
  Chunks<C> chunks;
  auto Fields() const { return std::tie(lane, round, ballot, ranges, chunks); }

  const C& At(TensorIndex tensor, uint32_t chunk) const {
    return chunks[IndexIn(ranges, tensor, chunk)];
  }
};

// Chunks of a broadcast value, either way. Its whole content is one word.
struct BlobFrame {
  BlobKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t content = 0;
  uint64_t bytes = 0;  // The size of the chunks.
  auto Fields() const { return std::tie(key, first, count, content, bytes); }
};

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_FRAME_H_
