// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The frames of a data stream (basin/v1/exchange.proto), encoded and decoded without copying their
// payload: a frame is a short prefix, which is written here, and the payload in its own memory.
//
//   sender    EncodeSequence(n) + EncodeFrame(header, payload) + payload
//   receiver  DecodeFrame(slices of the message) -> header and slices of the payload
//
// The middle part and the payload are the same for every receiver of a frame; only the sequence
// number before them differs. Both directions are ordinary protobuf: a generated class reads the
// frames that are written here, and its frames are read here, in any order of fields and with any
// division into slices.
//
// Thread contract: pure functions. Failure: INVALID_ARGUMENT for violations of the protocol,
// DATA_LOSS for a wrong checksum.

#ifndef BASIN_PROTO_WIRE_FRAME_H_
#define BASIN_PROTO_WIRE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/limits/limits.h"
#include "proto/vocabulary/messages.h"
#include "proto/vocabulary/version.h"

namespace basin::wire {

// Where containers of the structs below look for it.
using basin::operator==;
using basin::operator!=;

// Bytes in pieces, in order. The caller owns the memory.
using Slices = absl::InlinedVector<std::string_view, 4>;

// ---- kinds of frames; exchange.proto says which side sends which

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
  ChunkRange range;
  auto Fields() const { return std::tie(lane, round, range); }
};

struct ResultHeader {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRange range;
  auto Fields() const { return std::tie(lane, round, ballot, range); }
};

struct SupplyHeader {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;  // The value's.
  ChunkRange range;
  auto Fields() const { return std::tie(lane, round, ballot, range); }
};

struct ValueHeader {
  ValueKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  auto Fields() const { return std::tie(key, first, count); }
};

using FrameKind =
    std::variant<Bind, Bound, Ack, ContributionHeader, ResultHeader, SupplyHeader, ValueHeader>;

// How the payload stands for the tensor's bytes; the default is: as they are.
struct Encoding {
  DType wire_dtype = DType::kUnspecified;  // kUnspecified: the tensor's.
  int32_t wire_exponent = 0;
  auto Fields() const { return std::tie(wire_dtype, wire_exponent); }
};

struct FrameHeader {
  FrameKind kind;
  Encoding encoding;
  // None, or one per chunk of the range. With them, the payload is vouched for by its digests,
  // which the receiver compares; without, by the checksum, which DecodeFrame() compares.
  absl::InlinedVector<Digest, 4> chunk_digests;
  auto Fields() const { return std::tie(kind, encoding, chunk_digests); }
};

// Chunks that a frame of this kind carries, 0 for kinds without a payload.
uint32_t FrameChunks(const FrameKind& kind);

// ---- sender

// A frame without its sequence number and its payload. The payload is read only for the checksum,
// and only when there are no chunk digests.
// Failure: INVALID_ARGUMENT when the receiver would refuse the frame.
absl::StatusOr<std::string> EncodeFrame(const FrameHeader& header,
                                        absl::Span<const std::string_view> payload);

// The sequence number and its encoding. Zero for Bind and Bound, and then empty.
std::string EncodeSequence(uint64_t sequence);

// ---- receiver

struct DecodedFrame {
  uint64_t sequence = 0;
  FrameHeader header;
  Slices payload;  // Parts of the slices that were given; none of them empty.
  size_t payload_bytes = 0;
  // The checksum covered the payload. Otherwise the digests in the header do, and are not compared
  // yet.
  bool payload_verified = false;
};

// REQUIRES: the slices outlive the result.
absl::StatusOr<DecodedFrame> DecodeFrame(absl::Span<const std::string_view> message);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_FRAME_H_
