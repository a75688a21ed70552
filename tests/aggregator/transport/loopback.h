// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A whole aggregator over gRPC on this host, with the workers of the engine's tests at the other
// end: their messages are encoded and sent through sockets, and the answers are decoded.
//
// The engine's clock stands still unless a test moves it; gRPC's does not.
//
// Thread contract: as that of the engine's rig.

#ifndef BASIN_TESTS_AGGREGATOR_TRANSPORT_LOOPBACK_H_
#define BASIN_TESTS_AGGREGATOR_TRANSPORT_LOOPBACK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aggregator/transport/server.h"
#include "proto/wire/session_stream.h"
#include "runtime/frames/reader.h"
#include "tests/aggregator/engine/in_process.h"
#include "tests/aggregator/transport/raw_stream.h"
#include "tests/runtime/await.h"

namespace basin::aggregator {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

inline constexpr char kHealthMethod[] = "/grpc.health.v1.Health/Check";
// A response of the health service: its only field, `status`, is SERVING.
inline constexpr char kServing[] = "\x08\x01";

class Loopback : public Network {
 public:
  explicit Loopback(ServerOptions server_options = {}, EngineOptions engine_options = {});
  ~Loopback() override;

  // Each on a connection of its own.
  SessionId OpenSession() override;
  void OnMessage(SessionId session, ToAggregator message) override;
  void CloseSession(SessionId session) override;
  StreamId OpenStream(SessionToken token) override;
  void OnFrame(StreamId stream, IncomingFrame frame) override;
  void CloseStream(StreamId stream) override;

  // The stream below a session or data stream, to misuse.
  RawStream& raw(uint64_t connection);
  // The frame with the next sequence number of a data stream, or of the frames of a session.
  std::string Encode(uint64_t connection, const IncomingFrame& frame);

  template <typename T>
  T Look(const std::function<T(const Runner&)>& look) {
    return LookAt(engine, look);
  }

  // Lets time pass for the engine; returns when it has noticed.
  void Pass(absl::Duration time);

  // A new connection, for streams of the test's own.
  std::shared_ptr<grpc::Channel> Channel() { return ChannelTo(port); }

  ManualClock clock;
  NoteBook notes;
  std::unique_ptr<kernels::Reducer> reducer = kernels::MakeCpuReducer();
  Engine engine;
  GrpcServer server;
  int port = 0;
  // Whether begins and small frames wait for the next message, and travel with it. Set before the
  // first worker connects, whose hello must offer it.
  bool batches = false;
  std::atomic<uint64_t> batched_results{0};  // Frames that came with a session.

 private:
  uint64_t Open(const std::string& method,
                const std::function<void(uint64_t, const grpc::ByteBuffer&)>& take);
  void TakeFrameFrom(StreamId stream, const grpc::ByteBuffer& message);
  void Take(StreamId stream, absl::StatusOr<IncomingFrame> frame);

  Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, std::shared_ptr<RawStream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, uint64_t> sent_ ABSL_GUARDED_BY(mutex_);     // Sequence numbers.
  std::map<uint32_t, StreamId> numbers_ ABSL_GUARDED_BY(mutex_);  // Those of data streams.
  std::map<SessionToken, SessionId> sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<StreamId, std::pair<SessionId, uint32_t>> places_ ABSL_GUARDED_BY(mutex_);
  std::map<SessionId, wire::Outbox<ToAggregator>> outboxes_ ABSL_GUARDED_BY(mutex_);
  std::map<StreamId, FrameReader> readers_ ABSL_GUARDED_BY(mutex_);
};

// An encoded ToAggregator.
std::string Encoded(const ToAggregator& message);

// A hello that would be welcomed.
Hello HelloOf(const WorkerId& worker, const Model& model);

// How much resident memory this process has gained at most, in bytes, since this was made. What
// earlier tests freed is given back first: it would be used again, and not counted.
class MemoryGrowth {
 public:
  MemoryGrowth();
  uint64_t Peak() const;

 private:
  const uint64_t before_;
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_TRANSPORT_LOOPBACK_H_
