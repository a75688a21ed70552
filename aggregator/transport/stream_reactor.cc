// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/stream_reactor.h"

#include <deque>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status/status.h"
#include "runtime/grpc/credentials.h"

namespace basin::aggregator {
namespace {

Credentials CredentialsIn(const grpc::CallbackServerContext& context) {
  Presented presented = PresentedBy(context);
  return CredentialsOf(presented.token, std::move(presented.sans));
}

}  // namespace

StreamReactor::StreamReactor(grpc::CallbackServerContext* context, const StreamLimits& limits,
                             TransportCounters& counters, Counter& inbox, Newcomers& newcomers)
    : StreamMachine({limits.window, limits.queue_bytes, &counters.outbox_bytes, &inbox}),
      context_(context),
      peer_(context->peer()),
      credentials_(CredentialsIn(*context)),
      limits_(limits),
      counters_(counters),
      newcomers_(newcomers) {}

StreamReactor::~StreamReactor() {
  if (traffic_ != nullptr) ++traffic_->ended;
}

void StreamReactor::Start() {
  ++counters_.calls_begun;
  newcomers_.Began(peer_);
  SetAfter(introduction_alarm_, limits_.introduction, [weak = weak_from_this()](bool expired) {
    if (!expired) return;
    if (const auto self = weak.lock()) {
      static_cast<StreamReactor&>(*self).IntroductionIsOverdue();
    }
  });
  Activate();
}

StreamReactor::Operation StreamReactor::NextOfSide() {
  if (closing_.has_value()) {
    if (writing_) return Operation::kNone;
    active_ = false;
    return Operation::kEnd;
  }
  // gRPC sends the metadata with the first message.
  if (!first_bytes_read_ || greeted_ || wrote_) return Operation::kNone;
  greeted_ = true;
  return Operation::kGreet;
}

void StreamReactor::StartOperation(Operation operation) {
  switch (operation) {
    case Operation::kNone:
    case Operation::kRelease:
      return;
    case Operation::kRead:
      StartRead(&incoming());
      return;
    case Operation::kGreet:
      StartSendInitialMetadata();
      return;
    case Operation::kWrite:
      ++counters_.messages_sent;
      counters_.bytes_sent += outgoing().Length();
      StartWrite(&outgoing());
      return;
    case Operation::kCancel:
      context_->TryCancel();
      return;
    case Operation::kEnd: {
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
    ReportOver();
    return;
  }
  const uint64_t bytes = incoming().Length();
  ++counters_.messages_received;
  counters_.bytes_received += bytes;
  if (traffic_ != nullptr) {
    ++traffic_->messages;
    traffic_->bytes += bytes;
  }
  {
    MutexLock lock(mutex_);
    if (!introduced_) introduction_bytes_ += bytes;
  }
  ReadDone(true);
}

void StreamReactor::AfterMessage(const absl::Status& taken) {
  if (!taken.ok()) {
    Count(taken);
    Fail(taken);
    return;
  }
  bool over;
  {
    MutexLock lock(mutex_);
    over = over_;
  }
  if (over) ReportOver();
}

void StreamReactor::Pause() {
  MutexLock lock(mutex_);
  receives_ = false;
}

void StreamReactor::Resume() {
  {
    MutexLock lock(mutex_);
    receives_ = !closing_.has_value();
  }
  Drive();
}

void StreamReactor::OnFirstBytes() {
  {
    MutexLock lock(mutex_);
    first_bytes_read_ = true;
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

void StreamReactor::BelongsTo(SessionId session) {
  if (traffic_ != nullptr) traffic_->session = session;
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

void StreamReactor::OnSlowReader(uint64_t waiting_bytes) {
  ++counters_.slow_readers;
  Close(absl::ResourceExhaustedError(
            absl::StrCat(waiting_bytes, " bytes wait for the worker to read them, more than the ",
                         limits_.queue_bytes,
                         " that are kept for one stream. Read the messages of the aggregator.")),
        Rest::kDrop);
}

void StreamReactor::OnWriteDone(bool ok) {
  WriteDone(ok);
  if (!ok) Close(absl::OkStatus(), Rest::kDrop);  // It broke, so the status is not read.
}

// ---- ending

void StreamReactor::Close(const absl::Status& why, Rest rest) {
  std::deque<grpc::ByteBuffer> dropped;  // Their payloads are released outside of the lock.
  bool lingers;
  {
    MutexLock lock(mutex_);
    if (rest == Rest::kDrop) dropped = Drop();
    lingers = !closing_.has_value() && (writing_ || !queue_.empty());
    if (!closing_.has_value()) closing_ = why;
    deaf_ = true;
    receives_ = false;
  }
  if (lingers) CancelAfter(limits_.linger);
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
  ReportOver();
}

void StreamReactor::OnCancel() {
  Close(absl::OkStatus(), Rest::kDrop);  // By the peer, which reads no status.
  ReportOver();
}

void StreamReactor::ReportOver() {
  absl::Status ended;
  {
    MutexLock lock(mutex_);
    over_ = true;
    if (taking_ || over_reported_) return;
    over_reported_ = true;
    if (closing_.has_value()) ended = *closing_;
  }
  Over(ended);
}

void StreamReactor::OnDone() {
  ReportOver();
  ++counters_.calls_ended;
  Release();
}

}  // namespace basin::aggregator
