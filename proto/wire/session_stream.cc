// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/session_stream.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "basin/v1/session.pb.h"
#include "proto/wire/bytes.h"
#include "proto/wire/session.h"

namespace basin::wire {
namespace {

template <typename Message>
using Wire =
    std::conditional_t<std::is_same_v<Message, ToAggregator>, v1::ToAggregator, v1::ToWorker>;

template <typename Message>
absl::StatusOr<Message> DecodeWhole(std::string_view bytes) {
  if constexpr (std::is_same_v<Message, ToAggregator>) {
    return DecodeToAggregator(bytes);
  } else {
    return DecodeToWorker(bytes);
  }
}

template <typename Message>
absl::StatusOr<std::vector<std::string>> Cut(const Message& message) {
  absl::StatusOr<std::string> whole = Encode(message);
  if (!whole.ok()) return whole.status();
  std::vector<std::string> out;
  if (whole->size() <= kMaxMessageBytes) {
    out.push_back(*std::move(whole));
    return out;
  }
  for (size_t begin = 0; begin < whole->size(); begin += kPieceBytes) {
    const size_t size = std::min(kPieceBytes, whole->size() - begin);
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

bool AssemblyBudget::Take(size_t bytes) {
  size_t free = free_.load();
  do {
    if (bytes > free) return false;
  } while (!free_.compare_exchange_weak(free, free - bytes));
  return true;
}

template <typename Message>
absl::StatusOr<std::optional<typename MessageReader<Message>::Complete>>
MessageReader<Message>::Take(std::string_view bytes) {
  // Whatever fails: what was held is of no use any more.
  const auto refuse = [this](absl::Status why) {
    Drop();
    return why;
  };
  Wire<Message> carrier;
  if (absl::Status status = Parse(bytes, kMaxMessageBytes, &carrier); !status.ok()) {
    return refuse(std::move(status));
  }
  arrived_ += bytes.size();
  if (carrier.has_piece()) {
    if (absl::Status status = Append(carrier.piece().bytes()); !status.ok()) {
      return refuse(std::move(status));
    }
    if (!carrier.piece().last()) return std::optional<Complete>();
  } else if (!held_.empty()) {
    return refuse(absl::InvalidArgumentError(
        absl::StrCat("Another message stands between the pieces of one, after ", held_.size(),
                     " bytes of it.")));
  }
  absl::StatusOr<Message> message =
      carrier.has_piece() ? DecodeWhole<Message>(held_) : Decode(carrier);
  if (!message.ok()) return refuse(message.status());
  Complete complete{*std::move(message), arrived_};
  Drop();
  return std::optional<Complete>(std::move(complete));
}

template <typename Message>
absl::Status MessageReader<Message>::Append(std::string_view piece) {
  if (piece.empty()) return absl::InvalidArgumentError("A piece of a message is empty.");
  if (piece.size() > kMaxAssembledBytes - held_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("A message in pieces has more than ", kMaxAssembledBytes, " bytes."));
  }
  if (budget_ != nullptr && !budget_->Take(piece.size())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("Too many large messages arrive at once: the server puts together ",
                     budget_->bytes(), " bytes at a time, and this one, of which ", held_.size(),
                     " bytes came, finds no room. Try again when others are through."));
  }
  held_.append(piece);
  return absl::OkStatus();
}

template <typename Message>
void MessageReader<Message>::Drop() {
  if (budget_ != nullptr) budget_->Give(held_.size());
  held_ = std::string();  // Not clear(): the memory goes too.
  arrived_ = 0;
}

template class MessageReader<ToAggregator>;
template class MessageReader<ToWorker>;

}  // namespace basin::wire
