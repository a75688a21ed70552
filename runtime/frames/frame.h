// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Data frames as plain values, on both sides: what they are about, and their bytes by reference.
// reader.h takes them from messages and writes their heads.
//
// Thread contract: plain values.

#ifndef BASIN_RUNTIME_FRAMES_FRAME_H_
#define BASIN_RUNTIME_FRAMES_FRAME_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "protocol/frame.h"
#include "runtime/contents.h"
#include "runtime/gauge.h"
#include "runtime/payload.h"
#include "runtime/shared_memory/segment.h"

namespace basin {

// A payload in memory that its sender shares: parts that follow each other, each with whole chunks.
class SharedParts {
 public:
  void Append(std::shared_ptr<const SharedPayload> part, uint64_t bytes) {
    begins_.push_back(bytes_);
    parts_.push_back(std::move(part));
    bytes_ += bytes;
  }
  bool empty() const { return parts_.empty(); }
  bool AnyOnDevice() const {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->on_device() != nullptr; });
  }

  struct At {
    std::shared_ptr<const SharedPayload> part;
    uint64_t offset = 0;  // In the part.
  };
  // Where byte `at` of the payload is. REQUIRES: the payload has it.
  At Find(uint64_t at) const {
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), at);
    const size_t index = after - begins_.begin() - 1;
    return {parts_[index], at - begins_[index]};
  }

 private:
  absl::InlinedVector<std::shared_ptr<const SharedPayload>, 1> parts_;
  absl::InlinedVector<uint64_t, 1> begins_;
  uint64_t bytes_ = 0;
};

// A frame that arrived whole.
struct IncomingFrame {
  AnyHeader header;   // The sender may send this kind.
  Encoding encoding;  // That of a contribution; the others are as they are.
  // Null if there is none in the message. Keeps the memory in which the payload lies.
  PayloadPtr payload;
  uint64_t payload_bytes = 0;
  uint64_t message_bytes = 0;  // The size of the message that brought it.
  ChunkContents contents;      // The contents of its chunks.
  // The digests that the sender claims; empty if a checksum over the payload was right.
  absl::InlinedVector<Digest, 4> claimed;
  // Counts the memory of `payload`, and of copies that take its place. Null: nothing does.
  Gauge gauge = nullptr;
  // The payload, if it is in memory that the sender shares: `claimed` counts then, and there are no
  // contents.
  SharedParts shared;

  // `size` bytes from `begin` of the payload on. REQUIRES: they are of one chunk.
  PayloadPart Part(uint64_t begin, uint64_t size) const {
    if (shared.empty()) return {payload, begin, size};
    SharedParts::At at = shared.Find(begin);
    return {std::move(at.part), at.offset, size};
  }
  // The digest of its chunk `index`, which is `chunk` of the tensor. In shared memory it is what
  // the sender claims: there is no network in between, and a worker that changes the bytes only
  // changes its own contribution.
  Digest DigestOf(const kernels::TensorKey& tensor, uint64_t chunk, size_t index) const {
    return shared.empty() ? basin::DigestOf(tensor, chunk, contents[index]) : claimed[index];
  }
  // The chunks whose digests it has.
  size_t digests() const { return shared.empty() ? contents.size() : claimed.size(); }
  // The chunks that its bytes make up, if they are of one tensor.
  size_t chunks() const {
    const uint64_t whole = WireChunkBytes(encoding.wire_dtype);
    return shared.empty() ? contents.size() : (payload_bytes + whole - 1) / whole;
  }
};

struct OutgoingFrame {
  AnyHeader header;
  Encoding encoding = {};
  absl::InlinedVector<Digest, 4> digests = {};  // One per chunk.
  PayloadParts payload = {};
  // The segment of this process in which all of the payload lies, and its version, if receivers on
  // this machine may map it.
  std::shared_ptr<Segment> segment = nullptr;
  uint64_t version = 0;
};

}  // namespace basin

#endif  // BASIN_RUNTIME_FRAMES_FRAME_H_
