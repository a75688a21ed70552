// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/incoming.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/tensor.h"

namespace basin::client {
namespace {

absl::Status CheckKind(const wire::FrameHeader& header) {
  const bool known = std::holds_alternative<wire::Ack>(header.kind) ||
                     std::holds_alternative<wire::ResultHeader>(header.kind) ||
                     std::holds_alternative<wire::ValueHeader>(header.kind);
  if (!known) {
    return absl::InvalidArgumentError(
        "The aggregator sent a data frame of a kind that only workers may send.");
  }
  if (header.encoding.wire_dtype != DType::kUnspecified) {
    return absl::InvalidArgumentError(
        absl::StrCat("The aggregator sent a frame as ", DTypeName(header.encoding.wire_dtype),
                     ", but results and values must have the tensor's own dtype."));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<IncomingFrame> FrameReader::Take(PayloadPtr message) {
  absl::StatusOr<wire::DecodedFrame> decoded = wire::DecodeFrame(message->pieces());
  if (!decoded.ok()) return decoded.status();
  const bool is_bound = std::holds_alternative<wire::Bound>(decoded->header.kind);
  if (is_bound == bound_) {
    return absl::InvalidArgumentError(is_bound ? "A data stream was bound twice."
                                               : "A data stream did not begin with Bound.");
  }
  IncomingFrame frame;
  for (const std::string_view piece : message->pieces()) frame.message_bytes += piece.size();
  if (is_bound) {
    bound_ = true;
    frame.kind = wire::Bound{};
    return frame;
  }
  if (absl::Status status = CheckKind(decoded->header); !status.ok()) return status;
  if (decoded->sequence != sequence_ + 1) {
    return absl::DataLossError(absl::StrCat("Frame ", decoded->sequence, " of a data stream came ",
                                            "after frame ", sequence_, "."));
  }
  sequence_ = decoded->sequence;
  frame.kind = std::move(decoded->header.kind);
  frame.payload_bytes = decoded->payload_bytes;
  const auto* result = std::get_if<wire::ResultHeader>(&frame.kind);
  frame.contents = result != nullptr && result->runs.size() > 1
                       ? HashRuns(decoded->payload, result->runs, kChunkBytes)
                       : HashChunks(decoded->payload, kChunkBytes);
  frame.claimed = std::move(decoded->header.chunk_digests);
  if (frame.payload_bytes > 0) {
    frame.payload = Within(std::move(message), std::move(decoded->payload));
  }
  return frame;
}

}  // namespace basin::client
