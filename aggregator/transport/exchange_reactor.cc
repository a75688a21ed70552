// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/exchange_reactor.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/transport/session_reactor.h"
#include "proto/wire/status_detail.h"
#include "protocol/limits/limits.h"
#include "protocol/version.h"

namespace basin::aggregator {
namespace {

absl::Status CheckVersion(const Bind& bind) {
  if (bind.protocol_version == kProtocolVersion) return absl::OkStatus();
  return wire::ToStatus(Error{
      ErrorCode::kVersionMismatch,
      absl::StrCat("A data stream speaks protocol ", bind.protocol_version,
                   "; this aggregator speaks ", kProtocolVersion, ". Install matching versions.")});
}

}  // namespace

absl::Status ExchangeReactor::OnMessage(const grpc::ByteBuffer& message) {
  absl::StatusOr<IncomingFrame> frame = reader_.Read(PayloadOf(message, counters().frame_memory));
  if (absl::IsNotFound(frame.status())) return absl::OkStatus();  // Dropped; see FrameReader.
  // What is left of a session that has ended may refer to memory that is gone with it.
  if (!frame.ok()) return registry_.IsPast(token_) ? absl::OkStatus() : frame.status();
  if (const auto* bind = std::get_if<Bind>(&frame->header)) {
    if (absl::Status status = CheckVersion(*bind); !status.ok()) return status;
    absl::Status admitted = registry_.Admit(*this, Rpc::kExchange, "", "");
    if (!admitted.ok()) return admitted;
    Pause();
    Introduced();
    token_ = bind->token;
    number_ = bind->stream;
    stream_ =
        registry_.Open(std::static_pointer_cast<ExchangeReactor>(shared_from_this()), bind->token);
    ++counters().streams;
  } else if (!std::holds_alternative<Ack>(frame->header)) {
    if (!frame->shared.empty()) {
      ++counters().local_frames;
      if (frame->shared.AnyOnDevice()) ++counters().device_frames;
    }
    frame->gauge = counters().frame_memory;
    Hold(frame->payload_bytes);
    registry_.sink().OnFrame(*stream_, *std::move(frame));
  }
  return absl::OkStatus();
}

std::shared_ptr<Segments> ExchangeReactor::shared() const {
  MutexLock lock(shared_mutex_);
  if (shared_ == nullptr) {
    shared_ = registry_.SharedIn(token_);
    if (shared_ != nullptr) shared_->TakeFeatures(features_);
  }
  return shared_;
}

void ExchangeReactor::Accept(StreamId stream, SessionId id, const JobName& job,
                             const std::shared_ptr<SessionReactor>& session) {
  BelongsTo(id);
  {
    MutexLock lock(shared_mutex_);
    job_ = job;
  }
  if (session != nullptr) {
    session_ = session;
    features_ = session->features();
    session->Accept(number_, stream, std::static_pointer_cast<ExchangeReactor>(shared_from_this()));
  }
  Write(BufferOf(*EncodeHead({Bound{}})));
  Resume();
}

std::optional<std::string> ExchangeReactor::job() const {
  MutexLock lock(shared_mutex_);
  return job_;
}

std::shared_ptr<SessionReactor> ExchangeReactor::SendInSession(const SharedFrame& frame) const {
  std::shared_ptr<SessionReactor> session = session_.lock();
  if (session != nullptr && !session->Send(number_, frame)) session.reset();
  return session;
}

void ExchangeReactor::Over(const absl::Status&) {
  if (stream_.has_value()) registry_.CloseStream(*stream_);
}

void ExchangeReactor::Count(const absl::Status& why) {
  if (absl::IsUnauthenticated(why) || absl::IsPermissionDenied(why)) return;  // By the gatekeeper.
  if (absl::IsUnavailable(why)) return;  // It is not the peer's mistake.
  if (why.code() == absl::StatusCode::kDataLoss) {
    ++counters().damaged_frames;
  } else if (why.code() == absl::StatusCode::kFailedPrecondition) {
    ++counters().version_mismatches;
  } else {
    ++counters().malformed_frames;
  }
  registry_.ReportPeer(peer(), absl::StrCat("A message that it sent on a data stream was refused: ",
                                            std::string(why.message())));
}

}  // namespace basin::aggregator
