// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/session_reactor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/limits/limits.h"
#include "protocol/version.h"
#include "runtime/grpc/byte_buffer.h"

namespace basin::aggregator {

absl::Status SessionReactor::OnMessage(const grpc::ByteBuffer& message) {
  if (!session_.has_value()) {
    absl::Status admitted = registry_.Admit(*this, Rpc::kSession, asked_job_, "");
    if (!admitted.ok()) return admitted;
  }
  auto taken = reader_.Read(StringOf(message));
  if (!taken.ok()) {
    return absl::Status(
        taken.status().code(),
        absl::StrCat("A message of ", session_.has_value() ? who_ : "a session without a hello",
                     " was refused: ", taken.status().message()));
  }
  if (!session_.has_value() && taken->messages.empty()) OnFirstBytes();
  Batch batch;
  std::vector<std::shared_ptr<const void>> charges;
  for (auto& one : taken->messages) {
    if (!session_.has_value()) {
      if (absl::Status opened = OnHello(one.message); !opened.ok()) return opened;
    }
    // The memory of the message until the engine has handled it.
    const uint64_t bytes = std::max(one.bytes, one.expanded);
    Hold(bytes);
    batch.messages.emplace_back(std::move(one.message), bytes);
    if (one.charge != nullptr) charges.push_back(std::move(one.charge));
  }
  if (absl::Status read = Read(std::move(taken->frames), batch); !read.ok()) return read;
  Engine& engine = registry_.engine();
  if (batch.messages.size() == 1 && batch.frames.empty()) {
    auto& [only, bytes] = batch.messages.front();
    engine.OnMessage(*session_, std::move(only), bytes);
  } else if (!batch.messages.empty() || !batch.frames.empty()) {
    engine.OnBatch(*session_, std::move(batch));
  }
  if (!charges.empty()) {
    // The loop takes one thing after the other: when it comes to this, it has dealt with the
    // messages, even if the session is over by then.
    engine.InspectInOrder([charges = std::move(charges)](const Runner&, absl::Time) {});
  }
  return absl::OkStatus();
}

absl::Status SessionReactor::OnHello(const ToAggregator& message) {
  const auto* hello = std::get_if<Hello>(&message);
  if (hello == nullptr) {
    return absl::InvalidArgumentError(
        "A session began with a message other than Hello. Send a Hello first, and wait for the "
        "answer.");
  }
  job_ = hello->job;
  who_ = absl::StrCat("worker ", hello->worker, " of job ", hello->job);
  absl::Status admitted = registry_.Admit(*this, Rpc::kSession, job_, who_);
  if (!admitted.ok()) return admitted;
  session_ = registry_.Open(std::static_pointer_cast<SessionReactor>(shared_from_this()));
  // A revocation meanwhile may have missed it.
  admitted = registry_.Admit(*this, Rpc::kSession, job_, who_);
  if (!admitted.ok()) return admitted;
  features_ = hello->features;
  if (batches()) reader_.AllowBatches();
  if ((features_ & kFeatureChecksums) != 0) {
    if (absl::Status sealed = reader_.RequireSeals(); !sealed.ok()) return sealed;
  }
  ++counters().sessions;
  Introduced();
  BelongsTo(*session_);
  return absl::OkStatus();
}

absl::Status SessionReactor::Read(std::vector<wire::BatchedFrame> frames, Batch& batch) {
  for (wire::BatchedFrame& one : frames) {
    DataStream stream;
    {
      MutexLock lock(streams_mutex_);
      const auto found = streams_.find(one.stream);
      if (found != streams_.end()) stream = found->second;
    }
    const std::shared_ptr<ExchangeReactor> reactor = stream.reactor.lock();
    if (reactor == nullptr) {  // A frame is lost with its stream.
      frames_.Skip();
      continue;
    }
    const uint64_t bytes = one.frame.size();
    owner_ = reactor.get();
    absl::StatusOr<IncomingFrame> frame =
        frames_.Read(std::make_shared<OwnPayload>(std::move(one.frame), counters().frame_memory));
    owner_ = nullptr;
    if (absl::IsNotFound(frame.status())) continue;  // Dropped; see FrameReader.
    if (!frame.ok()) {
      return absl::Status(
          frame.status().code(),
          absl::StrCat("A frame of ", who_, " was refused: ", frame.status().message()));
    }
    if (std::holds_alternative<Ack>(frame->header)) continue;
    if (!frame->shared.empty()) {
      ++counters().local_frames;
      if (frame->shared.AnyOnDevice()) ++counters().device_frames;
    }
    frame->gauge = counters().frame_memory;
    reactor->HoldFrame(frame->payload_bytes);
    batch.frame_bytes += bytes;
    batch.frames.emplace_back(stream.id, *std::move(frame));
  }
  if (batch.frame_bytes > 0) Hold(batch.frame_bytes);
  return absl::OkStatus();
}

// ---- sending

void SessionReactor::SendNow(const grpc::ByteBuffer& message) {
  FlushAll();
  Write(message);
}

void SessionReactor::Send(std::string message, bool can_wait) {
  if (batches()) outbox_.UseBatches();
  outbox_.Add({std::move(message)}, can_wait);
}

bool SessionReactor::Send(uint32_t stream, const SharedFrame& frame) {
  if (!batches() || !frame.FitsBatch()) return false;
  outbox_.UseBatches();
  outbox_.Add({stream, frame.BytesWithSequence(++frames_sent_)});
  return true;
}

void SessionReactor::Flush() {
  if (outbox_.due()) FlushAll();
}

void SessionReactor::FlushAll() {
  for (std::string& message : outbox_.Take()) {
    Write(BufferOf(std::move(message), counters().message_memory));
  }
}

void SessionReactor::Accept(uint32_t number, StreamId stream,
                            std::weak_ptr<ExchangeReactor> reactor) {
  MutexLock lock(streams_mutex_);
  streams_[number] = {stream, std::move(reactor)};
}

void SessionReactor::Over(const absl::Status& ended) {
  if (session_.has_value()) registry_.CloseSession(*session_, ended);
}

void SessionReactor::Count(const absl::Status& why) {
  if (absl::IsUnauthenticated(why) || absl::IsPermissionDenied(why)) return;  // By the gatekeeper.
  if (absl::IsUnavailable(why)) return;  // It is not the peer's mistake.
  ++(why.code() == absl::StatusCode::kDataLoss ? counters().damaged_frames
                                               : counters().malformed_messages);
  registry_.ReportPeer(peer(), std::string(why.message()));
}

}  // namespace basin::aggregator
