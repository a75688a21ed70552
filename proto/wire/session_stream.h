// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What travels on a session's stream: each message as one gRPC message or, when it is too large for
// one, as pieces that follow each other. Both transports send what EncodePieces() gives and hand
// what arrives to a MessageReader.
//
// Thread contract: EncodePieces is a pure function; a reader belongs to one stream, and is used by
// one thread at a time; a budget may be shared by all threads.
// Failure: a status that ends the session. INVALID_ARGUMENT for what breaks the protocol;
// RESOURCE_EXHAUSTED for what is too large to be sent, or finds no room in the budget.

#ifndef BASIN_PROTO_WIRE_SESSION_STREAM_H_
#define BASIN_PROTO_WIRE_SESSION_STREAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/limits/limits.h"
#include "proto/vocabulary/messages.h"

namespace basin::wire {

// ---- sender

// The gRPC messages that carry this message; never none. Nothing else may be sent on the stream
// between them.
absl::StatusOr<std::vector<std::string>> EncodePieces(const ToAggregator& message);
absl::StatusOr<std::vector<std::string>> EncodePieces(const ToWorker& message);

// ---- receiver

// What all readers of a server may hold of messages that are not complete, so that it does not
// depend on how many strangers begin one.
class AssemblyBudget {
 public:
  explicit AssemblyBudget(size_t bytes = kMaxAssemblingBytes) : bytes_(bytes), free_(bytes) {}

  size_t bytes() const { return bytes_; }
  bool Take(size_t bytes);
  void Give(size_t bytes) { free_.fetch_add(bytes); }

 private:
  const size_t bytes_;
  std::atomic<size_t> free_;
};

// `Message` is ToAggregator or ToWorker.
template <typename Message>
class MessageReader {
 public:
  struct Complete {
    Message message;
    uint64_t bytes = 0;  // Of all gRPC messages that carried it.
  };

  // Null: this stream alone has its own bound, kMaxAssembledBytes. REQUIRES: `budget` outlives it.
  explicit MessageReader(AssemblyBudget* budget = nullptr) : budget_(budget) {}
  ~MessageReader() { Drop(); }
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;

  // Takes the next gRPC message of the stream. Nothing: its message is not complete. After a
  // failure the reader holds nothing and the stream is to be ended.
  absl::StatusOr<std::optional<Complete>> Take(std::string_view bytes);

  // Bytes of the message that is not complete.
  size_t held() const { return held_.size(); }

 private:
  absl::Status Append(std::string_view piece);
  void Drop();

  AssemblyBudget* const budget_;
  std::string held_;      // The pieces so far.
  uint64_t arrived_ = 0;  // Bytes of the gRPC messages that brought them.
};

extern template class MessageReader<ToAggregator>;
extern template class MessageReader<ToWorker>;

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_SESSION_STREAM_H_
