// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/grpc/call.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/transport/grpc/failure.h"
#include "grpc/grpc.h"
#include "grpc/support/time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"

namespace basin::client {
namespace {

// For a connection to come about. gRPC's own is 20 s; a worker that waits for so long for one
// address of an aggregator that has moved loses the job's time.
constexpr absl::Duration kConnectTime = absl::Seconds(5);

// For the last messages to be taken, and the stream's end to be answered.
constexpr absl::Duration kLinger = absl::Seconds(2);

// Without credentials the channel exists, but never connects; `unusable` is the reason then.
std::shared_ptr<grpc::Channel> OpenChannel(const CallOptions& options,
                                           const std::shared_ptr<Sockets>& sockets,
                                           absl::Status& unusable) {
  grpc::ChannelArguments arguments = ClientArguments(options.settings);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kConnectTime)));
  // The kernel would read a trainer's memory after the write has ended.
  arguments.SetInt(GRPC_ARG_TCP_TX_ZEROCOPY_ENABLED, 0);
  Sockets::Watch(sockets, arguments);
  const auto credentials = ChannelCredentialsOf(options.tls);
  unusable = credentials.status();
  return grpc::CreateCustomChannel(options.address, credentials.value_or(nullptr), arguments);
}

}  // namespace

// ---- the calls of a connector

bool Calls::Add(const std::shared_ptr<Call>& call) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  calls_.insert(call.get());
  return true;
}

void Calls::Remove(Call* call, std::shared_ptr<grpc::Channel> channel) {
  MutexLock lock(mutex_);
  calls_.erase(call);
  channels_.push_back(std::move(channel));
  changed_.NotifyAll();
}

void Calls::Sweep() {
  std::vector<std::shared_ptr<grpc::Channel>> channels;  // Destroyed after the lock.
  MutexLock lock(mutex_);
  channels.swap(channels_);
}

void Calls::CutAll(absl::Duration limit) {
  std::vector<std::shared_ptr<Call>> calls;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    for (Call* call : calls_) calls.push_back(call->weak_from_this().lock());
  }
  for (const std::shared_ptr<Call>& call : calls) {
    if (call != nullptr) call->Cut();
  }
  calls.clear();
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(limit);
  MutexLock lock(mutex_);
  while (!calls_.empty() && std::chrono::steady_clock::now() < until) {
    changed_.WaitUntil(mutex_, until);
  }
}

// ---- life

Call::Call(const CallOptions& options, const std::string& method, uint64_t max_queued_bytes,
           Early early)
    : address_(options.address),
      tls_(options.tls.on()),
      window_(options.window),
      max_queued_bytes_(max_queued_bytes),
      early_(early),
      calls_(options.calls),
      channel_(OpenChannel(options, sockets_, unusable_)) {
  if (const absl::StatusOr<std::string> token =
          ReadToken(options.token_file, options.tls, options.address);
      !token.ok()) {
    unusable_ = token.status();
  } else if (!token->empty()) {
    context_->AddMetadata(kAuthorizationMetadata, kBearer + *token);
  }
  grpc::GenericStub(channel_).PrepareBidiStreamingCall(context_.get(), method, grpc::StubOptions(),
                                                       this);
}

Call::~Call() {
  context_.reset();  // Releases gRPC's call, which holds unsent messages.
  calls_->Remove(this, std::move(channel_));
}

void Call::Start() {
  {
    MutexLock lock(mutex_);
    self_ = shared_from_this();
    // Before the call starts, because it may be over at once, with gRPC's own reason.
    failure_ = unusable_;
    cut_wanted_ = !unusable_.ok();
  }
  const bool added = calls_->Add(shared_from_this());
  AddHold();
  StartCall();
  if (!added) Cut();
  Drive();
}

void Call::Drive() {
  // Once the hold is removed, OnDone may release the call at any moment.
  const std::shared_ptr<Call> keep = shared_from_this();
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

Call::Operation Call::Next() {
  if (released_ || self_ == nullptr) return Operation::kNone;
  if (cut_wanted_ && !cut_) {
    cut_ = true;
    ended_ = true;
    return Operation::kCut;
  }
  if (!ended_ && !unwritable_ && !writing_) {
    const bool may = early_ == Early::kAll || !wrote_ || greeted_;
    if (!queue_.empty() && may) {
      writing_ = true;
      wrote_ = true;
      outgoing_.Swap(&queue_.front());
      queue_.pop_front();
      return Operation::kWrite;
    }
    if (finishing_ && !half_closed_ && queue_.empty()) {
      writing_ = true;
      half_closed_ = true;
      return Operation::kHalfClose;
    }
  }
  const bool room = held_bytes_ < window_.bytes && held_messages_ < window_.messages;
  if (!ended_ && !reading_ && room) {
    reading_ = true;
    return Operation::kRead;
  }
  if (ended_ && !reading_ && !writing_) {
    released_ = true;
    return Operation::kRelease;
  }
  return Operation::kNone;
}

void Call::Start(Operation operation) {
  switch (operation) {
    case Operation::kNone:
      return;
    case Operation::kRead:
      StartRead(&incoming_);
      return;
    case Operation::kWrite:
      StartWrite(&outgoing_);
      return;
    case Operation::kHalfClose:
      StartWritesDone();
      return;
    case Operation::kCut:
      // First the call, so that the loss of the connection is not attributed to the peer.
      context_->TryCancel();
      sockets_->Cut();
      return;
    case Operation::kRelease:
      RemoveHold();
      return;
  }
}

// ---- reading

void Call::OnReadInitialMetadataDone(bool) {
  {
    MutexLock lock(mutex_);
    greeted_ = true;
  }
  Drive();
}

void Call::OnReadDone(bool ok) {
  bool deaf;
  {
    MutexLock lock(mutex_);
    if (!ok) {
      ended_ = true;
      reading_ = false;
    } else {
      held_bytes_ += incoming_.Length();
      ++held_messages_;
    }
    deaf = !ok || closed_ || cut_wanted_;
  }
  if (!deaf) {
    grpc::ByteBuffer message;
    message.Swap(&incoming_);
    if (const absl::Status taken = OnMessage(message); !taken.ok()) Fail(taken);
  }
  if (ok) {
    const uint64_t bytes = deaf ? incoming_.Length() : 0;
    incoming_.Clear();
    MutexLock lock(mutex_);
    reading_ = false;
    // The listener will not report messages that it has not received.
    if (deaf) {
      held_bytes_ -= bytes;
      --held_messages_;
    }
  }
  Drive();
}

void Call::Consumed(uint64_t bytes) {
  {
    MutexLock lock(mutex_);
    held_bytes_ -= std::min(bytes, held_bytes_);
    held_messages_ -= std::min(1u, held_messages_);
  }
  Drive();
}

// ---- writing

void Call::Write(grpc::ByteBuffer message) {
  const uint64_t bytes = message.Length();
  bool full = false;
  {
    MutexLock lock(mutex_);
    if (ended_ || closed_ || cut_wanted_ || unwritable_) return;
    full = bytes > max_queued_bytes_ - queued_bytes_;
    if (!full) {
      queued_bytes_ += bytes;
      queue_.emplace_back();
      queue_.back().Swap(&message);
    }
  }
  if (full) {
    return Fail(absl::ResourceExhaustedError(
        absl::StrCat("the aggregator at ", address_, " does not read its messages: more than ",
                     max_queued_bytes_, " bytes wait for it")));
  }
  Drive();
}

void Call::OnWriteDone(bool ok) {
  const uint64_t bytes = outgoing_.Length();
  outgoing_.Clear();
  std::deque<grpc::ByteBuffer> dropped;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    queued_bytes_ -= std::min(bytes, queued_bytes_);
    if (!ok) {
      unwritable_ = true;
      dropped = Drop();
    }
  }
  Drive();
}

void Call::OnWritesDoneDone(bool) {
  {
    MutexLock lock(mutex_);
    writing_ = false;
  }
  Drive();
}

uint64_t Call::queued_bytes() const {
  MutexLock lock(mutex_);
  return queued_bytes_;
}

std::deque<grpc::ByteBuffer> Call::Drop() {
  for (const grpc::ByteBuffer& message : queue_) {
    queued_bytes_ -= std::min<uint64_t>(message.Length(), queued_bytes_);
  }
  return std::exchange(queue_, {});
}

// ---- ending

void Call::Finish() {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    finishing_ = true;
  }
  linger_.Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                           gpr_time_from_millis(absl::ToInt64Milliseconds(kLinger), GPR_TIMESPAN)),
              [weak = weak_from_this()](bool expired) {
                if (!expired) return;
                if (const auto call = weak.lock()) call->Cut();
              });
  Drive();
}

void Call::Cut() {
  std::deque<grpc::ByteBuffer> dropped;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    cut_wanted_ = true;
    dropped = Drop();
  }
  Drive();
}

void Call::Fail(const absl::Status& why) {
  std::deque<grpc::ByteBuffer> dropped;
  {
    MutexLock lock(mutex_);
    if (closed_ || !failure_.ok()) return;
    failure_ = why;
    cut_wanted_ = true;
    dropped = Drop();
  }
  Drive();
}

void Call::OnDone(const grpc::Status& status) {
  std::shared_ptr<Call> self;
  std::deque<grpc::ByteBuffer> dropped;
  absl::Status why;
  bool told;
  {
    MutexLock lock(mutex_);
    told = closed_;
    closed_ = true;
    ended_ = true;
    why = failure_;
    dropped = Drop();
    self.swap(self_);
  }
  if (!told) Over(why.ok() ? DescribeFailure(address_, tls_, status) : why);
  // The connection was for this call alone.
  sockets_->Cut();
}

}  // namespace basin::client
