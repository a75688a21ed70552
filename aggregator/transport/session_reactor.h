// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The session of one worker: messages decoded on their way in, and messages that are encoded
// already on their way out, and small frames of its data streams both ways, if the worker takes
// batches. The engine gets the session with its Hello, which may come in pieces; a
// Hello that does not become complete in time ends the stream.
//
// Thread contract: as StreamReactor. Failure: a message that cannot be decoded, or comes before
// Hello, ends the stream with INVALID_ARGUMENT and is counted; one that has changed on its way
// likewise, with DATA_LOSS.

#ifndef BASIN_AGGREGATOR_TRANSPORT_SESSION_REACTOR_H_
#define BASIN_AGGREGATOR_TRANSPORT_SESSION_REACTOR_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/transport/exchange_reactor.h"
#include "aggregator/transport/registry.h"
#include "aggregator/transport/stream_reactor.h"
#include "proto/wire/session_stream.h"
#include "protocol/version.h"
#include "runtime/frames/reader.h"
#include "runtime/grpc/byte_buffer.h"
#include "runtime/grpc/greeting.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class SessionReactor : public StreamReactor {
 public:
  // REQUIRES: `newcomers`, `registry` and `budgets` outlive it, and the messages that it passes to
  // the engine.
  SessionReactor(grpc::CallbackServerContext* context, const StreamLimits& limits,
                 TransportCounters& counters, Newcomers& newcomers, Registry& registry,
                 wire::ReaderBudgets& budgets)
      : StreamReactor(context, limits, counters, counters.inbox_bytes, newcomers),
        registry_(registry),
        asked_job_(JobAskedIn(*context)),
        reader_(&budgets),
        frames_(FrameReader::InSession(FrameSender::kWorker, [this] { return owner_->shared(); })) {
  }

  // ---- for one thread only, the one that sends
  // An encoded ToWorker, or the next piece of one, sealed: after all that waits.
  void SendNow(const grpc::ByteBuffer& message);
  // An encoded ToWorker, with the next Flush; one that can wait, with the next message.
  void Send(std::string message, bool can_wait);
  // A frame of one of its data streams, with the next Flush. False: it has to travel on the stream.
  bool Send(uint32_t stream, const SharedFrame& frame);
  // Whether some of what waits cannot wait any longer.
  bool due() const { return outbox_.due(); }
  // Sends what waits, if that is so.
  void Flush();
  // Sends all that waits.
  void FlushAll();
  // Its data stream `number` is open.
  void Accept(uint32_t number, StreamId stream, std::weak_ptr<ExchangeReactor> reactor);

  // The job that its hello names. REQUIRES: it has been opened in the registry.
  const std::string& job() const { return job_; }
  // "worker w of job j", for operators. REQUIRES: the same.
  const std::string& who() const { return who_; }
  // Those that its hello offers.
  uint64_t features() const { return features_; }

 private:
  struct DataStream {
    StreamId id = 0;
    std::weak_ptr<ExchangeReactor> reactor;
  };

  bool batches() const { return (features_ & kFeatureBatches) != 0; }
  absl::Status OnHello(const ToAggregator& message);
  // The frames of a batch.
  absl::Status Read(std::vector<wire::BatchedFrame> frames, Batch& batch);
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  void Over(const absl::Status& ended) override;
  void Count(const absl::Status& why) override;

  Registry& registry_;
  const std::string asked_job_;        // See runtime/grpc/greeting.h.
  std::atomic<uint64_t> features_{0};  // Since its hello.
  // For the sending thread only.
  wire::Outbox<ToWorker> outbox_;
  uint64_t frames_sent_ = 0;

  Mutex streams_mutex_;
  std::map<uint32_t, DataStream> streams_ ABSL_GUARDED_BY(streams_mutex_);  // By number.

  // For the receiving thread only; Over comes after it.
  wire::MessageReader<ToAggregator> reader_;
  const ExchangeReactor* owner_ = nullptr;  // The stream of the frame that is being read.
  FrameReader frames_;
  std::optional<SessionId> session_;  // Set by its hello.
  std::string job_;                   // Constant since then.
  std::string who_;                   // For errors.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_SESSION_REACTOR_H_
