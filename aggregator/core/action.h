// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Everything the aggregator's core can ask for. Actions of one Step are carried out in order;
// none of them may call back into the core.
//
// An action about chunks, frames or a data stream is for one shard (protocol/placement.h), where
// its bytes are; shard 0 is this process. NameTensors, IdleLane, EndJob, StartAttempt and EndRound
// are for every shard, and those that have nothing of the lane ignore them. Sessions, values and
// everything else are of shard 0.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_CORE_ACTION_H_
#define BASIN_AGGREGATOR_CORE_ACTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/core/event.h"
#include "aggregator/core/note.h"
#include "protocol/messages.h"

namespace basin::aggregator {

// A frame of a result or a value that the runner keeps, because it may be sent again or waits for a
// stream. Given by Delivery, and never 0.
using FrameId = uint64_t;

// The streams that a frame is to be sent on. Filled in by Delivery (delivery.h); empty before.
struct Route {
  ChunkRanges ranges;  // The chunks of this frame, if it is of a result.
  std::vector<StreamId> streams;
  FrameId frame = 0;  // To keep the frame under, until ForgetFrames; 0: it is not kept.
};

struct Send {
  SessionId session = 0;
  ToWorker message;
  // Need not be sent before another message to this session: its receiver has nothing to do until
  // then.
  bool can_wait = false;
};

// The same message to several sessions; it can be serialised once for all of them.
struct SendAll {
  std::vector<SessionId> sessions;
  ToWorker message;
};

// Send the worker `error` (as Ended), after what was sent to it before, and close the session. Its
// streams are closed by CloseStream. Frames that are still queued are dropped. No SessionLost
// follows.
struct EndSession {
  SessionId session = 0;
  Error error;
};

// For an action that is for all shards.
inline constexpr ShardId kEveryShard = ~ShardId{0};

// The tensors of a lane from `first` on; they replace those that had these indexes before. Frames
// name a tensor by lane and index. A shard that is new gets all that were named before.
struct NameTensors {
  JobId job = 0;
  LaneIndex lane = 0;
  TensorIndex first = 0;
  std::vector<TensorSpec> tensors;
  ShardId shard = kEveryShard;
};

// No worker uses the lane: free what makes its rounds fast. Its tensors stay, because it may be
// used again.
struct IdleLane {
  JobId job = 0;
  LaneIndex lane = 0;
};

// The job is over: free what is still held for it.
struct EndJob {
  JobId job = 0;
};

// Keep these chunks of the frame that this Step was given, as part of the contribution of
// `contributor`. The other chunks of the frame are dropped.
struct KeepChunks {
  JobId job = 0;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Incarnation contributor;
  ChunkRanges ranges;
  ShardId shard = kCoordinatorShard;  // That of the frame.
};

// Drop kept chunks of a contribution.
struct DiscardChunks {
  JobId job = 0;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Incarnation contributor;
  std::vector<ChunkRange> ranges;
  ShardId shard = kCoordinatorShard;
};

// From here on, Reduce actions with this ballot combine `contributors` (in this order) by `spec`.
// A ballot that is new voids the one before it: reductions in progress are dropped with their
// inputs, results are freed. The same ballot again changes the contributors, before any Reduce.
struct StartAttempt {
  JobId job = 0;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  RoundSpec spec;
  std::vector<Contributor> contributors;
};

// Reduce these chunks over the attempt's contributors without `skipped` (positions in
// StartAttempt::contributors, ascending), then free the inputs, hold the result, and report
// ReduceDone. `divisor` is D of the arithmetic contract; 1 for ops without one.
struct Reduce {
  JobId job = 0;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRanges ranges;
  uint64_t divisor = 1;
  std::vector<uint32_t> skipped;
  ShardId shard = kCoordinatorShard;
};

// Send held result chunks to these sessions, in one frame per route. Those of several tensors are
// one frame.
struct Publish {
  JobId job = 0;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRanges ranges;
  uint64_t bytes = 0;  // The size of the chunks.
  std::vector<SessionId> sessions;
  bool again = false;  // The sessions may have been sent the chunks before.
  std::vector<Route> routes = {};
  ShardId shard = kCoordinatorShard;
};

// Everyone has these result chunks: free them.
struct ReleaseResult {
  JobId job = 0;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRange range;
  ShardId shard = kCoordinatorShard;
};

// Pass the frame that this Step was given (kSupply) on to these sessions as a result frame.
struct RelayResult {
  JobId job = 0;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRanges ranges;
  uint64_t bytes = 0;
  std::vector<SessionId> sessions;
  Route route = {};
  ShardId shard = kCoordinatorShard;  // That of the frame.
};

// The session has these result chunks. Delivery acts on it; a runner has nothing to do.
struct ResultsTaken {
  SessionId session = 0;
  JobId job = 0;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  std::vector<ChunkRange> ranges;
};

// Everything that is still held for the round can be freed.
struct EndRound {
  JobId job = 0;
  LaneIndex lane = 0;
  RoundNumber round = 0;
};

// Pass the value chunks that this Step was given on to these sessions; with `cache`, keep them
// until DropBlob.
struct RelayBlob {
  JobId job = 0;
  BlobKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  std::vector<SessionId> sessions;
  bool cache = false;
  Route route = {};
};

// Send value chunks that are kept, as one frame.
struct SendBlob {
  JobId job = 0;
  BlobKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  SessionId session = 0;
  Route route = {};
};

// Free every chunk of the value that is kept.
struct DropBlob {
  JobId job = 0;
  BlobKey key;
};

// ---- of Delivery

// The data stream belongs to a session, so the worker may send on it.
struct AcceptStream {
  StreamId stream = 0;
  SessionId session = 0;
  JobId job = 0;
  ShardId shard = kCoordinatorShard;
};

// Close a data stream at once. OK: its session is over.
struct CloseStream {
  StreamId stream = 0;
  absl::Status why;
  ShardId shard = kCoordinatorShard;
};

// Send a frame that was kept.
struct SendFrame {
  FrameId frame = 0;
  StreamId stream = 0;
  ShardId shard = kCoordinatorShard;
};

// These frames will not be sent again.
struct ForgetFrames {
  std::vector<FrameId> frames;
  ShardId shard = kCoordinatorShard;
};

// ---- of the coordinator again

// Write the members of a new generation down; report StateSaved. Nothing is sent before that.
struct SaveState {
  JobId job = 0;
  JobName name;
  RunId run;
  Term term = 0;
  Membership membership;
  std::optional<ChangedSettings> settings = std::nullopt;
};

// Write down what an operator has changed of the job's settings, if there is something; what is
// written of its members stays. Report SettingsSaved.
struct SaveSettings {
  JobId job = 0;
  JobName name;
  RunId run;
  Term term = 0;
  std::optional<ChangedSettings> settings;
};

// No round has, or will have, anything on the shard, which drains. Close the connection with it;
// report ShardLost.
struct ReleaseShard {
  ShardId shard = 0;
};

// The drain of the service is over: nothing is open, or its grace has passed.
struct Drained {};

using Action =
    std::variant<Send, SendAll, EndSession, NameTensors, IdleLane, EndJob, KeepChunks,
                 DiscardChunks, StartAttempt, Reduce, Publish, ReleaseResult, RelayResult,
                 ResultsTaken, EndRound, RelayBlob, SendBlob, DropBlob, AcceptStream, CloseStream,
                 SendFrame, ForgetFrames, SaveState, SaveSettings, Note, ReleaseShard, Drained>;

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ACTION_H_
