// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Bytes that travel, owned by whoever made the memory: the network library's slices, a buffer of
// our pool; shared and device memory later. Bytes do not change once somebody holds them.
//
// Ownership: shared; the memory goes back when the last holder lets go, on whatever thread.
// Thread contract: constant, so safe from any thread.

#ifndef BASIN_AGGREGATOR_ENGINE_PAYLOAD_H_
#define BASIN_AGGREGATOR_ENGINE_PAYLOAD_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "kernels/reducer.h"

namespace basin::aggregator {

class Payload {
 public:
  virtual ~Payload() = default;

  // Pieces in order. None is empty.
  virtual absl::Span<const std::string_view> pieces() const = 0;
};

using PayloadPtr = std::shared_ptr<const Payload>;

// Bytes [offset, offset + size) of a payload.
struct PayloadPart {
  PayloadPtr owner;
  uint64_t offset = 0;
  uint64_t size = 0;
};

// Parts that follow each other. Usually one: neighbours of the same owner are joined.
class PayloadParts {
 public:
  void Append(const PayloadPart& part);
  // The same, as pieces for a kernel or a socket. REQUIRES: this outlives what is returned.
  void AppendTo(std::vector<kernels::Slice>& slices) const;

  uint64_t bytes() const;
  const absl::InlinedVector<PayloadPart, 1>& parts() const { return parts_; }

 private:
  absl::InlinedVector<PayloadPart, 1> parts_;
};

// Appends the pieces of `part`.
void AppendPieces(const PayloadPart& part, std::vector<kernels::Slice>& slices);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_PAYLOAD_H_
