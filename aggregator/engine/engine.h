// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The aggregator without its sockets: one event loop that owns the core and the bytes, and threads
// that reduce. All other threads post to it what happened and go on; none waits for it.
//
// How it fits together
//
//   transport threads --+                                  +--> transport (Send, Consumed, ...)
//   reduce workers -----+--> inbox --> loop: Runner (core) +--> reduce workers
//   operator, signals --+                                  +--> notes, state file
//
// The loop takes one event of each connection in turn (fair_queue.h). A connection whose events
// take long is charged for it, and so is one whose job has many workers, because jobs share the
// loop equally: a flood from one worker delays the other workers of its job by one event, and one
// from all workers of a job delays the other jobs by about one. The reduce threads serve the jobs
// in turn (thread_pool.h), so that large rounds of one job delay those of another by one reduction.
//
// While the loop has nothing to do, a transport thread that brings a small message holds it itself
// (runtime/event_loop.h).
//
// Thread contract: Start, Restart and Stop one after the other; everything else from any thread, at
// any time; what comes before Start or after Stop is dropped.
// Failure: none of its own.

#ifndef BASIN_AGGREGATOR_ENGINE_ENGINE_H_
#define BASIN_AGGREGATOR_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "accelerator/transfer/reduce_devices.h"
#include "aggregator/core/config.h"
#include "aggregator/engine/buffer_pool.h"
#include "aggregator/engine/byte_threads.h"
#include "aggregator/engine/fair_queue.h"
#include "aggregator/engine/gate.h"
#include "aggregator/engine/runner.h"
#include "aggregator/engine/shard_messages.h"
#include "aggregator/engine/stream_sink.h"
#include "aggregator/engine/thread_pool.h"
#include "aggregator/engine/transport.h"
#include "kernels/reducer.h"
#include "runtime/clock.h"
#include "runtime/event_loop.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

// Writes down what must survive this process (Config::state_file).
class StateFile {
 public:
  virtual ~StateFile() = default;
  // Returns when it is on disk, or the reason why it is not. Called from a thread of its own.
  virtual absl::Status Save(const SaveState& state) = 0;
  virtual absl::Status Save(const SaveSettings& settings) = 0;
};

struct EngineOptions {
  Config core;
  uint32_t reduce_threads = 1;  // With devices, they decide: ReduceDevices::threads().
  uint64_t idle_buffer_bytes = uint64_t{256} << 20;  // Kept for the next results.
  // For results that workers on this machine map; 0: none is shared.
  uint64_t shared_result_bytes = 0;
  // Lanes that may have such memory at a time, with kArenaDescriptors each.
  uint64_t most_arenas = std::numeric_limits<uint64_t>::max();
};

class Engine : public StreamSink {
 public:
  // `devices`: what reduces in place of `reducer`, which takes over what a device cannot do or
  // fails at; null for none. REQUIRES: all of them outlive the engine; `state_file` is null unless
  // options.core.state_file.
  Engine(EngineOptions options, Clock& clock, const kernels::Reducer& reducer, NoteSink& notes,
         StateFile* state_file, accelerator::ReduceDevices* devices = nullptr);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Events wait while the gate is closed, but for looks. LookAgain must be called after it was
  // opened. REQUIRES: before Start; the gate outlives the engine.
  void DecideWhile(const Gate& gate) { gate_ = &gate; }
  void LookAgain();

  // REQUIRES: `transport` lives until Stop has returned.
  void Start(Transport& transport);
  // Forgets every session and job, and starts again as an aggregator of this term, with the same
  // transport. What is posted meanwhile is dropped. REQUIRES: it runs; without a state file.
  void Restart(Term term);
  // Ends the loop and the threads that reduce; sends nothing to sessions. Idempotent.
  void Stop();

  // ---- for the transport. REQUIRES: the caller holds no lock that its own calls need, because it
  // may hold the loop.
  // `address`: of the other side, without its port; empty if it is not known.
  SessionId OpenSession(std::string address = "");
  void OnMessage(SessionId session, ToAggregator message, uint64_t bytes);
  // The messages and frames of a batch are handled as one event.
  void OnBatch(SessionId session, Batch batch);
  // `ended`: why the transport ended it, as a sentence; empty when the other side did.
  // `malformed`: because of a message that no client sends.
  void CloseSession(SessionId session, std::string ended = "", bool malformed = false);
  // The kernel hears nothing of these sessions now; the same again as long as that lasts.
  void OnUnheard(std::vector<UnheardSession> sessions);
  StreamId OpenStream(SessionToken token) override;
  void OnFrame(StreamId stream, IncomingFrame frame) override;
  void CloseStream(StreamId stream) override;
  // A shard has connected. Its number is never used for another one.
  ShardId OpenShard(ShardHello hello);
  // `bytes` are given back (Transport::ShardConsumed).
  void OnShardEvents(ShardId shard, std::vector<ShardEvent> events, uint64_t bytes);
  // `why`: as a sentence.
  void CloseShard(ShardId shard, std::string why);

  // ---- for operators
  // EvictWorker, WorkerExited, DrainWorker, DrainService, RecoverJob, SuspendJob, ResumeJob,
  // SetJob.
  void Command(Event command);
  // Calls `look` from the loop, also while the gate is closed; it must not block.
  void Inspect(std::function<void(const Runner& runner, absl::Time now)> look);
  // The same when everything that was posted before has been handled, or never if that was dropped.
  void InspectInOrder(std::function<void(const Runner& runner, absl::Time now)> look);
  // The same, after what earlier commands have given to the state file has been written, or has
  // failed.
  void InspectWritten(std::function<void(const Runner& runner, absl::Time now)> look);
  // Called from the loop when a DrainService is over. REQUIRES: before Start.
  void OnDrained(std::function<void()> drained) { drained_ = std::move(drained); }

  // How long the event that is being handled, or else the oldest in the inbox, has waited: what
  // liveness is judged by.
  absl::Duration InboxDelay() const;
  const BufferPool& pool() const { return byte_threads_.pool(); }
  // The term as which it was started last.
  Term term() const { return term_; }

 private:
  using Task = std::function<void(Runner& runner, absl::Time now)>;
  struct Posted {
    uint64_t connection = 0;
    absl::Time at;
    Task task;
    bool looks = false;  // It changes nothing.
  };
  // In place of a connection. What a thread of this process has finished is taken at once; the
  // request of an operator comes after all that was posted before it.
  static constexpr uint64_t kNow = 0;
  static constexpr uint64_t kLast = ~uint64_t{0};

  // Returns whether the loop runs, and so will handle it.
  bool Post(uint64_t connection, Task task);
  // The same, but the calling thread holds the loop for it if nobody does.
  bool PostNow(uint64_t connection, Task task);
  void Loop();
  void Run(Term term);
  bool MayDecide() const { return gate_ == nullptr || gate_->open(); }

  // ---- REQUIRES: this thread holds the loop
  // When the loop must wake up by itself.
  absl::Time NextDeadline() const;
  // If a deadline is to be judged: names the connections with something waiting, and the senders of
  // hellos, so that no worker counts as silent or lost while its messages wait here.
  void NoteWaiting(absl::Time now);
  // Handles the next event. REQUIRES: there is one.
  void TakeEvent();
  // Moves what was posted to where it waits among the connections.
  void TakePosted();
  void Wait(Posted posted);
  void LetGo();

  RunnerDependencies DependenciesFor(Transport& transport);
  ByteThreads::Reports ReportsOfThreads();

  // Constant after construction.
  const EngineOptions options_;
  Clock& clock_;
  NoteSink& notes_;
  StateFile* const state_file_;

  // Synchronise themselves.
  ByteThreads byte_threads_;
  std::atomic<Term> term_;
  std::atomic<uint64_t> next_connection_{1};
  std::atomic<ShardId> next_shard_{kCoordinatorShard + 1};
  static constexpr int64_t kNothingTaken = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> taken_posted_ns_{kNothingTaken};  // When the present event was posted.

  std::function<void()> drained_;  // Constant after Start,
  const Gate* gate_ = nullptr;     // as is this. Null: it may always decide.
  std::unique_ptr<ThreadPool> state_thread_;
  Transport* transport_ = nullptr;
  std::thread thread_;  // The loop's.

  EventLoop<Posted> events_;

  // Used by the thread that holds the loop.
  std::unique_ptr<Runner> runner_;
  FairQueue<Posted> queue_;
  std::vector<Posted> taken_;

  Mutex hellos_mutex_;
  // That are not handled yet.
  std::map<SessionId, WaitingHello> hellos_ ABSL_GUARDED_BY(hellos_mutex_);
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_ENGINE_H_
