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

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protocol/frame.h"
#include "protocol/limits/limits.h"
#include "protocol/shared_place.h"

namespace basin::wire {

// Where containers of the structs below look for it.
using basin::operator==;
using basin::operator!=;

// Bytes in pieces, in order. The caller owns the memory.
using Slices = absl::InlinedVector<std::string_view, 4>;

using basin::Ack;
using basin::Bind;
using basin::BlobHeader;
using basin::Bound;
using basin::ChunkRun;
using basin::ChunkRuns;
using basin::ContributionHeader;
using basin::Encoding;
using basin::ResultHeader;
using basin::SupplyHeader;
using FrameKind = AnyHeader;

struct FrameHeader {
  FrameKind kind;
  Encoding encoding;
  // None, or one per chunk, in the order of the runs. With them, the payload is vouched for by its
  // digests, which the receiver compares; without, by the checksum, which DecodeFrame() compares.
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
// One whose payload is in shared memory: the whole frame but for its sequence number.
// Failure: as above, also without chunk digests, or if a place has a part of a chunk.
// REQUIRES: there is a place.
absl::StatusOr<std::string> EncodeSharedFrame(const FrameHeader& header,
                                              const SharedPlaces& payload);

// The sequence number and its encoding. Zero for Bind and Bound, and then empty.
std::string EncodeSequence(uint64_t sequence);

// ---- receiver

struct DecodedFrame {
  uint64_t sequence = 0;
  FrameHeader header;
  Slices payload;       // Parts of the slices that were given; none of them empty.
  SharedPlaces places;  // Where the payload is, if it is not in the message.
  size_t payload_bytes = 0;
  // The checksum covered the payload. Otherwise the digests in the header do, and are not compared
  // yet.
  bool payload_verified = false;
};

// REQUIRES: the slices outlive the result.
absl::StatusOr<DecodedFrame> DecodeFrame(absl::Span<const std::string_view> message);

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_FRAME_H_
