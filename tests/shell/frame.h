// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What travels on the data streams of a world without bytes: a stand-in `C` in place of the bytes
// of each chunk.
//
// Thread contract: plain values.

#ifndef BASIN_TESTS_SHELL_FRAME_H_
#define BASIN_TESTS_SHELL_FRAME_H_

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "absl/container/inlined_vector.h"
#include "aggregator/core/event.h"
#include "proto/vocabulary/messages.h"

namespace basin::shell {

template <typename C>
using Chunks = absl::InlinedVector<C, 4>;

// Worker to aggregator.
template <typename C>
struct PushFrame {
  aggregator::FrameKind kind = aggregator::FrameKind::kContribution;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;  // kSupply: the value's.
  ChunkRange range;
  uint64_t bytes = 0;
  Chunks<C> chunks;
  auto Fields() const { return std::tie(kind, lane, round, ballot, range, bytes, chunks); }

  // The stand-in of a chunk of the tensor, and its size. REQUIRES: it is in `range`.
  const C& At(uint32_t chunk) const { return chunks[chunk - range.first]; }
  uint64_t SizeOf(uint32_t chunk) const {
    // All chunks of a frame are whole but, at most, the last.
    return std::min(kChunkBytes, bytes - (chunk - range.first) * kChunkBytes);
  }
};

// Aggregator to worker.
template <typename C>
struct ResultFrame {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRange range;
  Chunks<C> chunks;
  auto Fields() const { return std::tie(lane, round, ballot, range, chunks); }

  const C& At(uint32_t chunk) const { return chunks[chunk - range.first]; }
};

// Chunks of a broadcast value, either way. Its whole content is one word.
struct ValueFrame {
  ValueKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t content = 0;
  uint64_t bytes = 0;  // The size of the chunks.
  auto Fields() const { return std::tie(key, first, count, content, bytes); }
};

}  // namespace basin::shell

#endif  // BASIN_TESTS_SHELL_FRAME_H_
