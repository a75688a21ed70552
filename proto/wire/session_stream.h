// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The stream of a session: each message is one gRPC message or, if it is too large for one,
// consecutive pieces. Both transports send the pieces of EncodePieces() and pass received messages
// to a MessageReader.
//
// The memory of a message is computed before protobuf reads it, and charged to a budget, because a
// message of a few megabytes can become gigabytes (expansion.h).
//
// Thread contract: EncodePieces is a pure function; a reader belongs to one stream, and is used by
// one thread at a time; a budget may be shared by all threads. Failure: a status that ends the
// session. INVALID_ARGUMENT for violations of the protocol; RESOURCE_EXHAUSTED for messages that
// are too large to be sent, or do not fit the budget.

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
#include "protocol/limits/limits.h"
#include "protocol/messages.h"

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

// A budget that all readers of a server share, so that their memory does not depend on the number
// of peers.
class ByteBudget {
 public:
  explicit ByteBudget(size_t bytes) : bytes_(bytes), free_(bytes) {}

  size_t bytes() const { return bytes_; }
  bool Take(size_t bytes);
  void Give(size_t bytes) { free_.fetch_add(bytes); }

  // Takes bytes until the returned charge is destroyed. Null: too few are left. REQUIRES: the
  // budget outlives it.
  std::shared_ptr<const void> Hold(size_t bytes);

 private:
  const size_t bytes_;
  std::atomic<size_t> free_;
};

struct ReaderBudgets {
  // For messages that are not complete.
  ByteBudget assembling{kMaxAssemblingBytes};
  // For complete messages: the objects of protobuf, and their decoded values.
  ByteBudget expanding{size_t{1} << 30};
};

// The memory that a message may use uncharged: not much more than its connection needs anyway, and
// more than the messages of a worker within a round.
inline constexpr size_t kUnchargedBytes = size_t{256} << 10;

// `Message` is ToAggregator or ToWorker.
template <typename Message>
class MessageReader {
 public:
  struct Complete {
    Message message;
    uint64_t bytes = 0;     // Sum over the gRPC messages that carried it.
    uint64_t expanded = 0;  // The memory that it needs.
    // Holds the budget for as long as the message is kept. Null: uncharged.
    std::shared_ptr<const void> charge;
  };

  // Null: only the bounds of a single message apply. REQUIRES: `budgets` outlive it, and the
  // charges.
  explicit MessageReader(ReaderBudgets* budgets = nullptr) : budgets_(budgets) {}
  ~MessageReader() { Drop(); }
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;

  // Reads the next gRPC message of the stream. Nothing: its message is not complete. After a
  // failure the reader holds nothing and the stream is to be ended.
  absl::StatusOr<std::optional<Complete>> Read(std::string_view bytes);

  // Bytes of the message that is not complete.
  size_t held() const { return held_.size(); }

 private:
  // Reads a message of protobuf if the budget has room for it; `complete` gets the charge.
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
