// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What travels on a session's stream: each message as one gRPC message or, when it is too large for
// one, as pieces that follow each other. Both transports send what EncodePieces() gives and hand
// what arrives to a MessageReader.
//
// What a message becomes in memory is found out before protobuf reads it, and charged to a budget,
// for a message of a few megabytes can stand for gigabytes (expansion.h).
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
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/limits/limits.h"
#include "proto/vocabulary/messages.h"

namespace google::protobuf {
class Message;
}

namespace basin::wire {

// ---- sender

// The gRPC messages that carry this message; never none. Nothing else may be sent on the stream
// between them.
absl::StatusOr<std::vector<std::string>> EncodePieces(const ToAggregator& message);
absl::StatusOr<std::vector<std::string>> EncodePieces(const ToWorker& message);

// ---- receiver

// Bytes that all readers of a server share, so that what they take does not depend on how many
// strangers send something.
class ByteBudget {
 public:
  explicit ByteBudget(size_t bytes) : bytes_(bytes), free_(bytes) {}

  size_t bytes() const { return bytes_; }
  bool Take(size_t bytes);
  void Give(size_t bytes) { free_.fetch_add(bytes); }

  // Taken until what is returned goes. Null: there are not so many. REQUIRES: the budget outlives
  // it.
  std::shared_ptr<const void> Hold(size_t bytes);

 private:
  const size_t bytes_;
  std::atomic<size_t> free_;
};

struct ReaderBudgets {
  // For messages that are not complete.
  ByteBudget assembling{kMaxAssemblingBytes};
  // For what complete ones become: protobuf's objects, and what they are decoded to.
  ByteBudget expanding{size_t{1} << 30};
};

// What a message may become without being charged: not much more than its connection takes anyway,
// and what a worker says in the middle of a round is less.
inline constexpr size_t kUnchargedBytes = size_t{256} << 10;

// `Message` is ToAggregator or ToWorker.
template <typename Message>
class MessageReader {
 public:
  struct Complete {
    Message message;
    uint64_t bytes = 0;     // Of all gRPC messages that carried it.
    uint64_t expanded = 0;  // What it takes of memory.
    // Of the budget, for as long as the message is kept. Null: uncharged.
    std::shared_ptr<const void> charge;
  };

  // Null: the bounds of a single message are all there is. REQUIRES: `budgets` outlive it, and the
  // charges.
  explicit MessageReader(ReaderBudgets* budgets = nullptr) : budgets_(budgets) {}
  ~MessageReader() { Drop(); }
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;

  // Takes the next gRPC message of the stream. Nothing: its message is not complete. After a
  // failure the reader holds nothing and the stream is to be ended.
  absl::StatusOr<std::optional<Complete>> Take(std::string_view bytes);

  // Bytes of the message that is not complete.
  size_t held() const { return held_.size(); }

 private:
  // Reads a message of protobuf, once there is room for what it comes to; `complete` gets the
  // charge.
  absl::Status Expand(std::string_view bytes, size_t most, google::protobuf::Message* message,
                      Complete* complete) const;
  absl::Status Append(std::string_view piece);
  void Drop();

  ReaderBudgets* const budgets_;
  std::string held_;      // The pieces so far.
  uint64_t arrived_ = 0;  // Bytes of the gRPC messages that brought them.
};

extern template class MessageReader<ToAggregator>;
extern template class MessageReader<ToWorker>;

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_SESSION_STREAM_H_
