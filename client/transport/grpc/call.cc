// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/grpc/call.h"

#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/transport/grpc/failure.h"
#include "grpc/grpc.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"

namespace basin::client {
namespace {

// For the last messages to be taken, and the stream's end to be answered.
constexpr absl::Duration kLinger = absl::Seconds(2);

// Without credentials the channel exists, but never connects; `unusable` is the reason then.
std::shared_ptr<grpc::Channel> OpenChannel(const CallOptions& options,
                                           const std::shared_ptr<Sockets>& sockets,
                                           absl::Status& unusable) {
  grpc::ChannelArguments arguments = ClientArguments(options.settings);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(options.connect_time)));
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
    for (Call* call : calls_) {
      calls.push_back(std::static_pointer_cast<Call>(call->weak_from_this().lock()));
    }
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
    : StreamMachine({options.window, max_queued_bytes}),
      address_(options.address),
      shard_(options.shard),
      tls_(options.tls.on()),
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
  // Before the call starts, because it may be over at once, with gRPC's own reason.
  if (!unusable_.ok()) Fail(unusable_);
  const bool added = calls_->Add(std::static_pointer_cast<Call>(shared_from_this()));
  AddHold();
  StartCall();
  if (!added) Cut();
  Activate();
}

Call::Operation Call::NextOfSide() {
  if (sends_ && finishing_ && !half_closed_ && !writing_ && queue_.empty()) {
    writing_ = half_closed_ = true;
    return Operation::kEnd;
  }
  if (receives_ || reading_ || writing_) return Operation::kNone;
  active_ = false;
  return Operation::kRelease;
}

void Call::StartOperation(Operation operation) {
  switch (operation) {
    case Operation::kNone:
    case Operation::kGreet:
      return;
    case Operation::kRead:
      StartRead(&incoming());
      return;
    case Operation::kWrite:
      StartWrite(&outgoing());
      return;
    case Operation::kEnd:
      StartWritesDone();
      return;
    case Operation::kCancel:
      // First the call, so that the loss of the connection is not attributed to the peer.
      context_->TryCancel();
      sockets_->Cut();
      return;
    case Operation::kRelease:
      RemoveHold();
      return;
  }
}

// ---- reading and writing

void Call::OnReadInitialMetadataDone(bool) {
  {
    MutexLock lock(mutex_);
    greeted_ = true;
  }
  Drive();
}

void Call::OnReadDone(bool ok) { ReadDone(ok); }

absl::Status Call::OnMessage(const grpc::ByteBuffer& message) {
  Hold(message.Length());
  return Take(message);
}

void Call::AfterMessage(const absl::Status& taken) {
  if (!taken.ok()) Fail(taken);
}

bool Call::MaySend() const { return early_ == Early::kAll || !wrote_ || greeted_; }

void Call::OnSlowReader(uint64_t) {
  Fail(absl::ResourceExhaustedError(absl::StrCat(DescribePeer(address_, shard_),
                                                 " does not read its messages: more than ",
                                                 max_queued_bytes_, " bytes wait for it")));
}

void Call::OnWriteDone(bool ok) { WriteDone(ok); }

void Call::OnWritesDoneDone(bool) { WriteDone(true); }

// ---- ending

void Call::Finish() {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    closed_ = finishing_ = deaf_ = true;
  }
  CancelAfter(kLinger);
  Drive();
}

void Call::Cut() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  Cancel();
}

void Call::Fail(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    if (closed_ || !failure_.ok()) return;
    failure_ = why;
  }
  Cancel();
}

void Call::OnDone(const grpc::Status& status) {
  std::deque<grpc::ByteBuffer> dropped;
  absl::Status why;
  bool reported;
  {
    MutexLock lock(mutex_);
    reported = closed_;
    closed_ = deaf_ = true;
    why = failure_;
    dropped = Drop();
  }
  if (!reported) Over(why.ok() ? DescribeFailure(address_, tls_, status, shard_) : why);
  // The connection was for this call alone.
  sockets_->Cut();
  Release();
}

}  // namespace basin::client
