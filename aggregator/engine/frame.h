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
#include "protocol/frame.h"
#include "runtime/contents.h"
#include "runtime/payload.h"

namespace basin::aggregator {

// A frame that arrived whole. Its header's checksum was right.
struct IncomingFrame {
  std::variant<ContributionHeader, SupplyHeader, ValueHeader> what;
  Encoding encoding;  // That of a contribution; the others are as they are.
  PayloadPtr payload;
  uint64_t bytes = 0;
  ChunkContents contents;  // The contents of its chunks.
  // What the sender says of each chunk; empty when a checksum over the payload has been compared.
  ChunkDigests claimed;
};

struct OutgoingFrame {
  std::variant<ResultHeader, ValueHeader> what;
  ChunkDigests digests;  // One per chunk.
  PayloadParts payload;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_FRAME_H_
