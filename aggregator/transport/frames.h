// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The frames of a data stream as the aggregator reads and writes them: frames are checked and
// hashed on the thread that received them, while their bytes are in the cache. There is no gRPC
// here, so that other transports and tests with ThreadSanitizer use the same code.
//
// Thread contract: a reader belongs to one stream, and is used by one thread at a time; EncodeHead
// is a pure function. Failure: a status that ends the stream: INVALID_ARGUMENT for violations of
// the protocol, DATA_LOSS for a wrong checksum and for a gap in the sequence.

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
  // The content of a message of the stream. An Ack needs no action.
  using Taken = std::variant<wire::Bind, IncomingFrame, wire::Ack>;

  // Takes the next message of the stream. The first must be Bind, and no other may.
  absl::StatusOr<Taken> Take(PayloadPtr message);

 private:
  bool bound_ = false;
  uint64_t sequence_ = 0;  // The number of the last frame.
};

// The answer to Bind, as a whole message.
std::string EncodeBound();

// The header of a frame, between its sequence number and its payload; the same for every receiver.
// Failure: none for a frame of the engine.
absl::StatusOr<std::string> EncodeHead(const OutgoingFrame& frame);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_FRAMES_H_
