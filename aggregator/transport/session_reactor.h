// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The session of one worker: messages decoded on their way in, and messages that are encoded
// already on their way out. The engine gets the session with its Hello, which may come in pieces; a
// Hello that does not become complete in time ends the stream.
//
// Thread contract: as StreamReactor. Failure: a message that cannot be decoded, or comes before
// Hello, ends the stream with INVALID_ARGUMENT and is counted.

#ifndef BASIN_AGGREGATOR_TRANSPORT_SESSION_REACTOR_H_
#define BASIN_AGGREGATOR_TRANSPORT_SESSION_REACTOR_H_

#include <optional>
#include <string>

#include "aggregator/transport/registry.h"
#include "aggregator/transport/stream_reactor.h"
#include "proto/wire/session_stream.h"

namespace basin::aggregator {

class SessionReactor : public StreamReactor {
 public:
  // REQUIRES: `newcomers`, `registry` and `budgets` outlive it, and the messages that it passes to
  // the engine.
  SessionReactor(grpc::CallbackServerContext* context, const StreamLimits& limits,
                 TransportCounters& counters, Newcomers& newcomers, Registry& registry,
                 wire::ReaderBudgets& budgets)
      : StreamReactor(context, limits, counters, newcomers),
        registry_(registry),
        reader_(&budgets) {}

  // An encoded ToWorker, or the next piece of one.
  void Send(const grpc::ByteBuffer& message) { Write(message); }

  // The job that its hello names. REQUIRES: it has been opened in the registry.
  const std::string& job() const { return job_; }

 private:
  absl::Status OnMessage(const grpc::ByteBuffer& message) override;
  void Over(const absl::Status& ended) override;
  void Count(const absl::Status& why) override;

  Registry& registry_;
  // For the receiving thread only; Over comes after it.
  wire::MessageReader<ToAggregator> reader_;
  std::optional<SessionId> session_;  // Set by its hello.
  std::string job_;                   // Constant since then.
  std::string who_;                   // For errors.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_SESSION_REACTOR_H_
