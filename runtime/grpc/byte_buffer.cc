// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/byte_buffer.h"

#include <memory>
#include <string_view>
#include <utility>

#include "proto/wire/frame.h"

namespace basin {
namespace {

std::string_view ViewOf(const grpc::Slice& slice) {
  return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
}

class ReceivedPayload : public Payload {
 public:
  ReceivedPayload(std::vector<grpc::Slice> slices, uint64_t bytes, Gauge gauge)
      : slices_(std::move(slices)), charge_(std::move(gauge), bytes) {
    // Views into slices_, which must no longer move: a short slice holds its bytes itself.
    for (const grpc::Slice& slice : slices_) {
      if (slice.size() > 0) pieces_.push_back(ViewOf(slice));
    }
  }
  absl::Span<const std::string_view> pieces() const override { return pieces_; }

 private:
  const std::vector<grpc::Slice> slices_;
  Pieces pieces_;
  const GaugeCharge charge_;
};

// A slice of foreign memory that keeps the owner alive. gRPC may copy a slice, and calls the
// function once, when the last copy is destroyed.
template <typename Owner>
grpc::Slice Borrow(std::string_view bytes, Owner owner) {
  auto* kept = new Owner(std::move(owner));
  return grpc::Slice(
      const_cast<char*>(bytes.data()), bytes.size(),
      [](void* owner) { delete static_cast<Owner*>(owner); }, kept);
}

grpc::Slice SliceOf(std::string bytes, Gauge gauge) {
  const auto kept = std::make_shared<const OwnPayload>(std::move(bytes), std::move(gauge));
  const absl::Span<const std::string_view> pieces = kept->pieces();
  return Borrow(pieces.empty() ? std::string_view() : pieces.front(), kept);
}

std::vector<grpc::Slice> SlicesOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  // Fails for a message that was moved away or does not decompress; it has no bytes then.
  if (!message.Valid() || !message.Dump(&slices).ok()) slices.clear();
  return slices;
}

}  // namespace

PayloadPtr PayloadOf(const grpc::ByteBuffer& message, Gauge gauge) {
  return std::make_shared<ReceivedPayload>(SlicesOf(message), message.Length(), std::move(gauge));
}

std::string StringOf(const grpc::ByteBuffer& message) {
  std::string bytes;
  bytes.reserve(message.Length());
  for (const grpc::Slice& slice : SlicesOf(message)) bytes.append(ViewOf(slice));
  return bytes;
}

grpc::ByteBuffer BufferOf(std::string bytes, Gauge gauge) {
  const grpc::Slice slice = SliceOf(std::move(bytes), std::move(gauge));
  return grpc::ByteBuffer(&slice, 1);
}

grpc::ByteBuffer BufferOf(std::shared_ptr<const std::string> bytes) {
  const std::string_view view = *bytes;
  const grpc::Slice slice = Borrow(view, std::move(bytes));
  return grpc::ByteBuffer(&slice, 1);
}

SharedFrame::SharedFrame(std::string head, const PayloadParts& payload, Gauge gauge)
    : payload_bytes_(payload.bytes()) {
  slices_.resize(1);
  slices_.push_back(SliceOf(std::move(head), std::move(gauge)));
  for (const PayloadPart& part : payload.parts()) {
    ForEachPiece(part,
                 [&](std::string_view piece) { slices_.push_back(Borrow(piece, part.owner)); });
  }
  for (const grpc::Slice& slice : slices_) size_ += slice.size();
}

grpc::ByteBuffer SharedFrame::WithSequence(uint64_t sequence) const {
  std::vector<grpc::Slice> slices = slices_;
  slices.front() = grpc::Slice(wire::EncodeSequence(sequence));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string SharedFrame::BytesWithSequence(uint64_t sequence) const {
  std::string bytes = wire::EncodeSequence(sequence);
  bytes.reserve(bytes.size() + size_);
  for (const grpc::Slice& slice : slices_) bytes.append(ViewOf(slice));
  return bytes;
}

}  // namespace basin
