// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Maps the connections of the engine to streams. A stream is added under its number before the
// engine can use it, and removed before the engine learns that it is over.
//
// Thread contract: safe from any thread; nothing is called under the lock but the engine's own
// methods, which only post.

#ifndef BASIN_AGGREGATOR_TRANSPORT_REGISTRY_H_
#define BASIN_AGGREGATOR_TRANSPORT_REGISTRY_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "aggregator/auth/gatekeeper.h"
#include "aggregator/engine/engine.h"
#include "aggregator/engine/stream_sink.h"
#include "aggregator/transport/local.h"
#include "aggregator/transport/past_tokens.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class ExchangeReactor;
class SessionReactor;
class StreamReactor;

class Registry {
 public:
  // The address of a peer, and its violation, as a sentence. `kind`: what refusals have in common
  // that tell an operator the same (Gatekeeper::Ruling); empty for other violations. Called from
  // any thread.
  using Report = std::function<void(const std::string& address, const std::string& kind,
                                    const std::string& what)>;

  // `sink`: takes data streams; `engine`: takes sessions, null where there are none. Without a
  // gatekeeper everything is allowed; without a local server no memory is shared.
  // REQUIRES: all outlive the registry.
  Registry(StreamSink& sink, Engine* engine, Gatekeeper* gatekeeper, LocalServer* local,
           Report report)
      : sink_(sink),
        engine_(engine),
        gatekeeper_(gatekeeper),
        local_(local),
        report_(std::move(report)) {}

  // Whether the caller may train, and in this job, here; a refusal of the gatekeeper is counted and
  // reported. `job` is empty until the hello names it.
  absl::Status Admit(const StreamReactor& caller, Rpc rpc, const std::string& job,
                     const std::string& who);
  // Whether the caller of a data stream may train in the job of its session, the token of which may
  // have come to it from anywhere.
  absl::Status AdmitTo(const StreamReactor& caller, SessionId session, const JobName& job);
  // Ends the streams of callers that are no longer allowed to train. REQUIRES: a gatekeeper.
  void EndRevoked();
  // Refuses everybody for this reason from now on; OK: nobody.
  void RefuseAll(const absl::Status& why);
  // Ends all streams.
  void EndAll(const absl::Status& why);

  SessionId Open(std::shared_ptr<SessionReactor> session);
  StreamId Open(std::shared_ptr<ExchangeReactor> stream, SessionToken token);

  // The stream is over: reports it to the engine, with the reason unless the peer ended it.
  void CloseSession(SessionId session, const absl::Status& ended);
  void CloseStream(StreamId stream);
  // The engine closed it itself.
  std::shared_ptr<SessionReactor> TakeSession(SessionId session);
  std::shared_ptr<ExchangeReactor> TakeStream(StreamId stream);

  // The session was given this token.
  void Welcome(SessionId session, SessionToken token);
  // Whether a session with this token has ended not long ago.
  bool IsPast(SessionToken token) const;
  // The memory that the session with this token shares; null if none.
  std::shared_ptr<Segments> SharedIn(SessionToken token) const;

  // Empty when it is over.
  Peer PeerOf(SessionId session) const;

  // Null when it is over.
  std::shared_ptr<SessionReactor> FindSession(SessionId session) const;
  std::shared_ptr<ExchangeReactor> FindStream(StreamId stream) const;
  std::shared_ptr<StreamReactor> Find(uint64_t connection) const;

  StreamSink& sink() { return sink_; }
  // REQUIRES: there are sessions.
  Engine& engine() { return *engine_; }

  // Reports a violation of a peer, by gRPC's name for it ("ipv4:127.0.0.1:4711").
  // `kind`: see Report.
  void ReportPeer(const std::string& peer, const std::string& what,
                  const std::string& kind = "") const;

 private:
  absl::Status Permit(const StreamReactor& caller, Rpc rpc, const std::string& job,
                      const std::string& who);
  std::vector<std::shared_ptr<StreamReactor>> All() const;

  StreamSink& sink_;
  Engine* const engine_;
  Gatekeeper* const gatekeeper_;
  LocalServer* const local_;
  const Report report_;

  mutable Mutex mutex_;
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<SessionId, std::shared_ptr<SessionReactor>> sessions_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<StreamId, std::shared_ptr<ExchangeReactor>> streams_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<SessionId, SessionToken> tokens_ ABSL_GUARDED_BY(mutex_);
  PastTokens past_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_REGISTRY_H_
