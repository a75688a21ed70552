// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A tensor on its way out: the trainer's own memory, lent to the transport for as long as frames
// refer to it, and the digests of its chunks, computed once. The first frames of a large tensor are
// sent while the rest of it is copied and hashed.
//
// Thread contract: plain values; the holders of a Loan may release it on any thread.

#ifndef BASIN_CLIENT_TRANSPORT_CONTRIBUTION_H_
#define BASIN_CLIENT_TRANSPORT_CONTRIBUTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/transport/arena.h"
#include "kernels/checksum.h"
#include "proto/wire/frame.h"
#include "protocol/tensor.h"
#include "runtime/payload.h"

namespace basin::client {

// The digest of each chunk of a tensor, in order; none if it has no bytes.
std::vector<Digest> DigestChunks(const kernels::TensorKey& key, const void* data, uint64_t size);

// A trainer's tensor, ready to be sent; or the first part of it, and the rest comes as Growths.
struct Contribution {
  // The trainer's memory; or null, and there is a copy of our own: `narrow`, or at `place`, or
  // `on_device`.
  const void* data = nullptr;
  // Keeps `data` as long as something reads it; null: the trainer does, as long as the loan lasts.
  std::shared_ptr<const void> owner;
  uint64_t wire_bytes = 0;  // The size as it travels.
  PayloadPtr narrow;        // In `encoding`.
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

// A tensor of which a copy is at a place on a device, with what was computed there.
struct MeasuredTensor {
  TensorHandle tensor = 0;
  DevicePlace place;
  wire::Encoding encoding;
  std::vector<kernels::Digest> contents;  // Those of its chunks, as they travel.
  std::optional<double> squared_norm;     // Before it was narrowed. Absent: integers have none.
};
// `tensor_bytes`: its size before it was narrowed.
Contribution ContributionOf(const kernels::TensorKey& key, uint64_t tensor_bytes,
                            MeasuredTensor&& measured);

// The next chunks of a contribution.
struct Growth {
  uint64_t number = 0;  // Contribution::growing.
  std::vector<Digest> digests;
  bool last = false;  // Nothing comes after it, and the norm is known.
  std::optional<double> squared_norm;
};

// Computes the digests, the norm and, if there is a `place` or `encoding` is narrower, the copy;
// none if the tensor lies at its place already. What was `narrowed` elsewhere is in `encoding`, and
// has had this squared norm.
// This reads the whole tensor, so it is done on the thread of the trainer that has just written it.
class Preparation {
 public:
  // REQUIRES: the encoding is of the tensor's own dtype, or one that kernels::CanCast; the place
  // has room for the tensor. `number` is not 0, and no other contribution has it.
  Preparation(uint64_t number, const kernels::TensorKey& key, DType dtype, uint64_t tensor_bytes,
              const void* data, wire::Encoding encoding,
              std::optional<ArenaPlace> place = std::nullopt,
              std::optional<double> narrowed = std::nullopt);

  // Reads the next `most` bytes of the tensor, or a chunk if that is more, and returns how many it
  // has read. All of the tensor if it is copied to memory that nothing may read before.
  uint64_t Advance(uint64_t most);
  bool done() const { return at_ == tensor_bytes_; }
  uint64_t at() const { return at_; }
  uint64_t bytes() const { return tensor_bytes_; }
  // Whether Advance reads all of the tensor at once.
  bool reads_all() const { return own_ != nullptr; }
  // The norm, if it was not known at first. REQUIRES: the tensor was narrowed; not done().
  void SetNarrowed(double squared_norm) { narrowed_ = squared_norm; }

  // What can be sent so far. Called once, before TakeGrowth.
  Contribution Begin();
  // What has been added since the last call.
  Growth TakeGrowth();

 private:
  void Finish();

  const uint64_t number_;
  const kernels::TensorKey key_;
  const DType dtype_;
  const uint64_t tensor_bytes_;
  const char* const data_;
  std::optional<double> narrowed_;
  uint64_t at_ = 0;     // Bytes of the tensor that were read, or of what it was.
  uint64_t chunk_ = 0;  // The next one.
  // The narrow copy, if it has no place. The contribution refers to it from the start: it may be
  // passed on before the tensor is read.
  std::shared_ptr<char> own_;
  std::vector<Digest> digests_;
  std::vector<double> leaves_;
  kernels::ContentDigest content_;
  Contribution contribution_;
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
