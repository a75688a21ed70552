// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/frames.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

using FrameContent = decltype(IncomingFrame::what);

absl::StatusOr<FrameContent> ContentOf(wire::FrameHeader&& header) {
  if (auto* contribution = std::get_if<ContributionHeader>(&header.kind)) {
    return std::move(*contribution);
  }
  if (header.encoding.wire_dtype != DType::kUnspecified) {
    return absl::InvalidArgumentError(
        absl::StrCat("A supplied result was sent as ", DTypeName(header.encoding.wire_dtype),
                     "; supplied results travel in the tensor's own dtype. Update the "
                     "client library."));
  }
  if (auto* supply = std::get_if<SupplyHeader>(&header.kind)) return std::move(*supply);
  if (auto* value = std::get_if<ValueHeader>(&header.kind)) return std::move(*value);
  return absl::InvalidArgumentError(
      "A worker sent a data frame of a kind that only the aggregator may send. Update the client "
      "library.");
}

// The runs of a frame of several tensors; null for a frame of one.
const ChunkRuns* ListOf(const FrameContent& content) {
  const auto* contribution = std::get_if<ContributionHeader>(&content);
  const auto* supply = std::get_if<SupplyHeader>(&content);
  const ChunkRuns* runs = contribution != nullptr ? &contribution->runs
                          : supply != nullptr     ? &supply->runs
                                                  : nullptr;
  return runs != nullptr && runs->size() > 1 ? runs : nullptr;
}

}  // namespace

absl::StatusOr<FrameReader::Taken> FrameReader::Take(PayloadPtr message) {
  absl::StatusOr<wire::DecodedFrame> decoded = wire::DecodeFrame(message->pieces());
  if (!decoded.ok()) return decoded.status();
  const auto* bind = std::get_if<wire::Bind>(&decoded->header.kind);
  if ((bind != nullptr) == bound_) {
    return absl::InvalidArgumentError(bound_ ? "A data stream was bound twice."
                                             : "A data stream did not begin with Bind.");
  }
  if (bind != nullptr) {
    bound_ = true;
    return *bind;
  }
  if (decoded->sequence != sequence_ + 1) {
    return absl::DataLossError(absl::StrCat("Frame ", decoded->sequence, " of a data stream came ",
                                            "after frame ", sequence_, "."));
  }
  sequence_ = decoded->sequence;
  if (const auto* ack = std::get_if<wire::Ack>(&decoded->header.kind)) return *ack;

  IncomingFrame frame;
  frame.encoding = decoded->header.encoding;
  const uint64_t chunk_bytes = WireChunkBytes(frame.encoding.wire_dtype);
  frame.claimed = std::move(decoded->header.chunk_digests);
  absl::StatusOr<FrameContent> content = ContentOf(std::move(decoded->header));
  if (!content.ok()) return content.status();
  frame.what = *std::move(content);
  frame.bytes = decoded->payload_bytes;
  const ChunkRuns* list = ListOf(frame.what);
  frame.contents = list != nullptr ? HashRuns(decoded->payload, *list, chunk_bytes)
                                   : HashChunks(decoded->payload, chunk_bytes);
  frame.payload = Within(std::move(message), std::move(decoded->payload));
  return frame;
}

std::string EncodeBound() { return *wire::EncodeFrame({wire::Bound{}, {}, {}}, {}); }

absl::StatusOr<std::string> EncodeHead(const OutgoingFrame& frame) {
  wire::FrameHeader header;
  std::visit([&header](const auto& what) { header.kind = what; }, frame.what);
  header.chunk_digests = frame.digests;
  return wire::EncodeFrame(header, frame.payload.Pieces());
}

}  // namespace basin::aggregator
