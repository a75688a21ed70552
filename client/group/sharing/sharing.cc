// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/group/sharing/sharing.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace basin::client::group {
namespace {

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

absl::StatusOr<std::unique_ptr<Sharing>> Sharing::Make(
    std::shared_ptr<kernels::cuda::TrainerDevice> device, size_t tensors) {
  auto sharing = std::unique_ptr<Sharing>(new Sharing(std::move(device)));
  sharing->words_ = kFirstBits + (tensors + kBits - 1) / kBits;
  auto head = sharing->device_->AllocateOnDevice(sharing->words_ * sizeof(uint64_t));
  if (!head.ok()) return ToStatus(head.failure());
  sharing->head_ = std::move(head).value();
  auto queue = sharing->device_->MakeQueue();
  if (!queue.ok()) return ToStatus(queue.failure());
  sharing->queue_ = std::move(queue).value();
  return sharing;
}

absl::Status Sharing::Broadcast(Communicator& communicator, const Words& head,
                                const std::vector<SharedTensor>& tensors,
                                const nccl::Order& order) {
  std::vector<GroupBytes> parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!Names(head, i) || tensors[i].bytes == 0) continue;
    parts.push_back({tensors[i].memory, tensors[i].bytes});
  }
  return parts.empty() ? absl::OkStatus() : communicator.Broadcast(std::move(parts), order).Wait();
}

absl::Status Sharing::Wait() { return ToStatus(queue_->Wait()); }

absl::Status Sharing::Lead(Communicator& communicator, Worker& worker, LaneHandle lane,
                           const std::vector<SharedTensor>& tensors, const nccl::Order& order,
                           absl::Duration timeout) {
  const RoundOutcome outcome = worker.WaitForResults(lane, timeout);
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
      head[kFirstBits + i / kBits] |= uint64_t{1} << i % kBits;
      uint64_t begin = 0;
      for (const std::string_view piece : (*outcome)->Pieces(tensors[i].tensor)) {
        copy(static_cast<char*>(tensors[i].memory) + begin, piece.data(), piece.size());
        begin += piece.size();
      }
    }
    if (absl::Status copied = failure ? ToStatus(failure) : Wait(); !copied.ok())
      head = Words(words_);
  }
  failure.reset();
  copy(head_.get(), head.data(), words_ * sizeof(uint64_t));
  const absl::Status copied = Wait();
  if (failure || !copied.ok()) {
    // The others wait for the head.
    absl::Status why = failure ? ToStatus(failure) : copied;
    communicator.Abort(why);
    return why;
  }
  const absl::Status told =
      communicator.Broadcast({{head_.get(), words_ * sizeof(uint64_t)}}, {}).Wait();
  if (!told.ok() || !outcome.ok()) return told.ok() ? outcome.status() : told;
  return Broadcast(communicator, head, tensors, {});
}

absl::Status Sharing::Follow(Communicator& communicator, Worker& worker, LaneHandle lane,
                             const std::vector<SharedTensor>& tensors, const nccl::Order& order,
                             absl::Duration timeout) {
  // The leader may wait for other nodes for as long as it likes, but a communicator may not. What
  // becomes of the round here is not asked: the leader broadcasts a head in any case.
  worker.WaitForValue(lane, timeout).IgnoreError();
  absl::Status received = Receive(communicator, worker, lane, tensors, order);
  const absl::Status requested = worker.RequestResults(lane);
  return received.ok() ? requested : received;
}

absl::Status Sharing::Receive(Communicator& communicator, Worker& worker, LaneHandle lane,
                              const std::vector<SharedTensor>& tensors, const nccl::Order& order) {
  const size_t head_bytes = words_ * sizeof(uint64_t);
  absl::Status status = communicator.Broadcast({{head_.get(), head_bytes}}, {}).Wait();
  if (!status.ok()) return status;
  Words head(words_);
  std::optional<Failure> failure = queue_->CopyToHost(head.data(), head_.get(), head_bytes);
  status = Wait();
  if (failure || !status.ok()) {
    // The others may wait for this rank to take its part.
    status = failure ? ToStatus(failure) : status;
    communicator.Abort(status);
    return status;
  }
  if (head[kFollows] == 0) return absl::OkStatus();
  status = Broadcast(communicator, head, tensors, order);
  if (!status.ok()) return status;
  std::vector<Worker::GivenResult> results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!Names(head, i)) continue;
    results.push_back({tensors[i].tensor, std::string(tensors[i].bytes, '\0')});
    if (tensors[i].bytes == 0 || failure) continue;
    failure = queue_->CopyToHost(results.back().bytes.data(), tensors[i].memory, tensors[i].bytes);
  }
  status = Wait();
  if (failure || !status.ok()) return failure ? ToStatus(failure) : status;
  return worker.GiveResults(lane, head[kRound], {head[kTerm], head[kAttempt]}, std::move(results));
}

}  // namespace basin::client::group
