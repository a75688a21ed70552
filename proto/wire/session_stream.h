// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The stream of a session: a gRPC message is one message, a batch of messages and small frames, or
// a piece of a message that is too large for one. Both transports fill an Outbox with what they
// send, and pass what they receive to a MessageReader.
//
// Each gRPC message has a checksum at its end, because those of TCP and of Ethernet let some
// changes through, and a changed count or weight would be a wrong sum without a trace.
//
// The memory of a message is computed before protobuf reads it, and charged to a budget, because a
// message of a few megabytes can become gigabytes (expansion.h).
//
// Thread contract: EncodePieces is a pure function; a reader and an outbox belong to one stream,
// and are used by one thread at a time; a budget may be shared by all threads. Failure: a status
// that ends the session. DATA_LOSS for a message that has changed on its way; INVALID_ARGUMENT for
// violations of the protocol; RESOURCE_EXHAUSTED for
// messages that are too large to be sent, or do not fit the budget.

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

namespace basin::v1 {
class Batch;
}

namespace basin::wire {

// ---- sender

// The first gRPC message of a worker, behind which it waits for the initial metadata of the call:
// until then an aggregator takes little from a connection.
inline constexpr size_t kMaxFirstMessageBytes = size_t{16} << 10;

// The gRPC messages that carry this message, not sealed yet; never none. Nothing else may be sent
// on the stream between them. The first one of a Hello has at most kMaxFirstMessageBytes.
absl::StatusOr<std::vector<std::string>> EncodePieces(const ToAggregator& message);
absl::StatusOr<std::vector<std::string>> EncodePieces(const ToWorker& message);

// The message with its checksum. Receivers that know no checksums ignore it.
std::string Sealed(std::string message);

// A frame of a data stream in a batch.
struct BatchedFrame {
  uint32_t stream = 0;  // As in Bind.
  std::string frame;
};

// What one side has to send on a session, until it is worth a gRPC message. `Message` is
// ToAggregator or ToWorker: what the session's stream carries.
template <typename Message>
class Outbox {
 public:
  // The peer takes batches; without them each message is one of its own, and frames are refused.
  void UseBatches() { batches_ = true; }
  bool batches() const { return batches_; }

  // The gRPC messages of one message, by EncodePieces. `can_wait`: not before another message,
  // unless many wait already.
  void Add(const std::vector<std::string>& pieces, bool can_wait);
  // REQUIRES: batches(), and the frame has at most kMaxBatchedFrameBytes.
  void Add(BatchedFrame&& frame);

  // Whether something is to be sent now.
  bool due() const { return due_; }
  // The gRPC messages of everything in it, in order, sealed.
  std::vector<std::string> Take();

 private:
  void CloseBatch();

  bool batches_ = false;
  bool due_ = false;
  std::vector<std::string> out_;  // Closed batches, and what travels by itself.
  std::vector<std::string> messages_;
  std::vector<BatchedFrame> frames_;
  size_t bytes_ = 0;  // In the last two.
};

extern template class Outbox<ToAggregator>;
extern template class Outbox<ToWorker>;

// ---- receiver

// A budget that all readers of a server share, so that their memory does not depend on the number
// of peers.
class ByteBudget {
 public:
  explicit ByteBudget(size_t bytes) : bytes_(bytes), free_(bytes) {}

  size_t bytes() const { return bytes_; }
  size_t used() const { return bytes_ - free_.load(); }
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

// The memory that a message or a batch may use uncharged: not much more than its connection needs
// anyway, and more than the messages of a worker within a round.
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

  // From one gRPC message: nothing while a message in pieces is not complete, and more than one
  // message only for a batch. The frames come after the messages.
  struct Received {
    std::vector<Complete> messages;
    std::vector<BatchedFrame> frames;
  };

  // Null: only the bounds of a single message apply. REQUIRES: `budgets` outlive it, and the
  // charges.
  explicit MessageReader(ReaderBudgets* budgets = nullptr) : budgets_(budgets) {}
  ~MessageReader() { Drop(); }
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;

  // From now on batches may come; before, they are refused.
  void AllowBatches() { batches_ = true; }

  // From now on every gRPC message must be sealed. Failure: DATA_LOSS if one of those before was
  // not.
  absl::Status RequireSeals();

  // Reads the next gRPC message of the stream. After a failure the reader holds nothing and the
  // stream is to be ended.
  absl::StatusOr<Received> Read(std::string_view bytes);

  // Bytes of the message that is not complete.
  size_t held() const { return held_.size(); }

 private:
  // The message without its checksum; all of it if it has none and need not have one.
  absl::StatusOr<std::string_view> Unseal(std::string_view bytes);
  // Reads a message that is whole or a piece; nothing while it is not complete.
  absl::StatusOr<std::optional<Complete>> ReadOne(std::string_view bytes, bool in_batch,
                                                  Received* batch);
  absl::Status Open(v1::Batch& batch, Received* received);
  // Reads a message of protobuf if the budget has room for it; `complete` gets the charge.
  absl::Status Expand(std::string_view bytes, size_t most, google::protobuf::Message* message,
                      Complete* complete);
  absl::Status Append(std::string_view piece);
  void Drop();

  ReaderBudgets* const budgets_;
  bool batches_ = false;
  bool seals_required_ = false;
  bool all_sealed_ = true;      // Those that were read.
  bool seal_is_wrong_ = false;  // What the one in hand ends with looks like one, and is wrong.
  std::string held_;            // The pieces so far.
  uint64_t arrived_ = 0;        // Bytes of the gRPC messages that brought them.
  uint64_t uncharged_ = 0;      // Memory for what the gRPC message in hand has brought.
};

extern template class MessageReader<ToAggregator>;
extern template class MessageReader<ToWorker>;

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_SESSION_STREAM_H_
