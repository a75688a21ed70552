// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a process that holds bytes does with them, whether it also has the core or not: it computes
// the digests of what arrives, holds payloads by reference, reduces and sends them as the core's
// actions say, and gives lanes memory that workers on this machine map. What it holds and the
// actions on that are in held.h, whose code tests without bytes run, too.
//
// It decides nothing. The runner of the core (runner.h) and that of a shard (aggregator/shard) each
// have one.
//
// Thread contract: one thread.
// Failure: a frame that breaks the rules is an error that names the job and the tensor. An action
// that cannot be carried out is an error, too: core and bytes disagree about what is held.

#ifndef BASIN_AGGREGATOR_ENGINE_BYTE_RUNNER_H_
#define BASIN_AGGREGATOR_ENGINE_BYTE_RUNNER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/event.h"
#include "aggregator/engine/held.h"
#include "aggregator/engine/payloads.h"
#include "aggregator/engine/transport.h"
#include "runtime/frames/frame.h"
#include "runtime/gauge.h"

namespace basin::aggregator {

// The work that is handed to other threads, and whose results come back.
struct ByteDependencies {
  Transport* transport = nullptr;
  // For errors; empty when the job is over.
  std::function<JobName(JobId job)> name_of;
  // Runs it on a reduce worker; then ByteRunner::Reduced is called with it.
  std::function<void(std::unique_ptr<Reduction>)> reduce;
  // Makes an arena; then ByteRunner::ArenaMade is called. Null: without arenas.
  std::function<void(JobId job, LaneIndex lane, ResultPlaces places)> make_arena = nullptr;
  // Counts the memory of arenas, from when they are asked for.
  Gauge arena_gauge = nullptr;
  // The most that all arenas together may have, and how many there may be.
  uint64_t arena_bytes = 0;
  uint64_t most_arenas = std::numeric_limits<uint64_t>::max();
  // The most that those of one job may have; 0: no less than all.
  uint64_t job_arena_bytes = 0;
};

// Only counts up.
struct ByteCounters {
  uint64_t contribution_bytes = 0;  // Payload of contributions that arrived whole.
  uint64_t result_bytes = 0;        // Payload of results that was handed to the transport, once per
                                    // receiver.
  uint64_t corrupt_frames = 0;      // A chunk's digest did not match its bytes.
  uint64_t reductions = 0;
  // By device, of all reduce threads together.
  std::map<std::string, double> reduce_seconds = {{"cpu", 0}};
  uint64_t nonfinite_reductions = 0;  // With an input that is not a number, or infinite.
};

class ByteRunner {
 public:
  // The session that a data stream belongs to.
  struct Origin {
    SessionId session = 0;
    JobId job = 0;
  };
  // A frame as the core learns of it.
  struct Arrival {
    Event event;  // FrameReceived or BlobReceived.
    ChunkDigests digests;
  };

  explicit ByteRunner(ByteDependencies dependencies) : dependencies_(std::move(dependencies)) {}

  // Null: the stream is not accepted, or not any more.
  const Origin* OriginOf(StreamId stream) const {
    const auto found = streams_.find(stream);
    return found == streams_.end() ? nullptr : &found->second;
  }
  void StreamClosed(StreamId stream) { streams_.erase(stream); }

  // The event of a frame that has arrived, or why the stream that brought it must end.
  absl::StatusOr<Arrival> Arrived(const Origin& origin, const IncomingFrame& frame);
  // Whether the lane has all tensors that the frame names. Otherwise its digests cannot be
  // computed.
  bool KnowsTensorsOf(JobId job, const IncomingFrame& frame) const;

  // The actions that it carries out.
  template <typename Action>
  static constexpr bool kTakes =
      Held<Payloads>::kTakes<Action> || std::is_same_v<Action, AcceptStream> ||
      std::is_same_v<Action, CloseStream>;
  // `arrived`: the frame whose event led to the action; null if none did.
  template <typename Action>
  absl::Status CarryOut(const Action& action, const Payloads::Arrived* arrived, absl::Time now) {
    now_ = now;
    arrived_ = arrived;
    return Do(action);
  }

  void Reduced(const Reduction& reduction);
  // One of so many bytes. Null: there was no memory for it, and the lane's results stay in memory
  // of this process alone.
  void ArenaMade(JobId job, LaneIndex lane, uint64_t bytes, std::shared_ptr<ResultArena> arena,
                 absl::Time now);

  // ---- for status and metrics
  const ByteCounters& counters() const { return counters_; }
  const Held<Payloads>& held() const { return held_; }
  uint64_t parked_bytes() const;  // Contributions that wait to be reduced.
  uint64_t result_bytes() const;  // Results that a worker may still want.
  // Memory for results that workers on this machine map, also that of lanes which have ended until
  // nothing holds it.
  uint64_t shared_bytes() const {
    return dependencies_.arena_gauge == nullptr ? 0 : dependencies_.arena_gauge->load();
  }
  size_t arenas() const { return memory_.size(); }
  size_t streams() const { return streams_.size(); }

 private:
  friend class Held<Payloads>;

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

  absl::Status Do(const NameTensors& names);
  absl::Status Do(const IdleLane& idle);
  absl::Status Do(const EndJob& end);
  absl::Status Do(const Publish& publish);
  absl::Status Do(const AcceptStream& accept);
  absl::Status Do(const CloseStream& close);
  absl::Status Do(const DropBlob& drop);
  absl::Status Do(const ForgetFrames& forget);
  // All others are about what is held, and about nothing else.
  template <typename OnHeld>
  absl::Status Do(const OnHeld& action) {
    return held_.CarryOut(action, arrived_, *this);
  }

  // ---- the host of held.h
  void SendOn(absl::Span<const StreamId> streams, const OutgoingFrame& frame);
  absl::Status Start(RoundStore& round, const StartAttempt& start);
  void Started(std::unique_ptr<Reduction> reduction);

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

  // The digests of an incoming frame, or why the stream that brought it must end.
  absl::StatusOr<ChunkDigests> DigestsOf(JobId job, const IncomingFrame& frame);
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

  const ByteDependencies dependencies_;
  ByteCounters counters_;
  absl::flat_hash_map<StreamId, Origin> streams_;  // Those that are accepted.
  Held<Payloads> held_;
  std::map<std::pair<JobId, LaneIndex>, LaneMemory> memory_;

  // For the action in progress.
  absl::Time now_;
  const Payloads::Arrived* arrived_ = nullptr;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_BYTE_RUNNER_H_
