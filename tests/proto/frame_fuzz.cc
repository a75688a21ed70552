// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The parser of frames, against the generated class. The first byte of the input decides where the
// rest is divided into slices.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "basin/v1/exchange.pb.h"
#include "proto/wire/frame.h"
#include "tests/proto/quiet_protobuf.h"
#include "tests/proto/random_frames.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using basin::testing::Join;
  if (size == 0) return 0;
  const basin::testing::QuietProtobuf quiet;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);

  // A cut every `stride` bytes; 0 for none.
  const size_t stride = data[0] % 32 == 0 ? bytes.size() + 1 : data[0] % 32;
  std::vector<std::string_view> slices;
  for (size_t at = 0; at < bytes.size(); at += stride) {
    slices.push_back(std::string_view(bytes).substr(at, stride));
  }
  const absl::StatusOr<basin::wire::DecodedFrame> cut = basin::wire::DecodeFrame(slices);
  const std::string_view whole = bytes;
  const absl::StatusOr<basin::wire::DecodedFrame> decoded = basin::wire::DecodeFrame({&whole, 1});
  Require(cut.status() == decoded.status());
  if (!decoded.ok()) return 0;

  Require(cut->sequence == decoded->sequence);
  Require(cut->header == decoded->header);
  const std::string payload = Join(decoded->payload);
  Require(Join(cut->payload) == payload);
  Require(cut->places == decoded->places);
  size_t placed = 0;
  for (const basin::SharedPlace& place : decoded->places) placed += place.length;
  Require(decoded->payload_bytes == (decoded->places.empty() ? payload.size() : placed));

  // The generated class reads the same.
  basin::v1::Frame proto;
  Require(proto.ParseFromString(bytes));
  Require(proto.sequence() == decoded->sequence);
  Require(proto.inline_() == payload);
  const basin::v1::SharedMemory& shared = proto.shared_memory();
  Require(proto.has_shared_memory() == !decoded->places.empty());
  const size_t count = proto.has_shared_memory() ? 1 + static_cast<size_t>(shared.more_size()) : 0;
  Require(decoded->places.size() == count);
  const auto of = [](const auto& place) {
    return basin::SharedPlace{place.segment(), place.offset(), place.length(), place.version()};
  };
  for (size_t i = 0; i < decoded->places.size(); ++i) {
    Require(decoded->places[i] == (i == 0 ? of(shared) : of(shared.more(static_cast<int>(i) - 1))));
  }

  // A frame that was read can be written, and read again with the same result.
  const std::string again =
      basin::testing::RandomFrame{decoded->sequence, decoded->header, payload, decoded->places}
          .Encode();
  const std::string_view again_view = again;
  const absl::StatusOr<basin::wire::DecodedFrame> back = basin::wire::DecodeFrame({&again_view, 1});
  Require(back.ok() && back->header == decoded->header && back->sequence == decoded->sequence);
  Require(back->places == decoded->places);
  return 0;
}
