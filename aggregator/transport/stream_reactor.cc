// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/stream_reactor.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpc/support/time.h"
#include "proto/status/status.h"
#include "runtime/grpc/credentials.h"

namespace basin::aggregator {
namespace {

// By the clock that an operator cannot set.
gpr_timespec After(absl::Duration duration) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_millis(absl::ToInt64Milliseconds(duration), GPR_TIMESPAN));
}

// The memory of a waiting message: its bytes, and the list of its slices.
uint64_t Cost(const grpc::ByteBuffer& message) {
  constexpr uint64_t kListBytes = 256;
  return message.Length() + kListBytes;
}

Credentials CredentialsIn(const grpc::CallbackServerContext& context) {
  Presented presented = PresentedBy(context);
  return CredentialsOf(presented.token, std::move(presented.sans));
}

}  // namespace

StreamReactor::StreamReactor(grpc::CallbackServerContext* context, const StreamLimits& limits,
                             TransportCounters& counters, Counter& inbox, Newcomers& newcomers)
    : context_(context),
      peer_(context->peer()),
      credentials_(CredentialsIn(*context)),
      limits_(limits),
      counters_(counters),
      inbox_(inbox),
      newcomers_(newcomers) {}

void StreamReactor::Start() {
  ++counters_.calls_begun;
  newcomers_.Began(peer_);
  {
    MutexLock lock(mutex_);
    self_ = shared_from_this();
  }
  introduction_alarm_.Set(After(limits_.introduction), [weak = weak_from_this()](bool expired) {
    if (!expired) return;
    if (const auto self = weak.lock()) self->IntroductionIsOverdue();
  });
  Drive();
}

// ---- starting operations

void StreamReactor::Drive() {
  // Once Finish has been started, OnDone may release the reactor at any moment.
  const std::shared_ptr<StreamReactor> keep = shared_from_this();
  while (true) {
    Operation next;
    {
      MutexLock lock(mutex_);
      if (driving_) return;
      next = Next();
      if (next == Operation::kNone) return;
      driving_ = true;
    }
    Start(next);
    MutexLock lock(mutex_);
    driving_ = false;
  }
}

StreamReactor::~StreamReactor() {
  counters_.outbox_bytes -= queued_bytes_;
  inbox_ -= held_bytes_;
  if (traffic_ != nullptr) ++traffic_->ended;
}

StreamReactor::Operation StreamReactor::Next() {
  if (finished_) return Operation::kNone;
  if (cut_off_ && !cancelled_) {
    cancelled_ = true;
    return Operation::kCancel;
  }
  if (!writing_ && !queue_.empty()) {
    writing_ = true;
    greeted_ = true;  // gRPC sends the metadata with the first message.
    outgoing_.Swap(&queue_.front());
    queue_.pop_front();
    queued_bytes_ -= Cost(outgoing_);
    return Operation::kWrite;
  }
  if (heard_ && !greeted_ && !closing_.has_value()) {
    greeted_ = true;
    return Operation::kGreet;
  }
  if (closing_.has_value()) {
    if (!writing_) {
      finished_ = true;
      return Operation::kFinish;
    }
    if (lingering_) return Operation::kNone;
    lingering_ = true;
    return Operation::kLinger;
  }
  const bool room = held_bytes_ < limits_.window_bytes && held_messages_ < limits_.window_messages;
  if (!reading_ && !paused_ && room) {
    reading_ = true;
    return Operation::kRead;
  }
  return Operation::kNone;
}

void StreamReactor::Start(Operation operation) {
  switch (operation) {
    case Operation::kNone:
      return;
    case Operation::kRead:
      StartRead(&incoming_);
      return;
    case Operation::kGreet:
      StartSendInitialMetadata();
      return;
    case Operation::kWrite:
      ++counters_.messages_sent;
      counters_.bytes_sent += outgoing_.Length();
      StartWrite(&outgoing_);
      return;
    case Operation::kLinger:
      linger_alarm_.Set(After(limits_.linger), [weak = weak_from_this()](bool expired) {
        if (!expired) return;
        if (const auto self = weak.lock()) self->CutOff();
      });
      return;
    case Operation::kCancel:
      context_->TryCancel();
      return;
    case Operation::kFinish: {
      absl::Status why;
      {
        MutexLock lock(mutex_);
        why = *closing_;
      }
      Finish(ToGrpc(why));
      return;
    }
  }
}

// ---- reading

void StreamReactor::OnReadDone(bool ok) {
  if (!ok) {
    // The peer closed its side, or the message was truncated: gRPC does not distinguish them.
    // Neither affects a contribution.
    Close(absl::OkStatus(), Rest::kDrop);
    TellOver();
    return;
  }
  grpc::ByteBuffer message;
  message.Swap(&incoming_);
  ++counters_.messages_received;
  counters_.bytes_received += message.Length();
  if (traffic_ != nullptr) {
    ++traffic_->messages;
    traffic_->bytes += message.Length();
  }
  {
    MutexLock lock(mutex_);
    if (closing_.has_value()) return;
    taking_ = true;
    if (!introduced_) introduction_bytes_ += message.Length();
  }
  const absl::Status taken = OnMessage(message);
  bool over;
  {
    MutexLock lock(mutex_);
    taking_ = false;
    reading_ = false;
    over = over_;
  }
  if (!taken.ok()) {
    Count(taken);
    Fail(taken);
  } else if (over) {
    TellOver();
  }
  Drive();
}

void StreamReactor::Hold(uint64_t bytes) {
  MutexLock lock(mutex_);
  held_bytes_ += bytes;
  ++held_messages_;
  inbox_ += bytes;
}

void StreamReactor::Consumed(uint64_t bytes) {
  {
    MutexLock lock(mutex_);
    held_bytes_ -= bytes;
    --held_messages_;
  }
  inbox_ -= bytes;
  Drive();
}

void StreamReactor::Pause() {
  MutexLock lock(mutex_);
  paused_ = true;
}

void StreamReactor::Resume() {
  {
    MutexLock lock(mutex_);
    paused_ = false;
  }
  Drive();
}

void StreamReactor::Heard() {
  {
    MutexLock lock(mutex_);
    heard_ = true;
  }
  CountTraffic();
}

void StreamReactor::Introduced() {
  {
    MutexLock lock(mutex_);
    introduced_ = true;
  }
  CountTraffic();
  introduction_alarm_.Cancel();
}

void StreamReactor::CountTraffic() {
  if (traffic_ == nullptr) traffic_ = newcomers_.Introduced(peer_);
}

void StreamReactor::IntroductionIsOverdue() {
  uint64_t bytes = 0;
  {
    MutexLock lock(mutex_);
    if (introduced_ || closing_.has_value()) return;
    bytes = introduction_bytes_;
  }
  ++counters_.silent_calls;
  const std::string time = absl::FormatDuration(limits_.introduction);
  Fail(absl::DeadlineExceededError(
      bytes > 0
          ? absl::StrCat("The first message of the stream did not arrive whole within ", time, ": ",
                         bytes,
                         " bytes of it arrived. Check the network between worker and aggregator.")
          : absl::StrCat(
                "The stream was opened, and no message arrived on it for ", time,
                ". Send its first message (Hello on a session, Bind on a data stream) at once.")));
}

// ---- writing

void StreamReactor::Write(grpc::ByteBuffer message) {
  const uint64_t bytes = Cost(message);
  uint64_t waiting;
  {
    MutexLock lock(mutex_);
    if (closing_.has_value()) return;
    waiting = queued_bytes_ + bytes;
    if (waiting <= limits_.queue_bytes) {
      queue_.emplace_back();
      queue_.back().Swap(&message);
      queued_bytes_ = waiting;
      counters_.outbox_bytes += bytes;
    }
  }
  if (waiting > limits_.queue_bytes) {
    ++counters_.slow_readers;
    Close(
        absl::ResourceExhaustedError(absl::StrCat(
            waiting, " bytes wait for the worker to read them, more than the ", limits_.queue_bytes,
            " that are kept for one stream. Read the messages of the aggregator.")),
        Rest::kDrop);
    return;
  }
  Drive();
}

void StreamReactor::OnWriteDone(bool ok) {
  counters_.outbox_bytes -= Cost(outgoing_);
  outgoing_.Clear();
  {
    MutexLock lock(mutex_);
    writing_ = false;
  }
  if (!ok)
    Close(absl::OkStatus(), Rest::kDrop);  // The connection broke, so the status is not read.
  Drive();
}

uint64_t StreamReactor::queued_bytes() const {
  MutexLock lock(mutex_);
  return queued_bytes_;
}

uint64_t StreamReactor::held_bytes() const {
  MutexLock lock(mutex_);
  return held_bytes_;
}

// ---- ending

void StreamReactor::Close(const absl::Status& why, Rest rest) {
  std::deque<grpc::ByteBuffer> dropped;  // Their payloads are released outside of the lock.
  {
    MutexLock lock(mutex_);
    if (!closing_.has_value()) closing_ = why;
    if (rest == Rest::kDrop) {
      dropped.swap(queue_);
      counters_.outbox_bytes -= queued_bytes_;
      queued_bytes_ = 0;
    }
  }
  Drive();
}

void StreamReactor::Fail(const absl::Status& why) {
  bool closing;
  {
    MutexLock lock(mutex_);
    closing = closing_.has_value();
  }
  // The last messages of a stream that was closed before are still sent.
  if (!closing) Close(why, Rest::kDrop);
  TellOver();
}

void StreamReactor::CutOff() {
  {
    MutexLock lock(mutex_);
    cut_off_ = true;
  }
  Drive();
}

void StreamReactor::OnCancel() {
  Close(absl::OkStatus(), Rest::kDrop);  // By the peer, which reads no status.
  TellOver();
}

void StreamReactor::TellOver() {
  absl::Status ended;
  {
    MutexLock lock(mutex_);
    over_ = true;
    if (taking_ || told_over_) return;
    told_over_ = true;
    if (closing_.has_value()) ended = *closing_;
  }
  Over(ended);
}

void StreamReactor::OnDone() {
  TellOver();
  ++counters_.calls_ended;
  std::shared_ptr<StreamReactor> self;
  MutexLock lock(mutex_);
  self.swap(self_);
}

}  // namespace basin::aggregator
