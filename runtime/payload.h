// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Bytes that are sent or were received, held by reference: memory of the network library, a
// trainer's tensor, shared memory, memory of a device, or a copy.
//
// Ownership: shared. The memory is released with the last reference, on any thread. Thread
// contract: constant, so safe from any thread.

#ifndef BASIN_RUNTIME_PAYLOAD_H_
#define BASIN_RUNTIME_PAYLOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/device_segment.h"
#include "runtime/gauge.h"

namespace basin {

// Bytes in pieces, in order. The caller owns the memory.
using Pieces = absl::InlinedVector<std::string_view, 4>;

// Where a payload begins in memory of a device.
struct DevicePlace {
  std::shared_ptr<DeviceSegment> segment;
  uint64_t offset = 0;
  const char* at() const { return segment->data() + offset; }
};

class Payload {
 public:
  virtual ~Payload() = default;

  // Pieces in order. None is empty.
  virtual absl::Span<const std::string_view> pieces() const = 0;
  // Null: the bytes are in the pieces. Otherwise there are none, because the host cannot read them.
  virtual const DevicePlace* on_device() const { return nullptr; }
};

using PayloadPtr = std::shared_ptr<const Payload>;

// Bytes of our own.
class OwnPayload : public Payload {
 public:
  explicit OwnPayload(std::string bytes, Gauge gauge = nullptr)
      : bytes_(std::move(bytes)), piece_(bytes_), charge_(std::move(gauge), bytes_.capacity()) {}
  absl::Span<const std::string_view> pieces() const override {
    return {&piece_, piece_.empty() ? size_t{0} : size_t{1}};
  }

 private:
  const std::string bytes_;
  const std::string_view piece_;
  const GaugeCharge charge_;
};

// A part of a payload, which keeps the whole payload alive. REQUIRES: `pieces` lie within the
// payload's pieces; none is empty.
PayloadPtr Within(PayloadPtr whole, Pieces pieces);

// Bytes [offset, offset + size) of a payload.
struct PayloadPart {
  PayloadPtr owner;
  uint64_t offset = 0;
  uint64_t size = 0;
};

// Calls take(std::string_view) for each piece of the part, in order. REQUIRES: it is on the host.
template <typename F>
void ForEachPiece(const PayloadPart& part, F&& take) {
  uint64_t skip = part.offset;
  uint64_t left = part.size;
  for (const std::string_view piece : part.owner->pieces()) {
    if (left == 0) return;
    if (skip >= piece.size()) {
      skip -= piece.size();
      continue;
    }
    const std::string_view taken = piece.substr(skip, left);
    take(taken);
    skip = 0;
    left -= taken.size();
  }
}

// The same bytes in memory of the host. Waits for the device if that is where they are. UNAVAILABLE
// when the device fails.
absl::StatusOr<PayloadPart> OnHost(const PayloadPart& part);

// Copies the part's bytes, past the caches if `bypass_cache`, and returns where the copy ends.
char* CopyBytes(const PayloadPart& part, char* to, bool bypass_cache = false);

// Parts that follow each other; neighbours of one owner are joined.
class PayloadParts {
 public:
  void Append(const PayloadPart& part);

  uint64_t bytes() const;
  const absl::InlinedVector<PayloadPart, 1>& parts() const { return parts_; }
  // Whether a part is in memory of a device.
  bool AnyOnDevice() const;
  // REQUIRES: this outlives the result.
  basin::Pieces Pieces() const;

 private:
  absl::InlinedVector<PayloadPart, 1> parts_;
};

// The same bytes for a message. A short part is copied into one piece with its neighbours, which
// costs less than a piece of its own in every layer below. REQUIRES: they are on the host.
PayloadParts WithSmallJoined(const PayloadParts& parts);

}  // namespace basin

#endif  // BASIN_RUNTIME_PAYLOAD_H_
