// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The aggregator's end of a worker's connections, played by the test: it receives the worker's
// encoded messages from queues, and sends the messages of the test, encoded as well. Also a rig
// with a worker.
//
// Every wait is for an event, and fails the test after a minute.
//
// Thread contract: the test's side belongs to one thread, unless a method states otherwise.

#ifndef BASIN_TESTS_CLIENT_TRANSPORT_FAKE_AGGREGATOR_H_
#define BASIN_TESTS_CLIENT_TRANSPORT_FAKE_AGGREGATOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "client/transport/channel.h"
#include "client/transport/worker.h"
#include "proto/wire/frame.h"
#include "proto/wire/session_stream.h"
#include "protocol/limits/limits.h"
#include "runtime/frames/reader.h"
#include "tests/runtime/manual_clock.h"

namespace basin::client {

inline constexpr LaneIndex kLane = 3;
inline constexpr Term kTerm = 5;

// How the test names data stream `number` to a shard; those to shard 0 have their own numbers.
inline uint32_t StreamAt(ShardId shard, uint32_t number) { return shard * kMaxStreams + number; }

// A data frame as it arrived at the aggregator.
struct TakenFrame {
  uint32_t stream = 0;
  wire::FrameHeader header;
  std::string payload;
};

class FakeAggregator : public Connector {
 public:
  // ---- for the worker
  std::shared_ptr<SessionChannel> OpenSession(std::shared_ptr<SessionListener> listener) override;
  std::shared_ptr<StreamChannel> OpenStream(uint32_t number, SessionToken token,
                                            const PlacedShard& shard,
                                            std::shared_ptr<StreamListener> listener) override;

  // ---- connections
  void AcceptSession();  // Waits for the worker to open one.
  // Waits for the worker to open data stream `stream` with this token.
  void AcceptStream(uint32_t stream, SessionToken token);
  void RefuseSession();
  void RefuseStream(uint32_t stream, SessionToken token);
  void LoseSession();
  void LoseStream(uint32_t stream);
  void AwaitSessionClosed();
  void AwaitStreamClosed(uint32_t stream);

  // ---- control
  void Send(const ToWorker& message);
  // The next message of this type; others before it are put into `passed`.
  template <typename T>
  T Await() {
    while (true) {
      std::optional<ToAggregator> message = NextMessage();
      if (!message.has_value()) return T{};  // The test has failed.
      if (T* found = std::get_if<T>(&*message)) return std::move(*found);
      passed.push_back(*std::move(message));
    }
  }
  std::vector<ToAggregator> passed;
  // How many messages of a type are in `passed`.
  template <typename T>
  size_t Passed() const;

  // ---- data
  // The next frame, of any stream. The channel releases its payload.
  TakenFrame AwaitFrame();
  // The same, but the channel does not release it before the caller does, whatever happens.
  OutgoingFrame HoldFrame();
  // Waits until the worker has sent `count` frames that are not taken, and leaves them where they
  // are, with their payloads.
  void AwaitQueued(size_t count);
  size_t queued() const;
  // Releases the queue. From any thread.
  void DropQueued();
  // The bytes of `payload` with the digests of `claimed`.
  void SendResult(uint32_t stream, RoundNumber round, Ballot ballot, const ChunkRange& range,
                  const std::string& tensor, const std::string& payload,
                  const std::string& claimed);
  void SendBlob(uint32_t stream, const BlobKey& key, uint32_t first, uint32_t count,
                const std::string& payload);
  void SendRaw(uint32_t stream, const std::string& message);
  uint64_t unconsumed() const;  // Bytes given to the worker and not reported as consumed.

 private:
  friend class FakeSession;
  friend class FakeStream;

  struct State {
    struct Session {
      std::shared_ptr<SessionListener> listener;
      std::deque<std::string> messages;  // In the form in which gRPC carries them.
      bool closed = false;
    };
    struct Stream {
      SessionToken token = 0;
      std::shared_ptr<StreamListener> listener;
      bool closed = false;
      uint64_t received = 0;  // Frames of the worker.
    };
    struct Queued {
      uint32_t stream = 0;
      uint64_t connection = 0;
      uint64_t sequence = 0;
      OutgoingFrame frame;
    };
    mutable Mutex mutex;
    Condition changed;
    uint64_t next_connection ABSL_GUARDED_BY(mutex) = 0;
    // The newest that the worker opened, by connection.
    std::map<uint64_t, Session> sessions ABSL_GUARDED_BY(mutex);
    std::map<uint64_t, Stream> streams ABSL_GUARDED_BY(mutex);
    std::map<uint32_t, uint64_t> opened ABSL_GUARDED_BY(mutex);  // Stream: connection.
    std::deque<Queued> frames ABSL_GUARDED_BY(mutex);
    uint64_t unconsumed ABSL_GUARDED_BY(mutex) = 0;
  };

  struct Sending {
    uint64_t connection = 0;
    FrameReader reader{FrameSender::kAggregator};
    uint64_t sequence = 0;
  };

  // The worker's newest data stream of this number, with its connection.
  std::pair<uint64_t, std::shared_ptr<StreamListener>> AwaitStream(uint32_t stream,
                                                                   SessionToken token);
  std::optional<ToAggregator> NextMessage();
  std::optional<std::string> NextOnSession();
  // Waits until `ready` returns true; REQUIRES: it only looks at the state.
  bool AwaitState(const std::function<bool(State&)>& ready);
  void SendFrame(uint32_t stream, const wire::FrameHeader& header, const std::string& payload);
  void Deliver(uint32_t stream, std::string message);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  uint64_t session_ = 0;  // The accepted session, and its reader.
  std::unique_ptr<wire::MessageReader<ToAggregator>> reader_;
  std::map<uint32_t, Sending> sending_;  // Accepted streams.
};

template <typename T>
size_t FakeAggregator::Passed() const {
  size_t count = 0;
  for (const ToAggregator& message : passed) count += std::holds_alternative<T>(message) ? 1 : 0;
  return count;
}

// The digest that a tensor's bytes add to a round's.
Digest DigestOf(const std::string& tensor, const std::string& bytes, uint32_t first = 0);

// `size` bytes that differ from place to place and from seed to seed.
std::string Noise(size_t size, uint64_t seed);

TensorSpec F32(const std::string& name, uint64_t elements);

// The code of an error.
ErrorCode CodeOf(const absl::Status& status);

// A worker "w0" of job "job", whose lane "g" is given index 3 and has the tensors a (2.5 chunks),
// b (100 bytes) and c (nothing).
class Rig {
 public:
  // `a`: the elements of the first tensor.
  explicit Rig(uint32_t streams = 1, const std::function<void(WorkerOptions&)>& change = nullptr,
               uint64_t a = kChunkBytes * 5 / 8);

  // Everything up to a member that may begin round `round`.
  void Join(RoundNumber round = 1, uint64_t chain = 0);
  void Connect();  // Session, hello, welcome, streams.
  void Admit(RoundNumber round, uint64_t chain);
  // Answers the hello of a session that continues.
  Welcome WelcomeBack(RoundNumber round) const;
  void TakeStreams(SessionToken token);
  RoundPlacement Placed() const;

  void Begin();
  void PushAll();  // a, b and c.
  // Takes frames until `chunks` chunks came, acknowledging each frame; returns bytes by tensor.
  std::map<TensorIndex, std::string> TakeContribution(uint32_t chunks, RoundNumber round = 1);

  // The value of the round; `results` by TensorIndex; a missing tensor has no result.
  RoundValue ValueOf(const std::map<TensorIndex, std::string>& results) const;
  VerdictRecord RecordOf(const RoundValue& value, RoundNumber round, uint64_t chain) const;
  // Sends results in frames of one chunk, last chunk first, over all streams in turn.
  void SendResults(const std::map<TensorIndex, std::string>& results, RoundNumber round,
                   Ballot ballot = {kTerm, 1});
  // Prepared, Staged, verdict.
  VerdictRecord Conclude(const RoundValue& value, RoundNumber round, uint64_t chain);

  // Asks the runner repeatedly until the answer is true.
  void Until(const std::function<bool(const Runner&)>& look);

  std::vector<TensorSpec> model;
  Membership membership{{kTerm, 1}, {{"w0", "w1"}}};
  std::map<TensorHandle, std::string> gradients;
  uint64_t window = 64 * kChunkBytes;
  SessionToken token = 77;
  std::vector<Placement> placements;  // Those of the welcome; the rounds use the last one.
  const uint32_t streams;

  ManualClock clock;
  FakeAggregator aggregator;
  std::unique_ptr<Worker> worker;
  Registration lane;
};

// The bytes of each tensor of a rig after a round that was delivered.
std::map<TensorIndex, std::string> Results(const Rig& rig);

}  // namespace basin::client

#endif  // BASIN_TESTS_CLIENT_TRANSPORT_FAKE_AGGREGATOR_H_
