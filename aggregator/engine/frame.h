// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Data frames as the engine and a transport hand them to each other: what they are about, and their
// bytes by reference.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_ENGINE_FRAME_H_
#define BASIN_AGGREGATOR_ENGINE_FRAME_H_

#include <cstdint>
#include <variant>

#include "aggregator/core/event.h"
#include "proto/vocabulary/messages.h"
#include "runtime/contents.h"
#include "runtime/payload.h"

namespace basin::aggregator {

// A part of a worker's contribution. The payload has the tensor's dtype, or a narrower one.
struct ContributionFrame {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  ChunkRange range;
  DType wire_dtype = DType::kUnspecified;  // kUnspecified: the tensor's.
  int32_t wire_exponent = 0;               // The tensor's values times 2^wire_exponent were cast.
};

// A part of a round's result: to a worker, or from one that was asked to supply it.
struct ResultFrame {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRange range;
};

// A part of a broadcast value.
struct ValueFrame {
  ValueKey key;
  uint32_t first = 0;
  uint32_t count = 0;
};

// A frame that arrived whole. Its header's checksum was right.
struct IncomingFrame {
  std::variant<ContributionFrame, ResultFrame, ValueFrame> what;
  PayloadPtr payload;
  uint64_t bytes = 0;
  ChunkContents contents;  // The contents of its chunks.
  // What the sender says of each chunk; empty when a checksum over the payload has been compared.
  ChunkDigests claimed;
};

struct OutgoingFrame {
  std::variant<ResultFrame, ValueFrame> what;
  ChunkDigests digests;  // One per chunk.
  PayloadParts payload;
};

// Bytes of a whole chunk as it travels: kChunkBytes, or less when the payload is narrower than the
// tensor. The narrow dtypes are half of f32.
constexpr uint64_t WireChunkBytes(DType wire_dtype) {
  return wire_dtype == DType::kUnspecified ? kChunkBytes : kChunkBytes / 2;
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_FRAME_H_
