// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/client/transport/grpc/raw_server.h"

#include <chrono>
#include <utility>

#include "gtest/gtest.h"
#include "runtime/grpc/byte_buffer.h"
#include "tests/runtime/limit.h"

namespace basin::client {
// Reads on and on; writes from a queue, one at a time; finishes when the queue is empty.
class RawCall::Reactor : public grpc::ServerGenericBidiReactor {
 public:
  explicit Reactor(std::shared_ptr<State> state) : state_(std::move(state)) {}

  void Begin(bool greets) {
    if (greets) Greet();
    StartRead(&incoming_);
  }
  void Greet() { StartSendInitialMetadata(); }

  void Send(grpc::ByteBuffer message) {
    {
      MutexLock lock(mutex_);
      queue_.push_back(std::move(message));
    }
    Drive();
  }
  void End(const grpc::Status& status) {
    {
      MutexLock lock(mutex_);
      end_ = status;
    }
    Drive();
  }

  void OnReadDone(bool ok) override {
    {
      MutexLock lock(state_->mutex);
      if (ok) {
        state_->received.push_back(StringOf(incoming_));
      } else {
        state_->read_ended = true;
      }
      state_->changed.NotifyAll();
    }
    if (ok) StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    {
      MutexLock lock(state_->mutex);
      if (ok) ++state_->sent;
      state_->changed.NotifyAll();
    }
    {
      MutexLock lock(mutex_);
      writing_ = false;
      queue_.pop_front();
      if (!ok) queue_.clear();
    }
    Drive();
  }
  void OnCancel() override {
    {
      MutexLock lock(state_->mutex);
      state_->cancelled = true;
      state_->changed.NotifyAll();
    }
    End(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    {
      MutexLock lock(state_->mutex);
      state_->reactor = nullptr;
      state_->done = true;
      state_->changed.NotifyAll();
    }
    delete this;
  }

 private:
  void Drive() {
    const grpc::ByteBuffer* write = nullptr;
    std::optional<grpc::Status> finish;
    {
      MutexLock lock(mutex_);
      if (writing_ || finished_) return;
      if (!queue_.empty()) {
        writing_ = true;
        write = &queue_.front();
      } else if (end_.has_value()) {
        finished_ = true;
        finish = end_;
      }
    }
    if (write != nullptr) StartWrite(write);
    if (finish.has_value()) Finish(*finish);
  }

  const std::shared_ptr<State> state_;
  grpc::ByteBuffer incoming_;
  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);
};

std::string RawCall::AwaitMessage() {
  const auto limit = InAMinute();
  MutexLock lock(state_->mutex);
  while (state_->received.empty() && !state_->read_ended) {
    if (std::chrono::steady_clock::now() > limit) {
      ADD_FAILURE() << "No message came.";
      return "";
    }
    state_->changed.WaitUntil(state_->mutex, limit);
  }
  if (state_->received.empty()) return "";
  std::string message = std::move(state_->received.front());
  state_->received.pop_front();
  return message;
}

bool RawCall::AwaitHalfClose() {
  const auto limit = InAMinute();
  MutexLock lock(state_->mutex);
  while (!state_->read_ended) {
    if (std::chrono::steady_clock::now() > limit) {
      ADD_FAILURE() << "The client's side did not end.";
      return false;
    }
    state_->changed.WaitUntil(state_->mutex, limit);
  }
  return !state_->cancelled;
}

void RawCall::AwaitCancelled() {
  const auto limit = InAMinute();
  MutexLock lock(state_->mutex);
  while (!state_->cancelled) {
    if (std::chrono::steady_clock::now() > limit) {
      ADD_FAILURE() << "The call was not cancelled.";
      return;
    }
    state_->changed.WaitUntil(state_->mutex, limit);
  }
}

void RawCall::Greet() {
  MutexLock lock(state_->mutex);
  if (state_->reactor != nullptr) state_->reactor->Greet();
}

void RawCall::Send(const std::string& message) {
  MutexLock lock(state_->mutex);
  if (state_->reactor != nullptr) state_->reactor->Send(BufferOf(message));
}

void RawCall::End(const grpc::Status& status) {
  MutexLock lock(state_->mutex);
  if (state_->reactor != nullptr) state_->reactor->End(status);
}

uint64_t RawCall::received() const {
  MutexLock lock(state_->mutex);
  return state_->received.size();
}

uint64_t RawCall::sent() const {
  MutexLock lock(state_->mutex);
  return state_->sent;
}

RawServer::RawServer(int port, void (*configure)(grpc::ServerBuilder&)) {
  grpc::ServerBuilder builder;
  // A port that another process uses is an error, not shared.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  if (configure != nullptr) configure(builder);
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                           &port_);
  builder.RegisterCallbackGenericService(this);
  server_ = builder.BuildAndStart();
  EXPECT_NE(server_, nullptr);
}

RawServer::~RawServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

std::string RawServer::address() const { return "127.0.0.1:" + std::to_string(port_); }

std::shared_ptr<RawCall> RawServer::AwaitCall() {
  const auto limit = InAMinute();
  MutexLock lock(mutex_);
  while (calls_.empty()) {
    if (std::chrono::steady_clock::now() > limit) {
      ADD_FAILURE() << "No call came.";
      return std::make_shared<RawCall>();
    }
    changed_.WaitUntil(mutex_, limit);
  }
  auto call = std::move(calls_.front());
  calls_.pop_front();
  return call;
}

grpc::ServerGenericBidiReactor* RawServer::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  auto call = std::make_shared<RawCall>();
  call->method_ = context->method();
  call->peer_ = context->peer();
  auto* reactor = new RawCall::Reactor(call->state_);
  {
    MutexLock lock(call->state_->mutex);
    call->state_->reactor = reactor;
  }
  reactor->Begin(greets_at_once);
  MutexLock lock(mutex_);
  calls_.push_back(std::move(call));
  changed_.NotifyAll();
  return reactor;
}

}  // namespace basin::client
