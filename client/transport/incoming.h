// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Data frames from the aggregator: read, checked and hashed on the thread that received them, while
// their bytes are in its cache.
//
// Thread contract: a reader belongs to one stream, and is used by one thread at a time. Failure: a
// status that ends the stream: INVALID_ARGUMENT for violations of the protocol, DATA_LOSS for a
// wrong checksum and for a gap in the sequence.

#ifndef BASIN_CLIENT_TRANSPORT_INCOMING_H_
#define BASIN_CLIENT_TRANSPORT_INCOMING_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "client/core/event.h"
#include "proto/wire/frame.h"
#include "runtime/contents.h"
#include "runtime/payload.h"

namespace basin::client {

struct IncomingFrame {
  wire::FrameKind kind;  // Bound, Ack, ResultHeader or ValueHeader.
  PayloadPtr payload;    // Null if there is none. Keeps the whole message.
  uint64_t payload_bytes = 0;
  uint64_t message_bytes = 0;  // To be reported as consumed.
  ChunkContents contents;
  // The sender's digest of each chunk; empty if a checksum over the payload was right.
  ChunkDigests claimed;
};

class FrameReader {
 public:
  // Takes the next message of the stream. The first must be Bound, and no other may.
  absl::StatusOr<IncomingFrame> Take(PayloadPtr message);

 private:
  bool bound_ = false;
  uint64_t sequence_ = 0;  // The number of the last frame.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_INCOMING_H_
