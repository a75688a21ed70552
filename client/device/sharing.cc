// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/device/sharing.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "client/transport/contribution.h"

namespace basin::client::group {
namespace {

using accelerator::PinnedBudget;
using accelerator::PinnedPool;
using kernels::Failure;
using nccl::Communicator;
using nccl::GroupBytes;

// The words of a head; a bit for each tensor follows them.
enum Word : size_t { kFollows = 0, kRound, kTerm, kAttempt, kFirstBits };
constexpr size_t kBits = 64;

absl::Status ToStatus(const std::optional<Failure>& failure) {
  return failure ? absl::UnavailableError(failure->message) : absl::OkStatus();
}

bool Names(const std::vector<uint64_t>& head, size_t tensor) {
  return (head[kFirstBits + tensor / kBits] >> tensor % kBits & 1) != 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sharing>> Sharing::Make(std::shared_ptr<accelerator::Device> device,
                                                       size_t tensors, uint64_t pinned_bytes) {
  auto sharing = std::unique_ptr<Sharing>(new Sharing(std::move(device), pinned_bytes));
  sharing->words_ = WordsOf(tensors);
  auto head = sharing->device_->AllocateOnDevice(sharing->words_ * sizeof(uint64_t));
  if (!head.ok()) return ToStatus(head.failure());
  sharing->head_ = std::move(head).value();
  auto queue = sharing->device_->MakeQueue();
  if (!queue.ok()) return ToStatus(queue.failure());
  sharing->queue_ = std::move(queue).value();
  return sharing;
}

Sharing::Sharing(std::shared_ptr<accelerator::Device> device, uint64_t pinned_bytes)
    : device_(std::move(device)),
      pinned_(std::make_shared<PinnedPool>(device_, std::make_shared<PinnedBudget>(pinned_bytes))) {
}

std::shared_ptr<char> Sharing::TakeMemory(uint64_t bytes) {
  std::shared_ptr<char> pinned = pinned_->Take(bytes);
  if (pinned != nullptr) return pinned;
  return std::shared_ptr<char>(new char[bytes], std::default_delete<char[]>());
}

size_t Sharing::WordsOf(size_t tensors) { return kFirstBits + (tensors + kBits - 1) / kBits; }

absl::Status Sharing::BroadcastResults(Communicator& communicator, const Words& head,
                                       const std::vector<SharedTensor>& tensors,
                                       const nccl::Order& order) {
  std::vector<GroupBytes> parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!Names(head, i) || tensors[i].bytes == 0) continue;
    parts.push_back({tensors[i].memory, tensors[i].bytes});
  }
  return parts.empty() ? absl::OkStatus() : Broadcast(communicator, std::move(parts), order);
}

// Waits for what was added to the queue, and returns the first failure: that of adding, if any.
absl::Status Sharing::Wait(const std::optional<Failure>& adding) {
  const std::optional<Failure> running = queue_->Wait();
  return ToStatus(adding ? adding : running);
}

absl::Status Sharing::Broadcast(Communicator& communicator, std::vector<GroupBytes> parts,
                                const nccl::Order& order) {
  absl::Status status = communicator.Broadcast(std::move(parts), order).Wait();
  stuck_ |= !status.ok() && !communicator.quiet();
  return status;
}

absl::Status Sharing::BroadcastHead(Communicator& communicator) {
  return Broadcast(communicator, {{head_.get(), words_ * sizeof(uint64_t)}}, {});
}

Sharing::~Sharing() {
  if (stuck_) static_cast<void>(head_.release());
}

absl::Status Sharing::Lead(Communicator& communicator, Worker& worker, LaneHandle lane,
                           const std::vector<SharedTensor>& tensors, const nccl::Order& order,
                           absl::Duration timeout) {
  const RoundOutcome outcome = worker.WaitForResults(lane, timeout);
  if (absl::IsDeadlineExceeded(outcome.status())) return outcome.status();
  Words head(words_);
  std::optional<Failure> failure;
  const auto copy = [&](void* to, const void* from, size_t size) {
    if (!failure) failure = queue_->CopyToDevice(to, from, size);
  };
  if (outcome.ok()) {
    const VerdictRecord& record = (*outcome)->record();
    head[kFollows] = 1;
    head[kRound] = record.round;
    head[kTerm] = record.value_ballot.term;
    head[kAttempt] = record.value_ballot.attempt;
    if (order.after != nullptr) failure = queue_->After(order.after.get());
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!(*outcome)->Has(tensors[i].tensor)) continue;
      const std::vector<std::string_view> pieces = (*outcome)->Pieces(tensors[i].tensor);
      uint64_t bytes = 0;
      for (const std::string_view piece : pieces) bytes += piece.size();
      if (bytes != tensors[i].bytes) continue;  // The aggregator has used its memory again.
      head[kFirstBits + i / kBits] |= uint64_t{1} << i % kBits;
      bytes = 0;
      for (const std::string_view piece : pieces) {
        copy(static_cast<char*>(tensors[i].memory) + bytes, piece.data(), piece.size());
        bytes += piece.size();
      }
    }
    if (!Wait(failure).ok()) head = Words(words_);
  }
  failure.reset();
  copy(head_.get(), head.data(), words_ * sizeof(uint64_t));
  absl::Status status = Wait(failure);
  if (!status.ok()) {
    communicator.Abort(status);  // The others wait for the head.
    return status;
  }
  status = BroadcastHead(communicator);
  if (!status.ok() || !outcome.ok()) return status.ok() ? outcome.status() : status;
  return BroadcastResults(communicator, head, tensors, {});
}

absl::Status Sharing::Follow(Communicator& communicator, Worker& worker, LaneHandle lane,
                             const std::vector<SharedTensor>& tensors, const nccl::Order& order,
                             absl::Duration timeout) {
  // The leader may wait for other nodes for as long as it likes, but a communicator may not. What
  // becomes of the round here is not asked: the leader broadcasts a head in any case.
  absl::Status status = worker.WaitForValue(lane, timeout);
  if (absl::IsDeadlineExceeded(status)) return status;
  return Receive(communicator, worker, lane, tensors, order);
}

absl::Status Sharing::Receive(Communicator& communicator, Worker& worker, LaneHandle lane,
                              const std::vector<SharedTensor>& tensors, const nccl::Order& order) {
  absl::Status status = BroadcastHead(communicator);
  if (!status.ok()) return status;
  Words head(words_);
  status = Wait(queue_->CopyToHost(head.data(), head_.get(), words_ * sizeof(uint64_t)));
  if (!status.ok()) {
    communicator.Abort(status);  // The others may wait for this rank to take its part.
    return status;
  }
  if (head[kFollows] == 0) return absl::OkStatus();
  status = BroadcastResults(communicator, head, tensors, order);
  if (!status.ok()) return status;
  // All are on their way before the first is waited for.
  std::vector<std::pair<TensorHandle, PayloadPtr>> results;
  std::optional<Failure> failure;
  for (size_t i = 0; i < tensors.size() && !failure; ++i) {
    if (!Names(head, i) || tensors[i].bytes == 0) continue;
    const std::shared_ptr<char> memory = TakeMemory(tensors[i].bytes);
    failure = queue_->CopyToHost(memory.get(), tensors[i].memory, tensors[i].bytes);
    if (!failure) failure = queue_->Mark();
    results.emplace_back(tensors[i].tensor,
                         std::make_shared<LentPayload>(memory, memory.get(), tensors[i].bytes));
  }
  // One by one: each is progress of this worker.
  for (const auto& [tensor, bytes] : results) {
    if (!failure) failure = queue_->AwaitMark();
    if (failure || !status.ok()) break;
    status = worker.GiveResult(lane, tensor, head[kRound], {head[kTerm], head[kAttempt]}, bytes);
  }
  // The device may write to the memory until then.
  const absl::Status copied = Wait(failure);
  return copied.ok() ? status : copied;
}

}  // namespace basin::client::group
