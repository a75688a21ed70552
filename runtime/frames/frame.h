// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Data frames as plain values, on both sides: what they are about, and their bytes by reference.
// reader.h takes them from messages and writes their heads.
//
// Thread contract: plain values.

#ifndef BASIN_RUNTIME_FRAMES_FRAME_H_
#define BASIN_RUNTIME_FRAMES_FRAME_H_

#include <cstdint>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "protocol/frame.h"
#include "runtime/contents.h"
#include "runtime/payload.h"
#include "runtime/shared_memory/mirror.h"
#include "runtime/shared_memory/segment.h"

namespace basin {

// A frame that arrived whole.
struct IncomingFrame {
  AnyHeader header;    // The sender may send this kind.
  Encoding encoding;   // That of a contribution; the others are as they are.
  PayloadPtr payload;  // Null if there is none. Keeps the memory in which the payload lies.
  uint64_t payload_bytes = 0;
  uint64_t message_bytes = 0;  // The size of the message that brought it.
  ChunkContents contents;      // The contents of its chunks.
  // The digests that the sender claims; empty if a checksum over the payload was right.
  absl::InlinedVector<Digest, 4> claimed;
  // The payload, if it is in memory that the sender shares: `claimed` counts then, and there are no
  // contents.
  std::shared_ptr<const SharedPayload> shared;

  // The chunks that its bytes make up, if they are of one tensor.
  size_t chunks() const {
    const uint64_t whole = WireChunkBytes(encoding.wire_dtype);
    return shared != nullptr ? (payload_bytes + whole - 1) / whole : contents.size();
  }
};

struct OutgoingFrame {
  AnyHeader header;
  Encoding encoding = {};
  absl::InlinedVector<Digest, 4> digests = {};  // One per chunk.
  PayloadParts payload = {};
  // The segment of this process in which the payload lies, and its version, if receivers on this
  // machine may map it.
  std::shared_ptr<Segment> segment = nullptr;
  uint64_t version = 0;
  // Memory of a device with the same bytes at the same offset; null: there is none.
  std::shared_ptr<Mirror> mirror = nullptr;
};

}  // namespace basin

#endif  // BASIN_RUNTIME_FRAMES_FRAME_H_
