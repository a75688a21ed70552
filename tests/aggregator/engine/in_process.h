// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine with a transport of queues instead of sockets, and workers that a test drives: they
// send the messages of a client, with real bytes, and keep what they receive. The same workers can
// use another Network.
//
// Thread contract: a worker belongs to one thread; several threads may each drive their own.

#ifndef BASIN_TESTS_AGGREGATOR_ENGINE_IN_PROCESS_H_
#define BASIN_TESTS_AGGREGATOR_ENGINE_IN_PROCESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "aggregator/engine/engine.h"
#include "aggregator/engine/result_arena.h"
#include "kernels/cpu/cpu_reducer.h"
#include "tests/runtime/manual_clock.h"

namespace basin::aggregator {

inline constexpr char kJob[] = "job";
inline constexpr char kLane[] = "model";
inline constexpr size_t kChunkFloats = kChunkBytes / sizeof(float);

inline ResultPlaces PlacesOf(const std::vector<TensorSpec>& tensors) {
  ResultPlaces places;
  for (const TensorSpec& tensor : tensors) places.Add(tensor);
  return places;
}

// Bytes of a test's own, in pieces of any size.
class StringPayload : public Payload {
 public:
  StringPayload(std::string bytes, size_t piece_bytes);
  absl::Span<const std::string_view> pieces() const override { return pieces_; }

 private:
  const std::string bytes_;
  std::vector<std::string_view> pieces_;
};

class QueueTransport : public Transport {
 public:
  struct Connection {
    std::deque<ToWorker> messages;
    std::thread::id sender;  // The thread of the last message.
    std::deque<OutgoingFrame> frames;
    bool accepted = false;
    bool closed = false;
    absl::Status why;
    uint64_t consumed = 0;
  };

  void Send(absl::Span<const SessionId> sessions, const ToWorker& message) override;
  void CloseSession(SessionId session) override;
  void AcceptStream(StreamId stream, SessionId session, const JobName& job) override;
  void Send(absl::Span<const StreamId> streams, const OutgoingFrame& frame) override;
  void CloseStream(StreamId stream, const absl::Status& why) override;
  void Consumed(uint64_t connection, uint64_t bytes) override;
  bool Shares(StreamId) const override { return shares; }

  // Whether workers map memory of this process. Constant once there are streams.
  bool shares = false;

  // Waits until `ready` returns true for the connection, which it may change. Fails the test
  // after a minute.
  bool Await(uint64_t connection, const std::function<bool(Connection&)>& ready);
  // Waits for any of them: returns which, or 0 after a minute.
  uint64_t AwaitAny(const std::vector<uint64_t>& connections,
                    const std::function<bool(Connection&)>& ready);

 private:
  Mutex mutex_;
  Condition changed_;
  std::map<uint64_t, Connection> connections_ ABSL_GUARDED_BY(mutex_);
};

// Keeps the notes.
class NoteBook : public NoteSink {
 public:
  void OnNote(const Note& note, absl::Time now) override;
  std::vector<Note> OfKind(NoteKind kind) const;
  std::vector<Note> All() const;

 private:
  mutable Mutex mutex_;
  std::vector<Note> notes_ ABSL_GUARDED_BY(mutex_);
};

// The settings that all workers share.
struct Model {
  std::vector<TensorSpec> tensors;
  JobSettings settings;
  RoundSpec spec;
};

// Carries a worker's messages to an engine; its answers are in `transport`, under the number of its
// session or stream.
class Network {
 public:
  virtual ~Network() = default;
  virtual SessionId OpenSession() = 0;
  virtual void OnMessage(SessionId session, ToAggregator message) = 0;
  virtual void CloseSession(SessionId session) = 0;
  virtual StreamId OpenStream(SessionToken token) = 0;
  virtual void OnFrame(StreamId stream, IncomingFrame frame) = 0;
  virtual void CloseStream(StreamId stream) = 0;

  QueueTransport transport;
};

class RigWorker {
 public:
  RigWorker(Network& network, WorkerId id, const Model& model);

  // ---- actions of a client
  void Connect();         // A session with `streams` data streams, up to the layout.
  uint64_t OpenStream();  // One more; returns it once it is accepted.
  void Ready();
  void Begin(Counts counts = {});
  // Tensor `tensor` of the model, as these bytes; cut into frames of at most `chunks` chunks that
  // go to the streams in turn. `backwards`: the last frame first.
  void Push(TensorIndex tensor, const std::string& bytes, uint32_t chunks = 4,
            bool backwards = false);
  // One frame; it is broken if `claimed` differs from the truth.
  void PushFrame(StreamId stream, TensorIndex tensor, uint32_t first, uint32_t count,
                 const std::string& bytes, bool break_digest = false);
  void Commit();
  // Takes results until the round is prepared and complete, and stages it.
  void Stage();
  // The verdict, which arrives when all have staged.
  VerdictRecord Verdict();
  // All connections close at once, as when the process ends.
  void Die();
  // The session closes, the data streams stay open, as when a network breaks.
  void LoseSession();

  void Send(ToAggregator message);
  Hello HelloOf() const;  // Without history.
  // The next message of this type; others before it are handled as always.
  template <typename T>
  T Await();

  // How contributions travel.
  DType wire_dtype = DType::kUnspecified;
  int32_t wire_exponent = 0;
  uint32_t streams_wanted = 2;
  uint64_t features = 0;  // In its hello.
  JobName job = kJob;
  size_t piece_bytes = 100000;  // Frames arrive in pieces of this size.

  // ---- knowledge
  const WorkerId id;
  SessionId session = 0;
  std::vector<StreamId> streams;
  std::optional<Welcome> welcome;
  LaneIndex lane = 0;
  RoundNumber round = 1;
  std::vector<std::string> results;  // By tensor.
  uint64_t result_frames = 0;

 private:
  void OnMessage(const ToWorker& message);
  bool TakeResults();  // Handles received messages; returns whether there were any.
  bool Complete() const;

  Network& network_;
  const Model& model_;
  Digest digest_ = 0;
  uint64_t chunks_ = 0;
  uint64_t bytes_ = 0;
  Bitmap present_;
  Ballot result_ballot_;
  std::map<std::pair<TensorIndex, uint32_t>, Digest> held_;
  std::map<TensorIndex, std::string> pushed_;
  std::optional<Prepared> prepared_;
};

// Looks at an engine from its loop.
template <typename T>
T LookAt(Engine& engine, const std::function<T(const Runner&)>& look) {
  Mutex mutex;
  Condition done;
  std::optional<T> seen;
  engine.Inspect([&](const Runner& runner, absl::Time) {
    T value = look(runner);
    MutexLock lock(mutex);
    seen = std::move(value);
    done.NotifyAll();
  });
  MutexLock lock(mutex);
  while (!seen.has_value()) done.Wait(mutex);
  return *seen;
}

// Leads straight into an engine, which belongs to the deriving class and outlives its use.
class EngineNetwork : public Network {
 public:
  explicit EngineNetwork(Engine& engine) : engine_(engine) {}

  SessionId OpenSession() override { return engine_.OpenSession(); }
  void OnMessage(SessionId session, ToAggregator message) override {
    engine_.OnMessage(session, std::move(message), 1);
  }
  void CloseSession(SessionId session) override { engine_.CloseSession(session); }
  StreamId OpenStream(SessionToken token) override { return engine_.OpenStream(token); }
  void OnFrame(StreamId stream, IncomingFrame frame) override {
    engine_.OnFrame(stream, std::move(frame));
  }
  void CloseStream(StreamId stream) override { engine_.CloseStream(stream); }

 private:
  Engine& engine_;
};

class Rig : public EngineNetwork {
 public:
  explicit Rig(EngineOptions options = {}, StateFile* state_file = nullptr,
               accelerator::ReduceDevices* devices = nullptr);
  ~Rig() override;

  // Lets time pass; returns when the engine has noticed.
  void Pass(absl::Duration time);

  template <typename T>
  T Look(const std::function<T(const Runner&)>& look) {
    return LookAt(engine, look);
  }

  ManualClock clock;
  NoteBook notes;
  std::unique_ptr<kernels::Reducer> reducer = kernels::MakeCpuReducer();
  Engine engine;
};

// For the workers of one thread: all connect, then all are ready, and receive the membership.
void Join(const std::vector<RigWorker*>& workers);

// For the workers of one thread: all stage, then all receive the verdict. Returns the verdict of
// each.
std::vector<VerdictRecord> Finish(const std::vector<RigWorker*>& workers);

// `count` values of f32, one made from each index.
std::string Floats(size_t count, const std::function<float(size_t)>& value);
float FloatAt(const std::string& bytes, size_t index);

TensorSpec F32(const std::string& name, uint64_t elements);

// A job of `workers` workers that averages these tensors.
Model AverageOf(std::vector<TensorSpec> tensors, uint32_t workers);

// The contribution of worker `worker`: values whose sum depends on the order.
std::string GradientOf(uint32_t worker, size_t elements);

// The average of f32 contributions by the scalar oracle.
std::string ReferenceAverage(const std::vector<std::string>& contributions);

template <typename T>
T RigWorker::Await() {
  std::optional<T> found;
  while (!found.has_value()) {
    std::optional<ToWorker> next;
    const bool came =
        network_.transport.Await(session, [&](QueueTransport::Connection& connection) {
          if (connection.messages.empty()) return connection.closed;
          next = std::move(connection.messages.front());
          connection.messages.pop_front();
          return true;
        });
    if (!came || !next.has_value()) {
      ADD_FAILURE() << id << " waits for a message that does not come";
      return T{};
    }
    OnMessage(*next);
    if (auto* wanted = std::get_if<T>(&*next)) found = std::move(*wanted);
  }
  return *found;
}

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_ENGINE_IN_PROCESS_H_
