// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The core with its bytes: turns what a transport brings into the core's events and carries the
// core's actions out. It knows no thread, lock or clock; the engine calls it from its loop, tests
// call it step by step.
//
// What concerns bytes is in byte_runner.h; here is what only the process with the core has:
// sessions, files and notes.
//
// Thread contract: one thread.
// Failure: what a peer does wrong closes its connection with a status that names it; an action of
// the core that cannot be carried out is a broken invariant and ends the process.

#ifndef BASIN_AGGREGATOR_ENGINE_RUNNER_H_
#define BASIN_AGGREGATOR_ENGINE_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/aggregator.h"
#include "aggregator/engine/byte_runner.h"
#include "aggregator/engine/payloads.h"
#include "aggregator/engine/remote_shards.h"
#include "aggregator/engine/shard_messages.h"
#include "aggregator/engine/transport.h"
#include "runtime/frames/frame.h"

namespace basin::aggregator {

// What happened, for logs, metrics and status. Called from the engine's loop.
class NoteSink {
 public:
  virtual ~NoteSink() = default;
  virtual void OnNote(const Note& note, absl::Time now) = 0;
};

// The work that the runner hands to other threads, and whose results come back to it.
struct RunnerDependencies {
  // What the runner does not fill in itself.
  ByteDependencies bytes;
  NoteSink* notes = nullptr;
  // Fresh and random, never 0.
  std::function<SessionToken()> new_token;
  // For a data stream at a shard; as the transport's are numbered.
  std::function<StreamId()> new_stream;
  // Writes it down; then Runner::Saved is called. Not used without Config::state_file.
  std::function<void(const SaveState&)> save;
  std::function<void(const SaveSettings&)> save_settings;
  std::function<void()> drained;
};

// What came in one message of a session: messages of it, and frames of its data streams.
struct Batch {
  std::vector<std::pair<ToAggregator, uint64_t>> messages;  // With the bytes of each.
  std::vector<std::pair<StreamId, IncomingFrame>> frames;
  uint64_t frame_bytes = 0;  // The sum over the frames, held for the session.
};

// Only counts up.
struct RunnerCounters : ByteCounters {
  uint64_t results_resent = 0;  // Frames, after a data stream was lost.
};

class Runner {
 public:
  Runner(Config config, RunnerDependencies dependencies, absl::Time start);

  // ---- what happened. REQUIRES: `now` does not go back.
  void SessionOpened(SessionId session, std::string address, absl::Time now);
  // `bytes` are given back to the transport as consumed, here and below.
  void MessageReceived(SessionId session, ToAggregator message, uint64_t bytes, absl::Time now);
  void BatchReceived(SessionId session, Batch&& batch, absl::Time now);
  // The session stream has ended. Its data streams end on their own.
  void SessionEnded(SessionClosed closed, absl::Time now);
  void StreamOpened(StreamId stream, SessionToken token, absl::Time now);
  void FrameReceived(StreamId stream, const IncomingFrame& frame, absl::Time now);
  void StreamClosed(StreamId stream, absl::Time now);
  void Reduced(const std::shared_ptr<const Reduction>& reduction, absl::Time now);
  void Saved(const StateSaved& saved, absl::Time now);
  void Saved(const SettingsSaved& saved, absl::Time now);
  // One of so many bytes. Null: there was no memory for it, and the lane's results stay in memory
  // of this process alone.
  void ArenaMade(JobId job, LaneIndex lane, uint64_t bytes, std::shared_ptr<ResultArena> arena,
                 absl::Time now);
  // What an operator or launcher asks for.
  void Command(const Event& command, absl::Time now);
  void Tick(absl::Time now);
  // Messages of these connections, and these hellos, wait to be handled.
  void MessagesWait(std::vector<uint64_t> connections, std::vector<WaitingHello> hellos,
                    absl::Time now);
  // A shard has connected; it was given this number.
  void ShardOpened(ShardId shard, const ShardHello& hello, absl::Time now);
  // It reports these. One that breaks the rules loses its connection.
  void ShardReported(ShardId shard, std::vector<ShardEvent> events, uint64_t bytes, absl::Time now);
  void ShardClosed(ShardId shard, std::string why, absl::Time now);
  // The kernel has heard nothing of these sessions, as the transport saw it `age` ago.
  void SessionsUnheard(std::vector<UnheardSession> sessions, absl::Duration age, absl::Time now);

  // All that has happened until now was passed: what was sent may have waited until now.
  void Flush();

  // When Tick must be called at the latest.
  absl::Time NextDeadline() const;

  // ---- for status and metrics
  const Coordinator& core() const { return core_.coordinator(); }
  RunnerCounters counters() const { return {bytes_.counters(), core_.delivery().resent()}; }
  uint64_t parked_bytes() const { return bytes_.parked_bytes(); }
  uint64_t result_bytes() const { return bytes_.result_bytes(); }
  uint64_t shared_bytes() const { return bytes_.shared_bytes(); }
  size_t arenas() const { return bytes_.arenas(); }
  Peer PeerOf(SessionId session) const { return transport().PeerOf(session); }
  // The workers of the job that the connection belongs to; 1 if it belongs to none yet.
  uint64_t SharersOf(uint64_t connection) const;
  size_t sessions() const { return core_.delivery().sessions(); }
  size_t streams() const { return core_.delivery().streams(); }
  size_t shards() const { return shards_.size(); }
  const RemoteShards& remote_shards() const { return shards_; }
  // Those of shard 0.
  const ReduceTimes& reduce_times() const { return reduce_times_; }

 private:
  ByteDependencies DependenciesOfBytes() const;
  Transport& transport() const { return *dependencies_.bytes.transport; }
  void Step(const Event& event, absl::Time now);
  JobName NameOf(JobId job) const;
  // ---- what a shard reports
  absl::Status Report(ShardId shard, const basin::aggregator::StreamOpened& opened, absl::Time now);
  absl::Status Report(ShardId shard, const StreamLost& lost, absl::Time now);
  absl::Status Report(ShardId shard, ShardFrameReceived received, absl::Time now);
  absl::Status Report(ShardId shard, const ShardFrameUnknown& unknown, absl::Time now);
  absl::Status Report(ShardId shard, ReduceDone done, absl::Time now);
  absl::Status Report(ShardId shard, ShardDraining draining, absl::Time now);
  absl::Status Report(ShardId shard, const ShardUse& use, absl::Time now);
  // ---- actions
  void Do(const basin::aggregator::Send& send);
  void Do(const SendAll& send);
  void Do(const EndSession& end);
  void Do(const ResultsTaken&) {}
  void Do(const SaveState& save);
  void Do(const SaveSettings& save);
  void Do(const Note& note);
  void Do(const ReleaseShard& release);
  void Do(const Drained& drained);
  // All others are about bytes, here or at a shard.
  template <typename Other>
  void Do(const Other& other);

  const RunnerDependencies dependencies_;
  Aggregator core_;
  absl::Time now_;
  ByteRunner bytes_;
  RemoteShards shards_;
  std::vector<ShardId> released_;  // By the step in progress.
  ReduceTimes reduce_times_;

  std::vector<Action> actions_;                 // From the Step in progress; kept for its memory.
  const Payloads::Arrived* arrived_ = nullptr;  // In the Step in progress.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_RUNNER_H_
