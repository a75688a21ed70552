// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/frames/reader.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/wire/frame.h"
#include "protocol/limits/limits.h"

namespace basin {
namespace {

// A smaller payload costs less in its frame than the work of a reference.
constexpr size_t kLeastShared = size_t{8} << 10;

template <typename... Kinds>
bool IsOneOf(const AnyHeader& header) {
  return (std::holds_alternative<Kinds>(header) || ...);
}

absl::Status CheckWorker(const AnyHeader& header, DType wire_dtype) {
  if (!IsOneOf<Ack, ContributionHeader, SupplyHeader, BlobHeader>(header)) {
    return absl::InvalidArgumentError(
        "A worker sent a data frame of a kind that only the aggregator may send. Update the client "
        "library.");
  }
  if (wire_dtype != DType::kUnspecified && !IsOneOf<ContributionHeader>(header)) {
    return absl::InvalidArgumentError(
        absl::StrCat("A supplied result was sent as ", DTypeName(wire_dtype),
                     "; supplied results travel in the tensor's own dtype. Update the client "
                     "library."));
  }
  return absl::OkStatus();
}

absl::Status CheckAggregator(const AnyHeader& header, DType wire_dtype) {
  if (!IsOneOf<Ack, ResultHeader, BlobHeader>(header)) {
    return absl::InvalidArgumentError(
        "The aggregator sent a data frame of a kind that only workers may send.");
  }
  if (wire_dtype != DType::kUnspecified) {
    return absl::InvalidArgumentError(
        absl::StrCat("The aggregator sent a frame as ", DTypeName(wire_dtype),
                     ", but results and values must have the tensor's own dtype."));
  }
  return absl::OkStatus();
}

// The runs of a frame of several tensors; null for a frame of one.
const ChunkRuns* ListOf(const AnyHeader& header) {
  const ChunkRuns* runs = nullptr;
  if (const auto* contribution = std::get_if<ContributionHeader>(&header)) {
    runs = &contribution->runs;
  } else if (const auto* result = std::get_if<ResultHeader>(&header)) {
    runs = &result->runs;
  } else if (const auto* supply = std::get_if<SupplyHeader>(&header)) {
    runs = &supply->runs;
  }
  return runs != nullptr && runs->size() > 1 ? runs : nullptr;
}

}  // namespace

absl::StatusOr<IncomingFrame> FrameReader::Read(PayloadPtr message) {
  absl::StatusOr<wire::DecodedFrame> decoded = wire::DecodeFrame(message->pieces());
  if (!decoded.ok()) return decoded.status();
  const bool worker = sender_ == FrameSender::kWorker;
  IncomingFrame frame;
  frame.header = std::move(decoded->header.kind);
  for (const std::string_view piece : message->pieces()) frame.message_bytes += piece.size();
  const bool opens = worker ? IsOneOf<Bind>(frame.header) : IsOneOf<Bound>(frame.header);
  if (opens == open_) {
    return absl::InvalidArgumentError(
        open_ ? "A data stream was bound twice."
              : absl::StrCat("A data stream did not begin with ", worker ? "Bind" : "Bound", "."));
  }
  if (opens) {
    open_ = true;
    return frame;
  }
  frame.encoding = decoded->header.encoding;
  const DType wire_dtype = frame.encoding.wire_dtype;
  absl::Status allowed =
      worker ? CheckWorker(frame.header, wire_dtype) : CheckAggregator(frame.header, wire_dtype);
  if (!allowed.ok()) return allowed;
  if (decoded->sequence != sequence_ + 1) {
    return absl::DataLossError(absl::StrCat("Frame ", decoded->sequence, " of a data stream came ",
                                            "after frame ", sequence_, "."));
  }
  sequence_ = decoded->sequence;
  frame.payload_bytes = decoded->payload_bytes;
  if (frame.payload_bytes == 0) return frame;
  frame.claimed = std::move(decoded->header.chunk_digests);
  if (!decoded->places.empty()) {
    // Bytes that are passed on from here must not change after they were checked.
    if (worker && !IsOneOf<ContributionHeader>(frame.header)) {
      return absl::InvalidArgumentError(
          "A worker sent a reference to shared memory in a frame that is no contribution. Update "
          "the "
          "client library.");
    }
    for (const SharedPlace& place : decoded->places) {
      auto found = Find(place);
      if (!found.ok()) return found.status();
      frame.shared.Append(*std::move(found), place.length);
    }
    if (!worker && frame.shared.AnyOnDevice()) {
      return absl::InvalidArgumentError(
          "The aggregator sent a frame whose payload is in memory of a device alone.");
    }
    return frame;
  }
  const uint64_t chunk_bytes = WireChunkBytes(wire_dtype);
  const ChunkRuns* list = ListOf(frame.header);
  frame.contents = list != nullptr ? HashRuns(decoded->payload, *list, chunk_bytes)
                                   : HashChunks(decoded->payload, chunk_bytes);
  frame.payload = Within(std::move(message), std::move(decoded->payload));
  return frame;
}

absl::StatusOr<std::shared_ptr<const SharedPayload>> FrameReader::Find(
    const SharedPlace& place) const {
  const std::shared_ptr<Segments> segments = shared_ == nullptr ? nullptr : shared_();
  if (segments != nullptr) return segments->At(place);
  return absl::InvalidArgumentError(
      "A frame refers to shared memory, but nothing is shared in its session.");
}

absl::StatusOr<std::string> EncodeHead(const OutgoingFrame& frame) {
  return wire::EncodeFrame({frame.header, frame.encoding, frame.digests}, frame.payload.Pieces());
}

std::optional<SharedPlaces> PlacesOf(const OutgoingFrame& frame, const Segments& segments) {
  const auto& parts = frame.payload.parts();
  if (frame.digests.empty() || parts.empty() || parts.size() > kMaxPlacesPerFrame) {
    return std::nullopt;
  }
  if (parts.size() > 1 && !segments.takes_places()) return std::nullopt;
  // The host cannot read what is on a device, however small it is.
  if (frame.payload.bytes() < kLeastShared && !frame.payload.AnyOnDevice()) return std::nullopt;
  Pieces pieces;
  for (const PayloadPart& part : parts) {
    if (const DevicePlace* const device = part.owner->on_device()) {
      pieces.push_back({device->at() + part.offset, part.size});
      continue;
    }
    const size_t before = pieces.size();
    ForEachPiece(part, [&](std::string_view piece) { pieces.push_back(piece); });
    if (pieces.size() != before + 1) return std::nullopt;  // Received from the network.
  }
  std::optional<SharedPlaces> places = segments.Find(pieces);
  if (!places.has_value()) return std::nullopt;
  for (SharedPlace& place : *places) place.version = frame.version;
  return places;
}

absl::StatusOr<std::string> EncodeReference(const OutgoingFrame& frame,
                                            const SharedPlaces& places) {
  return wire::EncodeSharedFrame({frame.header, frame.encoding, frame.digests}, places);
}

}  // namespace basin
