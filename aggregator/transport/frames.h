// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The frames of a data stream as the aggregator reads and writes them: what arrives is checked and
// hashed on the thread that received it, while its bytes are in the cache. No gRPC here, so that
// other transports and ThreadSanitizer have the same code.
//
// Thread contract: a reader belongs to one stream, and is used by one thread at a time; EncodeHead
// is a pure function.
// Failure: a status that ends the stream: INVALID_ARGUMENT for what breaks the protocol, DATA_LOSS
// for a wrong checksum and for a gap in the sequence.

#ifndef BASIN_AGGREGATOR_TRANSPORT_FRAMES_H_
#define BASIN_AGGREGATOR_TRANSPORT_FRAMES_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "aggregator/engine/frame.h"
#include "proto/wire/frame.h"
#include "runtime/payload.h"

namespace basin::aggregator {

class FrameReader {
 public:
  // What a message of the stream is. An Ack asks for nothing.
  using Taken = std::variant<wire::Bind, IncomingFrame, wire::Ack>;

  // Takes the next message of the stream. The first must be Bind, and no other may.
  absl::StatusOr<Taken> Take(PayloadPtr message);

 private:
  bool bound_ = false;
  uint64_t sequence_ = 0;  // Of the last frame.
};

// The answer to Bind, as a whole message.
std::string EncodeBound();

// What stands before the payload of a frame, after its sequence number; the same for every
// receiver. Failure: none for a frame of the engine's.
absl::StatusOr<std::string> EncodeHead(const OutgoingFrame& frame);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_FRAMES_H_
