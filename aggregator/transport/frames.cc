// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/frames.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

using FrameContent = decltype(IncomingFrame::what);

absl::StatusOr<FrameContent> ContentOf(wire::FrameHeader&& header) {
  if (const auto* contribution = std::get_if<wire::ContributionHeader>(&header.kind)) {
    return ContributionFrame{contribution->lane, contribution->round, contribution->range,
                             header.encoding.wire_dtype, header.encoding.wire_exponent};
  }
  if (header.encoding.wire_dtype != DType::kUnspecified) {
    return absl::InvalidArgumentError(
        absl::StrCat("A supplied result was sent as ", DTypeName(header.encoding.wire_dtype),
                     "; supplied results travel in the tensor's own dtype. Update the "
                     "client library."));
  }
  if (const auto* supply = std::get_if<wire::SupplyHeader>(&header.kind)) {
    return ResultFrame{supply->lane, supply->round, supply->ballot, supply->range};
  }
  if (auto* value = std::get_if<wire::ValueHeader>(&header.kind)) {
    return ValueFrame{std::move(value->key), value->first, value->count};
  }
  return absl::InvalidArgumentError(
      "A worker sent a data frame of a kind that only the aggregator may send. Update the client "
      "library.");
}

wire::FrameKind KindOf(const OutgoingFrame& frame) {
  if (const auto* result = std::get_if<ResultFrame>(&frame.what)) {
    return wire::ResultHeader{result->lane, result->round, result->ballot, result->range};
  }
  const auto& value = std::get<ValueFrame>(frame.what);
  return wire::ValueHeader{value.key, value.first, value.count};
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

  const uint64_t chunk_bytes = WireChunkBytes(decoded->header.encoding.wire_dtype);
  IncomingFrame frame;
  frame.claimed = std::move(decoded->header.chunk_digests);
  absl::StatusOr<FrameContent> content = ContentOf(std::move(decoded->header));
  if (!content.ok()) return content.status();
  frame.what = *std::move(content);
  frame.bytes = decoded->payload_bytes;
  frame.contents = HashChunks(decoded->payload, chunk_bytes);
  frame.payload = Within(std::move(message), std::move(decoded->payload));
  return frame;
}

std::string EncodeBound() { return *wire::EncodeFrame({wire::Bound{}, {}, {}}, {}); }

absl::StatusOr<std::string> EncodeHead(const OutgoingFrame& frame) {
  wire::FrameHeader header;
  header.kind = KindOf(frame);
  header.chunk_digests = frame.digests;
  return wire::EncodeFrame(header, frame.payload.Pieces());
}

}  // namespace basin::aggregator
