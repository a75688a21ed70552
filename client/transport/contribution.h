// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A tensor on its way out: the trainer's own memory, lent to the transport for as long as frames
// refer to it, and the digests of its chunks, computed once.
//
// Thread contract: plain values; the holders of a Loan may release it on any thread.

#ifndef BASIN_CLIENT_TRANSPORT_CONTRIBUTION_H_
#define BASIN_CLIENT_TRANSPORT_CONTRIBUTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "client/transport/arena.h"
#include "kernels/checksum.h"
#include "proto/wire/frame.h"
#include "protocol/tensor.h"
#include "runtime/payload.h"

namespace basin::client {

// The digest of each chunk of a tensor, in order; none if it has no bytes. `wire_chunk_bytes` is
// the size of a whole chunk on the wire. `and_then` is called for each chunk while the cache has
// it. `copy_to`: each chunk is first copied there, and the copy is what is read.
std::vector<Digest> DigestChunks(
    const kernels::TensorKey& key, const void* data, uint64_t size, uint64_t wire_chunk_bytes,
    const std::function<void(const void* chunk, uint64_t size)>& and_then = nullptr,
    char* copy_to = nullptr);

// A trainer's tensor, ready to be sent.
struct Contribution {
  // The trainer's memory; or null, and there is a copy of our own: `narrow`, or at `place`.
  const void* data = nullptr;
  uint64_t wire_bytes = 0;  // The size as it travels.
  PayloadPtr narrow;        // In `encoding`.
  std::optional<ArenaPlace> place;
  wire::Encoding encoding;
  std::vector<Digest> digests;
  // Before it was narrowed; see kernels/norm.h. Absent: integers have none.
  std::optional<double> squared_norm;

  uint64_t wire_chunk_bytes() const {
    return encoding.wire_dtype == DType::kUnspecified ? kChunkBytes : kChunkBytes / 2;
  }
};

// Computes the digests, the norm and, if there is a `place` or `encoding` is narrower, the copy.
// This reads the whole tensor, so it is done on the thread of the trainer that has just written it.
// REQUIRES: the encoding is of the tensor's own dtype, or one that kernels::CanCast; the place has
// room for the tensor.
Contribution Prepare(const kernels::TensorKey& key, DType dtype, uint64_t tensor_bytes,
                     const void* data, wire::Encoding encoding,
                     std::optional<ArenaPlace> place = std::nullopt);

// The memory that the trainer lent for one round. `returned` is called when the last holder
// releases it, on that holder's thread.
class Loan {
 public:
  explicit Loan(std::function<void()> returned) : returned_(std::move(returned)) {}
  ~Loan() { returned_(); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

 private:
  const std::function<void()> returned_;
};

// A tensor that was lent; or a segment with copies of many, which the next round may overwrite when
// the loan is returned.
class LentPayload : public Payload {
 public:
  LentPayload(std::shared_ptr<Loan> loan, const void* data, uint64_t size)
      : loan_(std::move(loan)), piece_(static_cast<const char*>(data), size) {}
  LentPayload(std::shared_ptr<Loan> loan, std::shared_ptr<const Segment> segment)
      : loan_(std::move(loan)),
        segment_(std::move(segment)),
        piece_(segment_->data(), segment_->size()) {}
  absl::Span<const std::string_view> pieces() const override {
    return {&piece_, piece_.empty() ? size_t{0} : size_t{1}};
  }

 private:
  const std::shared_ptr<Loan> loan_;
  const std::shared_ptr<const Segment> segment_;
  const std::string_view piece_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_CONTRIBUTION_H_
