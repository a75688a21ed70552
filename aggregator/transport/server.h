// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The aggregator on the network: basin.v1.Session and basin.v1.Exchange over gRPC, in front of an
// engine, and the standard health service. In front of the engine of a coordinator it also serves
// basin.v1.Shard; in front of that of a shard it serves data streams alone.
//
//   Engine engine(...);
//   GrpcServer server(options);
//   absl::StatusOr<int> port = server.Start(engine);   // starts the engine too
//   ...                                                // until SIGTERM
//   server.Drain();                                    // rounds end, sessions end, GOAWAY
//   server.Stop();                                     // stops the engine too
//
// It carries bytes and decides nothing: the core of the engine decides what a worker may do. A
// malformed message ends the stream of its peer, with a status that names the mistake, and is
// counted (counters.h).
//
// Thread contract: Start, Drain and Stop from one thread, which they block; Lead and Follow from
// one thread. counters() from any thread. The Transport methods are the engine's.
// Ownership: the engine outlives the server.

#ifndef BASIN_AGGREGATOR_TRANSPORT_SERVER_H_
#define BASIN_AGGREGATOR_TRANSPORT_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/engine/engine.h"
#include "aggregator/engine/transport.h"
#include "aggregator/transport/counters.h"
#include "aggregator/transport/held_back.h"
#include "aggregator/transport/local.h"
#include "aggregator/transport/newcomers.h"
#include "aggregator/transport/preface.h"
#include "aggregator/transport/registry.h"
#include "aggregator/transport/shard_reactor.h"
#include "aggregator/transport/stream_reactor.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/wire/large_layouts.h"
#include "proto/wire/session_stream.h"
#include "protocol/limits/limits.h"
#include "runtime/grpc/credentials.h"
#include "runtime/grpc/listener.h"
#include "runtime/grpc/settings.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

// The memory quota of gRPC for `memory_bytes` of credit (Config::memory_bytes): twice as much,
// because correct streams that reach the quota are ended with the same text as abusive ones; and
// room for the windows of connections that have no credit yet.
uint64_t QuotaFor(uint64_t memory_bytes);

// The memory of all messages that the engine has not handled yet: half of the granted credit, but
// room for at least one large message, and for at most a few of the largest.
uint64_t ExpandingFor(uint64_t memory_bytes);

// Descriptions of layouts that are sent, until every receiver has read them: those of two of the
// largest messages.
inline constexpr uint64_t kMostLayoutBytes = 2 * uint64_t{kMaxAssembledBytes};

// Far more than the workers of a machine, or behind one address, that connect at once.
inline constexpr size_t kMostNewcomers = 4096;

struct ServerOptions {
  std::string address = "127.0.0.1:0";  // Port 0: any that is free.
  PemSource tls;                        // Null: without TLS. Outlives the server.
  std::string version;                  // The program's, for clients.
  // Whether workers on this machine may share memory, and the socket for it: a path, or empty for a
  // name that is chosen.
  bool local = false;
  std::string local_socket;
  uint64_t local_bytes = std::numeric_limits<uint64_t>::max();  // That one session may share.
  // What opens memory of a device that a worker on this machine shares; null: nothing does.
  // Outlives the server.
  const DeviceOpener* devices = nullptr;
  Gatekeeper* gatekeeper = nullptr;  // Outlives the server. Null: everything is allowed.
  // Why all workers are refused until Lead; OK: they are not.
  absl::Status refusal;
  GrpcServerSettings grpc;

  // Two of the largest messages, or a few usual frames, are on their way to the engine.
  StreamLimits session = {.window = {uint64_t{8} << 20, 256},
                          .queue_bytes = 2 * uint64_t{kMaxAssembledBytes}};
  // The core limits unacknowledged results; this limit is for values, which are not acknowledged.
  StreamLimits exchange = {.window = {uint64_t{8} << 20, 256}, .queue_bytes = uint64_t{1} << 30};

  // What a shard is to do arrives at once when a lane of many tensors is named.
  StreamLimits shard = {.window = {uint64_t{8} << 20, 256}, .queue_bytes = uint64_t{256} << 20};

  // See ExpandingFor.
  uint64_t expanding_bytes = uint64_t{1} << 30;

  // The file descriptors of the process that are not for workers, and a callback for when a worker
  // must wait for a descriptor, and when none waits any longer (on a thread of the server).
  uint32_t kept_descriptors = 0;
  std::function<void(bool waits)> on_descriptors;
  // So many connections of one address may be open before their first valid message, and as many
  // may wait for their turn; and so many of all addresses before their first byte. For another one,
  // the oldest is closed, or the oldest silent one of an address that has most of them. As many of
  // workers are watched (overhead.h).
  size_t most_newcomers = kMostNewcomers;

  // Receives violations by peers. From any thread.
  Registry::Report report;
  // Violations at the local socket, and why there is none, as sentences.
  LocalServer::Report on_local_refused;
  std::function<void(const std::string& why)> on_local_failed;
  // Why memory of a worker's device is not used, as a sentence.
  LocalServer::Report on_device_refused;

  // Whether to close connections that send too much before their first valid message. Off only for
  // tests of the effects.
  bool watch_newcomers = true;

  // After GOAWAY, for streams to end by themselves.
  absl::Duration goaway_grace = absl::Seconds(2);
};

class GrpcServer : public Transport {
 public:
  explicit GrpcServer(ServerOptions options);
  ~GrpcServer() override;
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Starts the engine with this as its transport, and listens. Returns the port.
  // Failure: UNAVAILABLE when the address cannot be listened on; the engine does not run then.
  // REQUIRES: called once; the engine is not started.
  absl::StatusOr<int> Start(Engine& engine);
  // Serves data streams alone, for a shard. REQUIRES: called once; the sink takes streams; it
  // outlives Stop.
  absl::StatusOr<int> Start(StreamSink& sink);

  // Serves workers, with the engine as an aggregator of this term.
  void Lead(Term term);
  // Refuses all workers for this reason, ends their streams, and forgets what the engine knew.
  void Follow(const absl::Status& why);
  // Refuses workers that come from now on for this reason. REQUIRES: the engine does not lead.
  void Refuse(const absl::Status& why) { registry_->RefuseAll(why); }

  // Health becomes NOT_SERVING, and the engine drains (Config::drain_grace at most). The core
  // decides about sessions that open while rounds end. Returns at once while all workers are
  // refused, and when they begin to be. From any thread but the engine's. REQUIRES: started.
  // `keeps_sessions`: until Follow, for another aggregator to be ready for the workers; otherwise
  // their sessions end with the rounds.
  void EndRounds(bool keeps_sessions = false);
  // The same, and then GOAWAY is sent on all connections.
  void Drain();

  // Ends the streams of workers that the gatekeeper no longer allows. From any thread, between
  // Start and EndConnections.
  void EndRevoked();

  // Ends every stream, then the engine. Idempotent.
  void Stop();

  int port() const { return listener_ == nullptr ? 0 : listener_->port(); }  // 0: does not listen.
  const TransportCounters& counters() const { return counters_; }
  // Descriptions of large layouts that some worker has not read yet. From any thread.
  uint64_t layout_bytes() const { return large_layouts_.bytes(); }
  // The memory of devices that workers on this machine share. From any thread, between Start and
  // Stop.
  uint64_t shared_device_bytes() const { return SharedIn(&Segments::device_bytes); }
  // The memory of workers on this machine that is mapped here. From any thread, likewise.
  uint64_t mapped_bytes() const { return SharedIn(&Segments::mapped_bytes); }
  // Messages of sessions that have arrived in part.
  uint64_t assembling_bytes() const { return reader_budgets_.assembling.used(); }

  // ---- the engine's
  void Send(absl::Span<const SessionId> sessions, const ToWorker& message) override;
  void SendLater(SessionId session, const ToWorker& message) override;
  void Flush() override;
  void CloseSession(SessionId session) override;
  void AcceptStream(StreamId stream, SessionId session, const JobName& job) override;
  Peer PeerOf(SessionId session) const override { return registry_->PeerOf(session); }
  bool Shares(StreamId stream) const override;
  void WithdrawUnused() override;
  void Send(absl::Span<const StreamId> streams, const OutgoingFrame& frame) override;
  void CloseStream(StreamId stream, const absl::Status& why) override;
  void Consumed(uint64_t connection, uint64_t bytes) override;
  void WelcomeShard(ShardId shard, Term term) override;
  void SendToShard(ShardId shard, const std::vector<ShardStep>& steps) override;
  void CloseShard(ShardId shard, const absl::Status& why) override;
  void ShardConsumed(ShardId shard, uint64_t bytes) override;

 private:
  uint64_t SharedIn(uint64_t (Segments::*bytes)() const) const {
    return local_ == nullptr ? 0 : local_->SumOf(bytes);
  }
  class SessionService;
  class ExchangeService;
  class ShardService;

  // Without `engine` it serves data streams alone.
  absl::StatusOr<int> Start(StreamSink& sink, Engine* engine);
  void Send(absl::Span<const SessionId> sessions, const ToWorker& message, bool can_wait);
  // The gRPC messages of a message with large layouts, which all receivers share.
  absl::StatusOr<std::vector<grpc::ByteBuffer>> LargePiecesOf(const ToWorker& message);
  void ShutDown(absl::Duration grace);
  void Report(const std::string& address, const std::string& what) const;

  const ServerOptions options_;
  TransportCounters counters_;
  wire::ReaderBudgets reader_budgets_;
  wire::LargeLayouts large_layouts_;  // The engine's loop's.
  HeldBack held_back_;
  OverheadGuard overhead_;
  Newcomers newcomers_;

  // Constant from Start to Stop.
  std::unique_ptr<PrefaceCheck> preface_;
  std::unique_ptr<Listener> listener_;
  Engine* engine_ = nullptr;            // Null: there are no sessions.
  std::unique_ptr<LocalServer> local_;  // Null: no memory is shared.
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<ShardPeers> shards_;  // Null: this is a shard itself.
  std::unique_ptr<SessionService> session_service_;
  std::unique_ptr<ExchangeService> exchange_service_;
  std::unique_ptr<ShardService> shard_service_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;

  std::vector<std::shared_ptr<SessionReactor>> unflushed_;  // The engine's loop's.

  Mutex mutex_;
  Condition changed_;
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;  // Or there is nothing to drain.
  uint64_t leads_ ABSL_GUARDED_BY(mutex_) = 0;    // Calls of Lead.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_SERVER_H_
