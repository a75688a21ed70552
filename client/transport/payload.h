// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Bytes that travel, held by reference: what the network library received, a trainer's tensor, a
// copy of our own; shared and device memory later.
//
// Ownership: shared. The memory goes back when the last holder lets go, on whatever thread.
// Thread contract: constant, so safe from any thread.

#ifndef BASIN_CLIENT_TRANSPORT_PAYLOAD_H_
#define BASIN_CLIENT_TRANSPORT_PAYLOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "proto/wire/frame.h"

namespace basin::client {

class Payload {
 public:
  virtual ~Payload() = default;

  // Pieces in order. None is empty.
  virtual absl::Span<const std::string_view> pieces() const = 0;
};

using PayloadPtr = std::shared_ptr<const Payload>;

// Bytes of our own.
class OwnPayload : public Payload {
 public:
  explicit OwnPayload(std::string bytes) : bytes_(std::move(bytes)), piece_(bytes_) {}
  absl::Span<const std::string_view> pieces() const override {
    return {&piece_, piece_.empty() ? size_t{0} : size_t{1}};
  }

 private:
  const std::string bytes_;
  const std::string_view piece_;
};

// Bytes [offset, offset + size) of a payload.
struct PayloadPart {
  PayloadPtr owner;
  uint64_t offset = 0;
  uint64_t size = 0;
};

// Appends the pieces of `part`. REQUIRES: somebody holds the owner while they are used.
void AppendPieces(const PayloadPart& part, wire::Slices& pieces);

// Copies the part's bytes, and returns where the copy ends.
char* CopyBytes(const PayloadPart& part, char* to);

// Parts that follow each other; neighbours of one owner are joined.
class PayloadParts {
 public:
  void Append(const PayloadPart& part);

  uint64_t bytes() const;
  // REQUIRES: this outlives what is returned.
  wire::Slices Pieces() const;

 private:
  absl::InlinedVector<PayloadPart, 1> parts_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_PAYLOAD_H_
