// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/shard/coordinator_link.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/shard/wire/codec.h"
#include "runtime/grpc/byte_buffer.h"

namespace basin::aggregator {
namespace {

constexpr char kRunMethod[] = "/basin.v1.Shard/Run";

// For the connection to come about.
constexpr absl::Duration kConnectTime = absl::Seconds(5);
// For gRPC to be done with the last call.
constexpr absl::Duration kEndTime = absl::Seconds(5);

}  // namespace

class CoordinatorLink::LinkCall : public client::Call {
 public:
  LinkCall(CoordinatorLink& link, const client::CallOptions& options, uint64_t most_waiting)
      : Call(options, kRunMethod, most_waiting, Early::kAll), link_(link) {}

 private:
  absl::Status Take(const grpc::ByteBuffer& message) override {
    return link_.Take(this, StringOf(message));
  }
  void Over(const absl::Status& why) override { link_.Over(this, why); }

  CoordinatorLink& link_;
};

CoordinatorLink::CoordinatorLink(LinkOptions options)
    : options_(std::move(options)),
      why_(absl::UnavailableError("The connection with the coordinator is being opened.")) {}

CoordinatorLink::~CoordinatorLink() { Stop(); }

void CoordinatorLink::Start(Listener& listener, std::string endpoint) {
  listener_ = &listener;
  options_.hello.endpoint = std::move(endpoint);
  thread_ = std::thread([this] { Run(); });
}

bool CoordinatorLink::Drain(absl::Duration most) {
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(most);
  uint64_t link;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    changed_.NotifyAll();
    if (!linked_ || call_ == nullptr) return true;
    link = link_;
  }
  Send(link, {ShardDraining{}});
  MutexLock lock(mutex_);
  while (linked_ && call_ != nullptr && std::chrono::steady_clock::now() < until) {
    changed_.WaitUntil(mutex_, until);
  }
  return !linked_ || call_ == nullptr;
}

void CoordinatorLink::Stop() {
  std::shared_ptr<LinkCall> call;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    call = std::exchange(call_, nullptr);
    linked_ = false;
    changed_.NotifyAll();
  }
  // What it has sent until now arrives.
  if (call != nullptr) call->Finish();
  call.reset();
  if (thread_.joinable()) thread_.join();
  calls_->CutAll(kEndTime);
  calls_->Sweep();
}

void CoordinatorLink::Run() {
  std::mt19937_64 random{std::random_device{}()};
  absl::Duration backoff = options_.least_backoff;
  for (size_t place = 0;; ++place) {
    const std::string& address = options_.coordinators[place % options_.coordinators.size()];
    if (Attempt(address)) {
      backoff = options_.least_backoff;
      --place;  // This one leads, as far as is known.
    }
    calls_->Sweep();
    const double part = std::uniform_real_distribution<double>(0.5, 1)(random);
    const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(part * backoff);
    backoff = std::min(2 * backoff, options_.most_backoff);
    MutexLock lock(mutex_);
    const auto ends = [this]()
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || draining_; };
    while (!ends() && std::chrono::steady_clock::now() < until) changed_.WaitUntil(mutex_, until);
    if (ends()) return;
  }
}

bool CoordinatorLink::Attempt(const std::string& address) {
  client::CallOptions options;
  options.address = address;
  options.tls = options_.tls;
  options.token_file = options_.token_file;
  options.settings = options_.grpc;
  options.calls = calls_;
  options.connect_time = kConnectTime;
  {
    MutexLock lock(mutex_);
    if (stopping_ || draining_) return false;
  }
  const auto call = std::make_shared<LinkCall>(*this, options, options_.most_waiting_bytes);
  bool ends;
  {
    MutexLock lock(mutex_);
    ends = stopping_ || draining_;
    if (!ends) call_ = call;
    linked_ = false;
  }
  // It is one message, and valid.
  std::vector<std::string> hello = *Encode(FromShard(options_.hello));
  call->Write(BufferOf(std::move(hello.front())));
  // Also if it ends at once: gRPC never frees a call that was prepared and not started.
  call->Start();
  if (ends) {
    call->Cut();
    return false;
  }
  MutexLock lock(mutex_);
  while (call_ == call) changed_.Wait(mutex_);
  return linked_;
}

std::shared_ptr<CoordinatorLink::LinkCall> CoordinatorLink::Find(uint64_t link) {
  MutexLock lock(mutex_);
  return linked_ && link_ == link ? call_ : nullptr;
}

void CoordinatorLink::Send(uint64_t link, const std::vector<ShardEvent>& events) {
  const std::shared_ptr<LinkCall> call = Find(link);
  if (call == nullptr) return;
  absl::StatusOr<std::vector<std::string>> encoded = Encode(FromShard(events));
  if (!encoded.ok()) return Break(link, encoded.status());
  for (std::string& message : *encoded) call->Write(BufferOf(std::move(message)));
}

void CoordinatorLink::Consumed(uint64_t link, uint64_t bytes) {
  if (const std::shared_ptr<LinkCall> call = Find(link)) call->Consumed(bytes);
}

void CoordinatorLink::Break(uint64_t link, const absl::Status& why) {
  const std::shared_ptr<LinkCall> call = Find(link);
  if (call == nullptr) return;
  call->Cut();
  End(call.get(), why);
}

absl::Status CoordinatorLink::view() const {
  MutexLock lock(mutex_);
  return linked_ && call_ != nullptr ? absl::OkStatus() : why_;
}

// ---- of the present call

absl::Status CoordinatorLink::Take(LinkCall* call, const std::string& bytes) {
  absl::StatusOr<ToShard> message = DecodeToShard(bytes);
  if (!message.ok()) {
    return absl::Status(
        message.status().code(),
        absl::StrCat("A message of the coordinator was refused: ", message.status().message()));
  }
  const bool welcomes = std::holds_alternative<ShardWelcome>(*message);
  uint64_t link = 0;
  {
    MutexLock lock(mutex_);
    if (call_.get() != call) return absl::OkStatus();
    if (welcomes == linked_) {
      return absl::InvalidArgumentError(
          welcomes ? "The coordinator welcomed this shard twice."
                   : "The coordinator sent steps before it welcomed this shard.");
    }
    if (welcomes) {
      linked_ = true;
      ++link_;
      refusal_.clear();
    }
    link = link_;
  }
  if (welcomes) {
    call->Consumed(bytes.size());
    listener_->OnLinked(link, std::get<ShardWelcome>(*message));
  } else {
    listener_->OnSteps(link, std::get<std::vector<ShardStep>>(*std::move(message)), bytes.size());
  }
  return absl::OkStatus();
}

void CoordinatorLink::Over(LinkCall* call, const absl::Status& why) { End(call, why); }

void CoordinatorLink::End(LinkCall* call, const absl::Status& why) {
  std::shared_ptr<LinkCall> ended;  // Released outside of the lock.
  bool linked;
  bool differs;
  {
    MutexLock lock(mutex_);
    if (call_.get() != call || std::exchange(ending_, true)) return;
    linked = linked_;
    why_ = why;
    const std::string text(why.message());
    differs = !linked && std::exchange(refusal_, text) != text;
  }
  if (linked) {
    listener_->OnUnlinked(why);
  } else if (differs) {
    listener_->OnRefused(why);
  }
  MutexLock lock(mutex_);
  ending_ = false;
  if (call_.get() != call) return;
  ended = std::exchange(call_, nullptr);
  changed_.NotifyAll();
}

}  // namespace basin::aggregator
