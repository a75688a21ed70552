// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A tensor on its way out: the trainer's own memory, lent to the transport for as long as frames
// refer to it, and the digests of its chunks. source.h makes it.
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
#include "proto/wire/frame.h"
#include "protocol/tensor.h"
#include "runtime/payload.h"

namespace basin::client {

// A trainer's tensor, ready to be sent; or the first part of it, and the rest comes as Growths.
struct Contribution {
  // What is sent, unless it is at `place`, or `on_device`.
  const void* data = nullptr;
  // Keeps `data` as long as something reads it; null: the trainer does, as long as the loan lasts.
  std::shared_ptr<const void> owner;
  uint64_t wire_bytes = 0;  // The size as it travels.
  std::optional<ArenaPlace> place;
  std::optional<DevicePlace> on_device;
  wire::Encoding encoding;
  std::vector<Digest> digests;  // Those of the chunks that can be sent.
  // Before it was narrowed; see kernels/norm.h. Absent: integers have none.
  std::optional<double> squared_norm;
  uint64_t growing = 0;  // The number of the growths; 0: everything is here.

  uint64_t wire_chunk_bytes() const {
    return encoding.wire_dtype == DType::kUnspecified ? kChunkBytes : kChunkBytes / 2;
  }
};

// The next chunks of a contribution.
struct Growth {
  uint64_t number = 0;  // Contribution::growing.
  std::vector<Digest> digests;
  bool last = false;  // Nothing comes after it, and the norm is known.
  std::optional<double> squared_norm;
};

// What a push passes to the runner at once. If one of those that begin cannot be pushed, none is.
struct PushedParts {
  std::vector<std::pair<TensorHandle, Contribution>> begun;
  std::vector<std::pair<TensorHandle, Growth>> more;  // Tensors that have begun before.

  bool empty() const { return begun.empty() && more.empty(); }
  void swap(PushedParts& other) {
    begun.swap(other.begun);
    more.swap(other.more);
  }
};

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

// A tensor that was lent, or has an owner of its own; or a segment with copies of many, which the
// next round may overwrite when the loan is returned.
class LentPayload : public Payload {
 public:
  // `owner`: the loan, or what keeps the data.
  LentPayload(std::shared_ptr<const void> owner, const void* data, uint64_t size)
      : owner_(std::move(owner)), piece_(static_cast<const char*>(data), size) {}
  LentPayload(std::shared_ptr<Loan> loan, std::shared_ptr<const Segment> segment)
      : owner_(std::move(loan)),
        segment_(std::move(segment)),
        piece_(segment_->data(), segment_->size()) {}
  LentPayload(std::shared_ptr<Loan> loan, DevicePlace place)
      : owner_(std::move(loan)), place_(std::move(place)) {}
  absl::Span<const std::string_view> pieces() const override {
    return {&piece_, piece_.empty() ? size_t{0} : size_t{1}};
  }
  const DevicePlace* on_device() const override {
    return place_.segment == nullptr ? nullptr : &place_;
  }

 private:
  const std::shared_ptr<const void> owner_;
  const std::shared_ptr<const Segment> segment_;
  const DevicePlace place_;  // No segment: the bytes are in memory of the host.
  const std::string_view piece_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_CONTRIBUTION_H_
