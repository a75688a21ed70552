// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/session_stream.h"

#include <xxhash.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "basin/v1/session.pb.h"
#include "google/protobuf/arena.h"
#include "proto/wire/bytes.h"
#include "proto/wire/protobuf_names.h"
#include "proto/wire/session.h"

namespace basin::wire {
namespace {

using google::protobuf::Arena;

template <typename Message>
using Wire =
    std::conditional_t<std::is_same_v<Message, ToAggregator>, v1::ToAggregator, v1::ToWorker>;

// The field of the checksum as it stands at the end of a message, first its tag of two bytes.
constexpr uint32_t kSealTag = (v1::ToWorker::kChecksumFieldNumber << 3) | 1;
static_assert(int{v1::ToWorker::kChecksumFieldNumber} ==
              int{v1::ToAggregator::kChecksumFieldNumber});
constexpr char kSealStart[] = {static_cast<char>((kSealTag & 0x7f) | 0x80),
                               static_cast<char>(kSealTag >> 7)};
constexpr std::string_view kSealStartText(kSealStart, sizeof kSealStart);
constexpr size_t kSealBytes = sizeof kSealStart + sizeof(uint64_t);

uint64_t SealOf(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

absl::Status Changed(std::string_view how) {
  return absl::DataLossError(
      absl::StrCat("It has changed on its way: ", absl::string_view(how.data(), how.size()),
                   ". The session ends and is opened again. If this is frequent, check the network "
                   "and the memory "
                   "of the machines; TLS detects such changes, too."));
}

// The first message of a session.
bool IsFirst(const ToAggregator& message) { return std::holds_alternative<Hello>(message); }
bool IsFirst(const ToWorker&) { return false; }

// The tags and lengths around the bytes of a piece, and the checksum.
constexpr size_t kMostBesidePiece = 64;

template <typename Message>
absl::StatusOr<std::vector<std::string>> Cut(const Message& message) {
  absl::StatusOr<std::string> whole = Encode(message);
  if (!whole.ok()) return whole.status();
  std::vector<std::string> out;
  const bool first = IsFirst(message);
  if (whole->size() <= (first ? kMaxFirstMessageBytes : kMaxMessageBytes) - kSealBytes) {
    out.push_back(*std::move(whole));
    return out;
  }
  size_t size = first ? kMaxFirstMessageBytes - kMostBesidePiece : kPieceBytes;
  for (size_t begin = 0; begin < whole->size(); begin += size, size = kPieceBytes) {
    size = std::min(size, whole->size() - begin);
    Wire<Message> carrier;
    carrier.mutable_piece()->set_bytes(whole->data() + begin, size);
    carrier.mutable_piece()->set_last(begin + size == whole->size());
    out.push_back(carrier.SerializeAsString());
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> EncodePieces(const ToAggregator& message) {
  return Cut(message);
}

absl::StatusOr<std::vector<std::string>> EncodePieces(const ToWorker& message) {
  return Cut(message);
}

std::string Sealed(std::string message) {
  const uint64_t seal = SealOf(message);
  message.append(kSealStartText);
  for (size_t i = 0; i < sizeof seal; ++i) {
    message.push_back(static_cast<char>(seal >> (8 * i)));
  }
  return message;
}

bool ByteBudget::Take(size_t bytes) {
  size_t free = free_.load();
  do {
    if (bytes > free) return false;
  } while (!free_.compare_exchange_weak(free, free - bytes));
  return true;
}

std::shared_ptr<const void> ByteBudget::Hold(size_t bytes) {
  if (!Take(bytes)) return nullptr;
  return std::shared_ptr<const void>(this, [this, bytes](const void*) { Give(bytes); });
}

template <typename Message>
void Outbox<Message>::Add(const std::vector<std::string>& pieces, bool can_wait) {
  // What waits is bounded.
  due_ = due_ || !can_wait || messages_.size() + out_.size() >= kMaxBatchMessages / 2;
  const bool whole = pieces.size() == 1 && pieces.front().size() <= kPieceBytes;
  if (!batches_ || !whole) {
    CloseBatch();
    out_.insert(out_.end(), pieces.begin(), pieces.end());
    return;
  }
  if (messages_.size() == kMaxBatchMessages || bytes_ > kPieceBytes) CloseBatch();
  bytes_ += pieces.front().size();
  messages_.push_back(pieces.front());
}

template <typename Message>
void Outbox<Message>::Add(BatchedFrame&& frame) {
  due_ = true;
  if (frames_.size() == kMaxBatchFrames || bytes_ > kPieceBytes) CloseBatch();
  bytes_ += frame.frame.size();
  frames_.push_back(std::move(frame));
}

template <typename Message>
void Outbox<Message>::CloseBatch() {
  if (messages_.empty() && frames_.empty()) return;
  if (messages_.size() == 1 && frames_.empty()) {
    out_.push_back(std::move(messages_.front()));
  } else {
    Wire<Message> carrier;
    v1::Batch& batch = *carrier.mutable_batch();
    for (std::string& message : messages_) batch.add_messages(std::move(message));
    for (BatchedFrame& one : frames_) {
      v1::StreamFrame& frame = *batch.add_frames();
      frame.set_stream(one.stream);
      frame.set_frame(std::move(one.frame));
    }
    out_.push_back(carrier.SerializeAsString());
  }
  messages_.clear();
  frames_.clear();
  bytes_ = 0;
}

template <typename Message>
std::vector<std::string> Outbox<Message>::Take() {
  CloseBatch();
  due_ = false;
  for (std::string& message : out_) message = Sealed(std::move(message));
  return std::exchange(out_, {});
}

template class Outbox<ToAggregator>;
template class Outbox<ToWorker>;

template <typename Message>
absl::StatusOr<typename MessageReader<Message>::Received> MessageReader<Message>::Read(
    std::string_view bytes) {
  uncharged_ = 0;
  Received received;
  const absl::StatusOr<std::string_view> body = Unseal(bytes);
  if (!body.ok()) {
    Drop();
    return body.status();
  }
  auto one = ReadOne(*body, false, &received);
  if (!one.ok()) return seal_is_wrong_ ? Changed("its checksum is wrong") : one.status();
  if (one->has_value()) received.messages.push_back(**std::move(one));
  return received;
}

template <typename Message>
absl::Status MessageReader<Message>::RequireSeals() {
  seals_required_ = true;
  return all_sealed_ ? absl::OkStatus() : Changed("its checksum is not there");
}

template <typename Message>
absl::StatusOr<std::string_view> MessageReader<Message>::Unseal(std::string_view bytes) {
  seal_is_wrong_ = false;
  const bool sealed = bytes.size() >= kSealBytes &&
                      bytes.substr(bytes.size() - kSealBytes, sizeof kSealStart) == kSealStartText;
  if (sealed) {
    const std::string_view body = bytes.substr(0, bytes.size() - kSealBytes);
    uint64_t seal = 0;
    for (size_t i = 0; i < sizeof seal; ++i) {
      seal |= uint64_t{static_cast<uint8_t>(bytes[body.size() + sizeof kSealStart + i])} << (8 * i);
    }
    if (seal == SealOf(body)) return body;
  }
  seal_is_wrong_ = sealed;
  all_sealed_ = false;
  if (!seals_required_) return bytes;
  return Changed(sealed ? "its checksum is wrong" : "its checksum is not there");
}

template <typename Message>
absl::StatusOr<std::optional<typename MessageReader<Message>::Complete>>
MessageReader<Message>::ReadOne(std::string_view bytes, bool in_batch, Received* batch) {
  // After any failure the held bytes are useless.
  const auto refuse = [this](absl::Status why) {
    Drop();
    return why;
  };
  Arena arena;
  Wire<Message>& carrier = NewIn<Wire<Message>>(arena);
  Complete complete;
  if (absl::Status status = Expand(bytes, kMaxMessageBytes, &carrier, &complete); !status.ok()) {
    return refuse(std::move(status));
  }
  // The bytes of a message without a checksum may look like one, but protobuf finds no such field.
  if (carrier.checksum() != 0) return refuse(Changed("its checksum is wrong"));
  arrived_ += bytes.size();
  if ((carrier.has_piece() || carrier.has_batch()) && in_batch) {
    return refuse(absl::InvalidArgumentError("A batch has a piece, or another batch."));
  }
  const bool whole = !carrier.has_piece();
  if (!whole) {
    if (absl::Status status = Append(carrier.piece().bytes()); !status.ok()) {
      return refuse(std::move(status));
    }
    if (!carrier.piece().last()) return std::optional<Complete>();
    complete = Complete();
    carrier.Clear();
    if (absl::Status status = Expand(held_, kMaxAssembledBytes, &carrier, &complete);
        !status.ok()) {
      return refuse(std::move(status));
    }
  } else if (!held_.empty()) {
    return refuse(absl::InvalidArgumentError(
        absl::StrCat("Another message arrived between the pieces of one, after ", held_.size(),
                     " bytes of it.")));
  }
  if (carrier.has_batch() && batches_ && whole) {
    Drop();
    if (absl::Status status = Open(*carrier.mutable_batch(), batch); !status.ok()) return status;
    return std::optional<Complete>();
  }
  complete.bytes = arrived_;
  Drop();
  absl::StatusOr<Message> message = Decode(carrier);
  if (!message.ok()) return message.status();
  complete.message = *std::move(message);
  return std::optional<Complete>(std::move(complete));
}

template <typename Message>
absl::Status MessageReader<Message>::Open(v1::Batch& batch, Received* received) {
  if (batch.messages().empty() && batch.frames().empty()) {
    return absl::InvalidArgumentError("A batch is empty.");
  }
  for (const std::string& bytes : batch.messages()) {
    auto message = ReadOne(bytes, true, nullptr);
    if (!message.ok()) return message.status();
    received->messages.push_back(**std::move(message));
  }
  for (v1::StreamFrame& one : *batch.mutable_frames()) {
    if (one.stream() >= kMaxStreams || one.frame().empty() ||
        one.frame().size() > kMaxBatchedFrameBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("A batch has a frame of ", one.frame().size(), " bytes for data stream ",
                       one.stream(), "; at most ", kMaxBatchedFrameBytes,
                       " bytes and a number below ", kMaxStreams, " are allowed."));
    }
    received->frames.push_back({one.stream(), std::move(*one.mutable_frame())});
  }
  return absl::OkStatus();
}

template <typename Message>
absl::Status MessageReader<Message>::Expand(std::string_view bytes, size_t most,
                                            google::protobuf::Message* message,
                                            Complete* complete) {
  const absl::StatusOr<uint64_t> expanded = Weigh(bytes, most, *message);
  if (!expanded.ok()) return expanded.status();
  complete->expanded = *expanded;
  if (budgets_ == nullptr) return Parse(bytes, most, message);
  if (*expanded <= kUnchargedBytes - uncharged_) {
    uncharged_ += *expanded;
  } else {
    complete->charge = budgets_->expanding.Hold(*expanded);
    if (complete->charge == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "Too many large messages arrive at once: the server can use ",
          budgets_->expanding.bytes(), " bytes of memory for them, and this one needs ", *expanded,
          ". Try again later; if that does not help, give the aggregator more memory."));
    }
  }
  return Parse(bytes, most, message);
}

template <typename Message>
absl::Status MessageReader<Message>::Append(std::string_view piece) {
  if (piece.empty()) return absl::InvalidArgumentError("A piece of a message is empty.");
  if (piece.size() > kMaxAssembledBytes - held_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("A message in pieces has more than ", kMaxAssembledBytes, " bytes."));
  }
  if (budgets_ != nullptr && !budgets_->assembling.Take(piece.size())) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "Too many large messages arrive at once: the server can assemble ",
        budgets_->assembling.bytes(), " bytes at a time, and has no room for this one, of which ",
        held_.size(), " bytes have arrived. Try again later."));
  }
  held_.append(piece);
  return absl::OkStatus();
}

template <typename Message>
void MessageReader<Message>::Drop() {
  if (budgets_ != nullptr) budgets_->assembling.Give(held_.size());
  held_ = std::string();  // Unlike clear(), this frees the memory.
  arrived_ = 0;
}

template class MessageReader<ToAggregator>;
template class MessageReader<ToWorker>;

}  // namespace basin::wire
