// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One data stream of a worker: frames decoded and hashed on their way in, frames that were
// serialised once for all receivers on their way out. After Bind nothing is read until the engine
// has accepted the stream.
//
// Thread contract: as StreamReactor. Failure: an error of FrameReader ends the stream with its
// status and is counted; another version of the protocol in Bind is FAILED_PRECONDITION.

#ifndef BASIN_AGGREGATOR_TRANSPORT_EXCHANGE_REACTOR_H_
#define BASIN_AGGREGATOR_TRANSPORT_EXCHANGE_REACTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "aggregator/transport/registry.h"
#include "aggregator/transport/stream_reactor.h"
#include "runtime/frames/reader.h"
#include "runtime/grpc/byte_buffer.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class ExchangeReactor : public StreamReactor {
 public:
  // REQUIRES: `newcomers`, `registry` outlives it.
  ExchangeReactor(grpc::CallbackServerContext* context, const StreamLimits& limits,
                  TransportCounters& counters, Newcomers& newcomers, Registry& registry)
      : StreamReactor(context, limits, counters, counters.inbox_frame_bytes, newcomers),
        registry_(registry) {}

  // Answers Bind. It belongs to the session `id` of a worker of the job; null if that is over, or
  // with the coordinator of this shard.
  void Accept(StreamId stream, SessionId id, const JobName& job,
              const std::shared_ptr<SessionReactor>& session);

  // The job of the session that it belongs to; nothing before it was accepted. From any thread.
  std::optional<std::string> job() const;

  // Sends the frame with the session, and returns that; null if it has to travel on the stream.
  // REQUIRES: as for Send.
  std::shared_ptr<SessionReactor> SendInSession(const SharedFrame& frame) const;

  // A frame of this stream came with the session.
  void HoldFrame(uint64_t bytes) { Hold(bytes); }

  // The memory that its session shares; null if none. REQUIRES: it was accepted.
  // Kept: frames may be under way when the session ends before the stream.
  std::shared_ptr<Segments> shared() const;

  // REQUIRES: called from one thread, after Accept.
  void Send(const SharedFrame& frame) { Write(frame.WithSequence(++sequence_)); }

  // That it has presented. For the engine, which learns of the stream after that.
  SessionToken token() const { return token_; }

 private:
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  void Over(const absl::Status& ended) override;
  void Count(const absl::Status& why) override;

  Registry& registry_;
  mutable Mutex shared_mutex_;
  mutable std::shared_ptr<Segments> shared_ ABSL_GUARDED_BY(shared_mutex_);
  std::optional<std::string> job_ ABSL_GUARDED_BY(shared_mutex_);
  // For the sending thread only.
  uint64_t sequence_ = 0;  // The last sent frame.
  std::weak_ptr<SessionReactor> session_;
  std::atomic<uint64_t> features_{0};  // The worker's, since Accept.
  // For the receiving thread only; Over comes after it.
  FrameReader reader_{FrameSender::kWorker, [this] { return shared(); }};
  SessionToken token_ = 0;          // 0 before it has presented one; constant after that.
  uint32_t number_ = 0;             // In its session; constant once it has presented a token.
  std::optional<StreamId> stream_;  // Since then.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_EXCHANGE_REACTOR_H_
