// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// gRPC's messages as bytes by reference, both ways: nothing here copies a payload.
//
// Ownership: a payload made here keeps the message that arrived. A message made here keeps its
// payloads until gRPC releases it: after it was written, or after the call has ended. Thread
// contract: pure functions; a SharedFrame is constant, so safe from any thread. Failure: none. The
// wire layer checks the content of messages.

#ifndef BASIN_RUNTIME_GRPC_BYTE_BUFFER_H_
#define BASIN_RUNTIME_GRPC_BYTE_BUFFER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "protocol/limits/limits.h"
#include "runtime/gauge.h"
#include "runtime/payload.h"

namespace basin {

// The bytes of a message that arrived, counted in `gauge` (which may be null) while anything has
// them.
PayloadPtr PayloadOf(const grpc::ByteBuffer& message, Gauge gauge = nullptr);

// The bytes of one that arrived, in one piece: copied, for control messages.
std::string StringOf(const grpc::ByteBuffer& message);

// A message of its own bytes, counted in `gauge` (which may be null) until gRPC has sent them.
grpc::ByteBuffer BufferOf(std::string bytes, Gauge gauge = nullptr);

// The same, of bytes that other messages have, too.
grpc::ByteBuffer BufferOf(std::shared_ptr<const std::string> bytes);

// A data frame, serialised once for any number of receivers: each gets the same slices after a
// sequence number of its own.
class SharedFrame {
 public:
  // `head`: by wire::EncodeFrame, over this payload. `gauge`: counts the head alone.
  SharedFrame(std::string head, const PayloadParts& payload, Gauge gauge = nullptr);

  grpc::ByteBuffer WithSequence(uint64_t sequence) const;
  // The same, copied.
  std::string BytesWithSequence(uint64_t sequence) const;
  // Whether it is small enough to travel with a session, in a batch.
  bool FitsBatch() const { return size_ + kMaxFrameOverheadBytes <= kMaxBatchedFrameBytes; }
  uint64_t payload_bytes() const { return payload_bytes_; }

 private:
  std::vector<grpc::Slice> slices_;  // The first is free for the sequence number.
  size_t size_ = 0;
  uint64_t payload_bytes_ = 0;
};

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_BYTE_BUFFER_H_
