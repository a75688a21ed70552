// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/stream_machine.h"

#include <algorithm>
#include <utility>

#include "grpc/support/time.h"

namespace basin {
namespace {

// The memory of a waiting message: its bytes, and the list of its slices.
uint64_t Cost(const grpc::ByteBuffer& message) {
  constexpr uint64_t kListBytes = 256;
  return message.Length() + kListBytes;
}

void Add(std::atomic<uint64_t>* gauge, uint64_t bytes) {
  if (gauge != nullptr) *gauge += bytes;
}

void Subtract(std::atomic<uint64_t>* gauge, uint64_t bytes) {
  if (gauge != nullptr) *gauge -= bytes;
}

}  // namespace

void SetAfter(grpc::Alarm& alarm, absl::Duration duration, std::function<void(bool)> done) {
  alarm.Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                         gpr_time_from_millis(absl::ToInt64Milliseconds(duration), GPR_TIMESPAN)),
            std::move(done));
}

StreamMachine::~StreamMachine() {
  Subtract(options_.outbox, waiting_bytes_ + written_bytes_);
  Subtract(options_.inbox, held_bytes_);
}

// ---- starting operations

void StreamMachine::Activate() {
  {
    MutexLock lock(mutex_);
    self_ = shared_from_this();
    active_ = true;
  }
  Drive();
}

void StreamMachine::Release() {
  std::shared_ptr<StreamMachine> self;
  MutexLock lock(mutex_);
  self.swap(self_);
  active_ = false;
}

void StreamMachine::Drive() {
  // Once the last operation has been started, gRPC may release the stream at any moment.
  const std::shared_ptr<StreamMachine> keep = shared_from_this();
  while (true) {
    Operation next;
    {
      MutexLock lock(mutex_);
      if (driving_) return;
      next = Next();
      if (next == Operation::kNone) return;
      driving_ = true;
    }
    StartOperation(next);
    MutexLock lock(mutex_);
    driving_ = false;
  }
}

StreamMachine::Operation StreamMachine::Next() {
  if (!active_) return Operation::kNone;
  if (cancel_ && !cancelled_) {
    cancelled_ = true;
    return Operation::kCancel;
  }
  if (sends_ && !writing_ && !queue_.empty() && MaySend()) {
    writing_ = wrote_ = true;
    outgoing_.Swap(&queue_.front());
    queue_.pop_front();
    written_bytes_ = Cost(outgoing_);
    waiting_bytes_ -= written_bytes_;
    return Operation::kWrite;
  }
  if (const Operation next = NextOfSide(); next != Operation::kNone) return next;
  const bool room =
      held_bytes_ < options_.window.bytes && held_messages_ < options_.window.messages;
  if (!receives_ || reading_ || !room) return Operation::kNone;
  reading_ = true;
  return Operation::kRead;
}

// ---- reading

void StreamMachine::ReadDone(bool ok) {
  bool takes;
  {
    MutexLock lock(mutex_);
    if (!ok) receives_ = sends_ = false;
    takes = taking_ = ok && !deaf_;
  }
  grpc::ByteBuffer message;
  message.Swap(&incoming_);
  const absl::Status taken = takes ? OnMessage(message) : absl::OkStatus();
  message.Clear();
  {
    MutexLock lock(mutex_);
    taking_ = false;
  }
  // Before another read can be started: an error makes the stream deaf.
  if (takes) AfterMessage(taken);
  {
    MutexLock lock(mutex_);
    reading_ = false;
  }
  Drive();
}

void StreamMachine::Hold(uint64_t bytes) {
  MutexLock lock(mutex_);
  held_bytes_ += bytes;
  ++held_messages_;
  Add(options_.inbox, bytes);
}

void StreamMachine::Consumed(uint64_t bytes) {
  {
    MutexLock lock(mutex_);
    bytes = std::min(bytes, held_bytes_);
    held_bytes_ -= bytes;
    held_messages_ -= std::min(1u, held_messages_);
  }
  Subtract(options_.inbox, bytes);
  Drive();
}

// ---- writing

void StreamMachine::Write(grpc::ByteBuffer message) {
  const uint64_t bytes = Cost(message);
  uint64_t waiting;
  bool full;
  {
    MutexLock lock(mutex_);
    if (deaf_ || !sends_) return;
    waiting = waiting_bytes_ + bytes;
    full = waiting > options_.most_waiting_bytes;
    if (!full) {
      queue_.emplace_back();
      queue_.back().Swap(&message);
      waiting_bytes_ = waiting;
      Add(options_.outbox, bytes);
    }
  }
  if (full) return OnSlowReader(waiting);
  Drive();
}

void StreamMachine::WriteDone(bool ok) {
  outgoing_.Clear();
  std::deque<grpc::ByteBuffer> dropped;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    Subtract(options_.outbox, std::exchange(written_bytes_, 0));
    if (!ok) {
      sends_ = false;
      dropped = Drop();
    }
  }
  Drive();
}

uint64_t StreamMachine::queued_bytes() const {
  MutexLock lock(mutex_);
  return waiting_bytes_ + written_bytes_;
}

std::deque<grpc::ByteBuffer> StreamMachine::Drop() {
  Subtract(options_.outbox, std::exchange(waiting_bytes_, 0));
  return std::exchange(queue_, {});
}

// ---- ending

void StreamMachine::Cancel() {
  std::deque<grpc::ByteBuffer> dropped;
  {
    MutexLock lock(mutex_);
    cancel_ = deaf_ = true;
    receives_ = sends_ = false;
    dropped = Drop();
  }
  Drive();
}

void StreamMachine::CancelAfter(absl::Duration linger) {
  SetAfter(linger_, linger, [weak = weak_from_this()](bool expired) {
    if (!expired) return;
    if (const auto self = weak.lock()) self->Cancel();
  });
}

}  // namespace basin
