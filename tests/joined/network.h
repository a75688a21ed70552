// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Both real ends in one process: the engine on one side, client workers on the other, and between
// them queues instead of sockets. Messages travel in encoded form, payloads are copied like a
// socket would, pieces are cut at random, and which connection moves next is random as well: the
// connections of a worker have no mutual order. A connection stops while its reader has not
// reported messages as `Consumed`.
//
// Thread contract: the test's side is safe from any thread. Failure: a message that cannot be
// encoded or decoded fails the test.

#ifndef BASIN_TESTS_JOINED_NETWORK_H_
#define BASIN_TESTS_JOINED_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "aggregator/engine/engine.h"
#include "client/transport/channel.h"
#include "runtime/frames/reader.h"
#include "runtime/mutex.h"

namespace basin::joined {

class Network : public aggregator::Transport {
 public:
  explicit Network(uint64_t seed);
  // REQUIRES: no engine is served, and every worker is destroyed.
  ~Network() override;

  // From now on connections reach this engine, or none if it is null. The connections of the
  // previous engine break without notice, and it is no longer called: it may be stopped.
  void Serve(aggregator::Engine* engine);

  // Connections for the worker of this name.
  std::unique_ptr<client::Connector> ConnectorFor(const std::string& worker);

  // From now on a connection breaks after every `deliveries` deliveries; both ends are notified. 0:
  // none breaks.
  void BreakAfterEvery(uint64_t deliveries);
  uint64_t broken() const;  // Connections, so far.

  // The most that any connection had given to its reader without `Consumed`.
  uint64_t most_unconsumed() const;

  static constexpr uint64_t kWindow = uint64_t{2} << 20;

  // ---- aggregator::Transport
  void Send(absl::Span<const aggregator::SessionId> sessions, const ToWorker& message) override;
  void CloseSession(aggregator::SessionId session) override;
  void AcceptStream(aggregator::StreamId stream, aggregator::SessionId session,
                    const JobName& job) override;
  void Send(absl::Span<const aggregator::StreamId> streams, const OutgoingFrame& frame) override;
  void CloseStream(aggregator::StreamId stream, const absl::Status& why) override;
  void Consumed(uint64_t connection, uint64_t bytes) override;

 private:
  class Connector;
  class SessionEnd;
  class StreamEnd;

  struct Item {
    // Called from the network's thread, without a lock, with the engine that is served.
    std::function<void(aggregator::Engine*)> deliver;
    uint64_t bytes = 0;  // That the reader must report as consumed.
  };
  // One direction.
  struct Pipe {
    std::deque<Item> items;
    uint64_t unconsumed = 0;
    uint64_t sequence = 0;  // The number of the last frame.
    bool ended = false;     // Nothing more is put in.
  };
  struct Link {
    std::string worker;
    uint32_t stream = 0;
    std::shared_ptr<client::SessionListener> session;  // One of the two.
    std::shared_ptr<client::StreamListener> data;
    uint64_t number = 0;  // The engine's; 0 until the connection has arrived.
    Pipe to_engine;
    Pipe to_client;
    uint64_t queued = 0;  // Payload bytes of frames in to_engine.
    // For the network's thread only.
    FrameReader engine_reader{FrameSender::kWorker};
    FrameReader client_reader{FrameSender::kAggregator};
  };
  using LinkPtr = std::shared_ptr<Link>;
  using Items = std::deque<Item>;
  using Deliver = std::function<void(aggregator::Engine*)>;

  void Run();
  bool PickOne(Item* item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Put(Pipe& pipe, Deliver deliver, uint64_t bytes = 0) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds the last item to the direction. With `drop`, its waiting items are removed first and
  // returned, to be destroyed without the lock.
  Items EndAtEngine(const LinkPtr& link, bool drop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Items EndAtClient(const LinkPtr& link, bool drop, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The client's end is closed: it receives nothing more.
  Items Deafen(const LinkPtr& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LinkPtr Find(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // REQUIRES: the lock is held since before the engine assigned the number, so that messages of the
  // engine find the connection.
  void Number(const LinkPtr& link, uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BreakSome();
  void TakeConsumed(Pipe& pipe, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // For the network's thread.
  PayloadPtr InPieces(std::string message);
  void FrameAtEngine(const LinkPtr& link, std::string message, aggregator::Engine* engine);
  void FrameAtClient(const LinkPtr& link, std::string message);

  mutable Mutex mutex_;
  Condition changed_;
  std::vector<LinkPtr> links_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, LinkPtr> by_number_ ABSL_GUARDED_BY(mutex_);
  aggregator::Engine* engine_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t break_every_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t until_break_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t broken_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t most_unconsumed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::mt19937_64 random_;  // The network's thread's.
  std::thread thread_;
};

}  // namespace basin::joined

#endif  // BASIN_TESTS_JOINED_NETWORK_H_
