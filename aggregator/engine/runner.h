// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The core with its bytes: turns what a transport brings into the core's events and carries the
// core's actions out. It knows no thread, lock or clock; the engine calls it from its loop, tests
// call it step by step.
//
// It computes the digests of what arrives, and holds payloads by reference. What it holds and the
// actions on that are in held.h, whose code tests without bytes run, too. Here is what only bytes
// need: digests, memory that workers on this machine map, connections, threads and files.
//
// Thread contract: one thread.
// Failure: what a peer does wrong closes its connection with a status that names it; an action of
// the core that cannot be carried out is a broken invariant and ends the process.

#ifndef BASIN_AGGREGATOR_ENGINE_RUNNER_H_
#define BASIN_AGGREGATOR_ENGINE_RUNNER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/core/aggregator.h"
#include "aggregator/engine/held.h"
#include "aggregator/engine/payloads.h"
#include "aggregator/engine/transport.h"
#include "runtime/frames/frame.h"
#include "runtime/gauge.h"

namespace basin::aggregator {

// What happened, for logs, metrics and status. Called from the engine's loop.
class NoteSink {
 public:
  virtual ~NoteSink() = default;
  virtual void OnNote(const Note& note, absl::Time now) = 0;
};

// The work that the runner hands to other threads, and whose results come back to it.
struct RunnerDependencies {
  Transport* transport = nullptr;
  NoteSink* notes = nullptr;
  // Fresh and random, never 0.
  std::function<SessionToken()> new_token;
  // Runs it on a reduce worker; then Runner::Reduced is called with it.
  std::function<void(std::unique_ptr<Reduction>)> reduce;
  // Makes an arena; then Runner::ArenaMade is called. Null: without arenas.
  std::function<void(JobId job, LaneIndex lane, ResultPlaces places)> make_arena = nullptr;
  // Counts the memory of arenas, from when they are asked for.
  Gauge arena_gauge = nullptr;
  // The most that all arenas together may have, and how many there may be.
  uint64_t arena_bytes = 0;
  uint64_t most_arenas = std::numeric_limits<uint64_t>::max();
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
struct RunnerCounters {
  uint64_t contribution_bytes = 0;  // Payload of contributions that arrived whole.
  uint64_t result_bytes = 0;        // Payload of results that was handed to the transport, once per
                                    // receiver.
  uint64_t corrupt_frames = 0;      // A chunk's digest did not match its bytes.
  uint64_t results_resent = 0;      // Frames, after a data stream was lost.
  uint64_t reductions = 0;
  // By device, of all reduce threads together.
  std::map<std::string, double> reduce_seconds = {{"cpu", 0}};
  uint64_t nonfinite_reductions = 0;  // With an input that is not a number, or infinite.
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
  void FrameReceived(StreamId stream, IncomingFrame frame, absl::Time now);
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
  // The kernel has heard nothing of these sessions, as the transport saw it `age` ago.
  void SessionsUnheard(std::vector<UnheardSession> sessions, absl::Duration age, absl::Time now);

  // When Tick must be called at the latest.
  absl::Time NextDeadline() const;

  // ---- for status and metrics
  const Coordinator& core() const { return core_.coordinator(); }
  const RunnerCounters& counters() const { return counters_; }
  uint64_t parked_bytes() const;  // Contributions that wait to be reduced.
  uint64_t result_bytes() const;  // Results that a worker may still want.
  // Memory for results that workers on this machine map, also that of lanes which have ended until
  // nothing holds it.
  uint64_t shared_bytes() const {
    return dependencies_.arena_gauge == nullptr ? 0 : dependencies_.arena_gauge->load();
  }
  size_t arenas() const { return memory_.size(); }
  Peer PeerOf(SessionId session) const { return dependencies_.transport->PeerOf(session); }
  // The workers of the job that the connection belongs to; 1 if it belongs to none yet.
  uint64_t SharersOf(uint64_t connection) const;
  size_t sessions() const { return core_.delivery().sessions(); }
  size_t streams() const { return core_.delivery().streams(); }

 private:
  friend class Held<Payloads>;

  // The session that a data stream belongs to.
  struct Origin {
    SessionId session = 0;
    JobId job = 0;
  };
  // Memory for the results of a lane.
  struct LaneMemory {
    size_t seen = 0;                   // The lane's tensors when this was last considered,
    RoundNumber considered = 0;        // and the round.
    std::vector<RoundNumber> reduced;  // The last round of each tensor, or that in which it came.
    uint64_t asked = 0;                // The bytes of an arena that was asked for; 0: none was.
    std::shared_ptr<ResultArena> arena;
    absl::Time used = absl::InfinitePast();  // When a round began.
    absl::Time next_request = absl::InfinitePast();
  };
  void Step(const Event& event, absl::Time now);
  void Do(const basin::aggregator::Send& send);
  void Do(const SendAll& send);
  void Do(const EndSession& end);
  void Do(const NameTensors& names);
  void Do(const IdleLane& idle);
  void Do(const EndJob& end);
  void Do(const Publish& publish);
  void Do(const ResultsTaken&) {}
  void Do(const aggregator::AcceptStream& accept);
  void Do(const aggregator::CloseStream& close);
  void Do(const SaveState& save);
  void Do(const SaveSettings& save);
  void Do(const Note& note);
  void Do(const Drained& drained);
  // What is not held need not be freed.
  void Do(const DropBlob& drop) { held_.CarryOut(drop, arrived_, *this).IgnoreError(); }
  void Do(const ForgetFrames& forget) { held_.CarryOut(forget, arrived_, *this).IgnoreError(); }
  // All others are about what is held, and about nothing else.
  template <typename Other>
  void Do(const Other& other) {
    CarryOut(other);
  }
  template <typename OnHeld>
  void CarryOut(const OnHeld& action);
  void SendOn(absl::Span<const StreamId> streams, const OutgoingFrame& frame);
  absl::Status Start(RoundStore& round, const StartAttempt& start);
  void Started(std::unique_ptr<Reduction> reduction);

  // The digests of an incoming frame, or why the stream that brought it must end.
  absl::StatusOr<ChunkDigests> DigestsOf(JobId job, const IncomingFrame& frame);
  // Asks for an arena for the lane, if it is worth it, or for another one when its tensors in use
  // have changed. A result of this round is sent.
  void WantArena(JobId job, LaneIndex lane, RoundNumber round);
  // None could be had now.
  static void AskLater(LaneMemory& memory, absl::Time now);
  // Whether an arena of so many bytes may be made in place of one of `instead` bytes. Those of
  // lanes that rest give way, the one that has rested longest first.
  bool MakeRoomForArena(JobId job, LaneIndex lane, uint64_t bytes, uint64_t instead);
  // What the arenas of a job have, those that were asked for included.
  uint64_t ArenaBytesOf(JobId job) const;
  // The digests of the chunks of a round's frame.
  absl::StatusOr<ChunkDigests> DigestsOf(JobId job, LaneIndex lane, const ChunkRuns& runs,
                                         const IncomingFrame& frame);
  absl::StatusOr<ChunkDigests> DigestsOfBlob(JobId job, const BlobHeader& value,
                                             const IncomingFrame& frame);
  // Compares them with those that the sender claims; `what` names the frame.
  absl::StatusOr<ChunkDigests> Compared(ChunkDigests digests, const IncomingFrame& frame,
                                        const std::string& what);
  // "A data frame of job j for tensor t".
  std::string Named(JobId job, const std::string& tensor) const;

  const RunnerDependencies dependencies_;
  Aggregator core_;
  absl::Time now_;
  RunnerCounters counters_;

  absl::flat_hash_map<StreamId, Origin> streams_;  // Those that are accepted.
  Held<Payloads> held_;
  std::map<std::pair<JobId, LaneIndex>, LaneMemory> memory_;

  std::vector<Action> actions_;                 // From the Step in progress; kept for its memory.
  const Payloads::Arrived* arrived_ = nullptr;  // In the Step in progress.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_RUNNER_H_
