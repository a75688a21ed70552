// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The header of a frame: the input is the header, and the frame around it is built so that the
// checksum is right, which mutation alone would not find.

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "basin/v1/exchange.pb.h"
#include "proto/wire/frame.h"
#include "protocol/limits/limits.h"
#include "tests/proto/quiet_protobuf.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const basin::testing::QuietProtobuf quiet;
  basin::v1::Frame frame;
  frame.set_header(data, size);
  basin::v1::FrameHeader header;
  const bool parses = header.ParseFromArray(data, static_cast<int>(size));
  if (header.kind_case() > basin::v1::FrameHeader::kBound) frame.set_sequence(7);
  std::string covered = frame.header();
  if (parses && header.payload_bytes() > 0 && header.payload_bytes() <= basin::kMaxPayloadBytes) {
    frame.set_inline_(std::string(header.payload_bytes(), 'p'));
  }
  if (!parses || header.chunk_digests().empty()) covered += frame.inline_();
  frame.set_checksum(XXH3_64bits(covered.data(), covered.size()));

  const std::string bytes = frame.SerializeAsString();
  const std::string_view whole = bytes;
  const absl::StatusOr<basin::wire::DecodedFrame> decoded = basin::wire::DecodeFrame({&whole, 1});
  Require(decoded.status().code() != absl::StatusCode::kDataLoss);
  if (!decoded.ok()) return 0;

  const std::string_view payload = frame.inline_();
  const absl::StatusOr<std::string> encoded =
      basin::wire::EncodeFrame(decoded->header, {&payload, 1});
  Require(encoded.ok());
  const std::string sequence = basin::wire::EncodeSequence(decoded->sequence);
  const std::string_view slices[] = {sequence, *encoded, payload};
  const absl::StatusOr<basin::wire::DecodedFrame> back = basin::wire::DecodeFrame(slices);
  Require(back.ok() && back->header == decoded->header);
  return 0;
}
