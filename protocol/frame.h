// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The headers of data frames (basin/v1/exchange.proto) as plain values: what a frame is about. The
// wire layer translates them; engine, client and transports hand them to each other.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_PROTOCOL_FRAME_H_
#define BASIN_PROTOCOL_FRAME_H_

#include <cstdint>
#include <tuple>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "protocol/dtype.h"
#include "protocol/fields.h"
#include "protocol/messages.h"
#include "protocol/tensor.h"
#include "protocol/version.h"

namespace basin {

// The chunks of one tensor in a frame, and the size of their bytes as they travel; 0 in a frame of
// one tensor, where they are the whole payload.
struct ChunkRun {
  ChunkRange range;
  uint32_t bytes = 0;
  auto Fields() const { return std::tie(range, bytes); }
};

// Runs of ascending tensors, whose bytes follow each other.
class ChunkRuns : public absl::InlinedVector<ChunkRun, 1> {
 public:
  using InlinedVector::InlinedVector;
  ChunkRuns() = default;
  // A frame of one tensor.
  // NOLINTNEXTLINE(google-explicit-constructor)
  ChunkRuns(const ChunkRange& only) : InlinedVector({ChunkRun{only, 0}}) {}
  ChunkRuns(TensorIndex tensor, uint32_t first, uint32_t count)
      : ChunkRuns(ChunkRange{tensor, first, count}) {}
};

inline ChunkRanges RangesOf(const ChunkRuns& runs) {
  ChunkRanges ranges;
  ranges.reserve(runs.size());
  for (const ChunkRun& run : runs) ranges.push_back(run.range);
  return ranges;
}

inline uint32_t CountChunks(const ChunkRuns& runs) {
  uint32_t count = 0;
  for (const ChunkRun& run : runs) count += run.range.count;
  return count;
}

// How the payload stands for the tensors' bytes; the default is: as they are.
struct Encoding {
  DType wire_dtype = DType::kUnspecified;  // kUnspecified: the tensor's.
  int32_t wire_exponent = 0;               // The tensor's values times 2^wire_exponent were cast.
  auto Fields() const { return std::tie(wire_dtype, wire_exponent); }
};

// Bytes of a whole chunk as it travels: kChunkBytes, or less when the payload is narrower than the
// tensor. The narrow dtypes are half of f32.
constexpr uint64_t WireChunkBytes(DType wire_dtype) {
  return wire_dtype == DType::kUnspecified ? kChunkBytes : kChunkBytes / 2;
}

// ---- kinds of frames; exchange.proto names the side that sends each

struct Bind {
  SessionToken token = 0;
  uint32_t stream = 0;
  uint32_t protocol_version = kProtocolVersion;
  auto Fields() const { return std::tie(token, stream, protocol_version); }
};

struct Bound {
  auto Fields() const { return std::tuple<>(); }
};

struct Ack {
  uint64_t sequence = 0;
  auto Fields() const { return std::tie(sequence); }
};

struct ContributionHeader {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  ChunkRuns runs;
  auto Fields() const { return std::tie(lane, round, runs); }
};

struct ResultHeader {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRuns runs;
  auto Fields() const { return std::tie(lane, round, ballot, runs); }
};

struct SupplyHeader {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;  // The value's.
  ChunkRuns runs;
  auto Fields() const { return std::tie(lane, round, ballot, runs); }
};

struct BlobHeader {
  BlobKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  auto Fields() const { return std::tie(key, first, count); }
};

using AnyHeader =
    std::variant<Bind, Bound, Ack, ContributionHeader, ResultHeader, SupplyHeader, BlobHeader>;

}  // namespace basin

#endif  // BASIN_PROTOCOL_FRAME_H_
