// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/transport/raw_stream.h"

#include <chrono>
#include <utility>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "proto/status/status.h"
#include "runtime/grpc/byte_buffer.h"

namespace basin::aggregator {
namespace {

constexpr std::chrono::minutes kPatience(1);

}  // namespace

std::shared_ptr<grpc::Channel> ChannelTo(int port, const GrpcSettings& settings) {
  return ChannelTo(port, ClientArguments(settings));
}

std::shared_ptr<grpc::Channel> ChannelTo(int port, const grpc::ChannelArguments& arguments) {
  return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                   grpc::InsecureChannelCredentials(), arguments);
}

RawStream::RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     Options options)
    : options_(std::move(options)), stub_(channel), may_go_on_(method != kSessionMethod) {
  context_.set_compression_algorithm(options_.compression);
  stub_.PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(), this);
  // Writes are started from outside of callbacks, too; the hold keeps the call for them.
  AddHold();
  reading_ = true;
  StartRead(&incoming_);
  StartCall();
}

RawStream::~RawStream() {
  Cancel();
  MutexLock lock(mutex_);
  while (!end_.has_value()) changed_.Wait(mutex_);
}

void RawStream::Cancel() {
  context_.TryCancel();
  bool release = false;
  {
    MutexLock lock(mutex_);
    queue_.clear();
    close_writes_ = true;
    if (!writing_) release = std::exchange(holds_, false);
  }
  if (release) RemoveHold();
}

void RawStream::StopReading() {
  MutexLock lock(mutex_);
  reads_ = false;
}

void RawStream::ReadOn() {
  MutexLock lock(mutex_);
  reads_ = true;
  if (reading_ || reads_over_) return;
  reading_ = true;
  StartRead(&incoming_);
}

void RawStream::Write(std::string bytes) { Write(BufferOf(std::move(bytes))); }

void RawStream::Write(grpc::ByteBuffer message) {
  {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(message));
  }
  StartWriting();
}

void RawStream::CloseWrites() {
  {
    MutexLock lock(mutex_);
    close_writes_ = true;
  }
  StartWriting();
}

void RawStream::StartWriting() {
  {
    MutexLock lock(mutex_);
    if (writing_ || !holds_) return;
    if (queue_.empty()) {
      if (!close_writes_) return;
      holds_ = false;
    } else {
      if (std::exchange(began_, true) && !may_go_on_) return;
      writing_ = true;
      outgoing_.Swap(&queue_.front());
      queue_.pop_front();
      StartWrite(&outgoing_);
      return;
    }
  }
  StartWritesDone();
  RemoveHold();
}

void RawStream::OnWriteDone(bool ok) {
  bool release = false;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (ok) {
      ++written_;
    } else {
      queue_.clear();
      release = std::exchange(holds_, false);
    }
    changed_.NotifyAll();
  }
  if (release) RemoveHold();
  StartWriting();
}

void RawStream::OnReadInitialMetadataDone(bool) {
  {
    MutexLock lock(mutex_);
    may_go_on_ = true;
  }
  StartWriting();
}

void RawStream::OnReadDone(bool ok) {
  if (ok && options_.on_message) options_.on_message(incoming_);
  bool release = false;
  {
    MutexLock lock(mutex_);
    reading_ = false;
    if (!ok) {
      reads_over_ = close_writes_ = true;
      queue_.clear();
      if (!writing_) release = std::exchange(holds_, false);
    } else if (!options_.on_message) {
      received_.push_back(StringOf(incoming_));
    }
    if (ok && reads_) {
      reading_ = true;
      StartRead(&incoming_);
    }
    changed_.NotifyAll();
  }
  if (release) RemoveHold();
}

std::optional<std::string> RawStream::Read() {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  MutexLock lock(mutex_);
  while (received_.empty()) {
    if (reads_over_) return std::nullopt;
    if (!reading_) {
      reading_ = true;
      StartRead(&incoming_);
    }
    if (std::chrono::steady_clock::now() >= give_up) {
      ADD_FAILURE() << "no message came";
      return std::nullopt;
    }
    changed_.WaitUntil(mutex_, give_up);
  }
  std::string bytes = std::move(received_.front());
  received_.pop_front();
  return bytes;
}

absl::Status RawStream::AwaitEnd() {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  ReadOn();
  MutexLock lock(mutex_);
  while (!end_.has_value()) {
    if (std::chrono::steady_clock::now() >= give_up) {
      ADD_FAILURE() << "the stream does not end";
      return absl::DeadlineExceededError("the stream does not end");
    }
    changed_.WaitUntil(mutex_, give_up);
  }
  return *end_;
}

uint64_t RawStream::AwaitWrites(uint64_t writes, absl::Duration timeout) {
  const auto give_up = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(timeout);
  MutexLock lock(mutex_);
  while (written_ < writes && !end_.has_value() && std::chrono::steady_clock::now() < give_up) {
    changed_.WaitUntil(mutex_, give_up);
  }
  return written_;
}

void RawStream::OnDone(const grpc::Status& status) {
  if (options_.on_done) options_.on_done(FromGrpc(status));
  MutexLock lock(mutex_);
  end_ = FromGrpc(status);
  changed_.NotifyAll();
}

}  // namespace basin::aggregator
