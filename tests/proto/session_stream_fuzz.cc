// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A stream of messages, whole and in pieces, each behind its length in two bytes: a reader agrees
// with plain concatenation, holds no more than it received, and releases its memory.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "basin/v1/session.pb.h"
#include "proto/wire/session.h"
#include "proto/wire/session_stream.h"
#include "tests/proto/quiet_protobuf.h"

namespace {

using basin::ToAggregator;
using Reader = basin::wire::MessageReader<ToAggregator>;

constexpr size_t kBudget = 512;

void ExpectMessage(const Reader::Complete& taken, const std::string& bytes) {
  const absl::StatusOr<ToAggregator> expected = basin::wire::DecodeToAggregator(bytes);
  // Bytes, not values, are compared: a norm may be NaN.
  if (!expected.ok() || *basin::wire::Encode(taken.message) != *basin::wire::Encode(*expected)) {
    std::abort();
  }
}

// Takes one message off the stream. False: the stream is to be ended.
bool TakeOne(Reader& reader, std::string_view bytes, std::string& pieces) {
  const absl::StatusOr<Reader::Received> taken = reader.Read(bytes);
  basin::v1::ToAggregator plain;
  const bool parsed = plain.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (!taken.ok()) {
    if (reader.held() != 0) std::abort();
    return false;
  }
  if (!parsed || (!pieces.empty() && !plain.has_piece())) std::abort();
  if (plain.has_batch()) {
    const basin::v1::Batch& batch = plain.batch();
    if (taken->messages.size() != static_cast<size_t>(batch.messages_size()) ||
        taken->frames.size() != static_cast<size_t>(batch.frames_size())) {
      std::abort();
    }
    for (int i = 0; i < batch.messages_size(); ++i) {
      ExpectMessage(taken->messages[static_cast<size_t>(i)], batch.messages(i));
    }
    for (int i = 0; i < batch.frames_size(); ++i) {
      const basin::wire::BatchedFrame& frame = taken->frames[static_cast<size_t>(i)];
      if (frame.stream != batch.frames(i).stream() || frame.frame != batch.frames(i).frame()) {
        std::abort();
      }
    }
    return true;
  }
  std::string whole(bytes);
  if (plain.has_piece()) {
    pieces += plain.piece().bytes();
    if (pieces.size() > kBudget) std::abort();
    if (taken->messages.empty() == plain.piece().last()) std::abort();
    if (taken->messages.empty()) {
      if (reader.held() != pieces.size()) std::abort();
      return true;
    }
    whole = std::move(pieces);
    pieces.clear();
  }
  if (taken->messages.size() != 1) std::abort();
  ExpectMessage(taken->messages.front(), whole);
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const basin::testing::QuietProtobuf quiet;
  basin::wire::ReaderBudgets budgets{basin::wire::ByteBudget(kBudget)};
  {
    Reader reader(&budgets);
    reader.AllowBatches();
    std::string pieces;
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    while (rest.size() >= 2) {
      const size_t length = static_cast<uint8_t>(rest[0]) | static_cast<uint8_t>(rest[1]) << 8;
      rest.remove_prefix(2);
      const std::string_view message = rest.substr(0, length);
      rest.remove_prefix(message.size());
      if (!TakeOne(reader, message, pieces)) break;
    }
  }
  if (!budgets.assembling.Take(kBudget)) std::abort();
  return 0;
}
