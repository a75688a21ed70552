// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Everything that can happen to the aggregator's core. The runner of the core (engine, simulator,
// explorer) turns sockets, clocks, disks and commands into these, one at a time.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_CORE_EVENT_H_
#define BASIN_AGGREGATOR_CORE_EVENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "aggregator/core/config.h"
#include "protocol/messages.h"

namespace basin::aggregator {

// A session as the runner names it. Never used for two sessions.
using SessionId = uint64_t;

// A data stream of a session, as the runner names it. Never used for two streams, and never 0.
using StreamId = uint64_t;

// A job inside one Coordinator, given by it.
using JobId = uint32_t;

// One digest per chunk of a frame; a frame of the usual size has four chunks.
using ChunkDigests = absl::InlinedVector<Digest, 4>;

// A session stream opened. `token` is fresh and random; data streams of the session present it.
// `address`: of the other side, or what counts as one address (SourceOf in runtime/grpc/peer.h);
// empty if it is not known.
struct SessionOpened {
  SessionId session = 0;
  SessionToken token = 0;
  std::string address = {};
};

struct MessageReceived {
  SessionId session = 0;
  ToAggregator message;
};

// The sender of a hello that waits to be handled; its session belongs to no worker until then.
struct WaitingHello {
  JobName job;
  WorkerId worker;
  Nonce nonce = 0;
};

// Messages of these sessions have arrived and wait to be handled, because others come first: their
// workers are not silent. So have these hellos: their workers are back. Comes before a deadline is
// judged.
struct MessagesWait {
  std::vector<SessionId> sessions;
  std::vector<WaitingHello> hellos = {};
};

// The kernel of this machine has heard nothing on any connection of the session, not even an
// acknowledgement. It hears of a process that is stopped or starved, whose kernel acknowledges, but
// not of a machine without power or behind a partition.
struct UnheardSession {
  SessionId session = 0;
  absl::Duration unheard;   // For so long, and as long as an answer could be on its way.
  uint32_t unanswered = 0;  // The packets since then that the other kernel should have answered.
};

// What the transport saw `age` ago. It looks again as long as that lasts.
struct SessionsUnheard {
  std::vector<UnheardSession> sessions;
  absl::Duration age = absl::ZeroDuration();
};

// The session stream has ended; its data streams end on their own. `ended`: why the transport ended
// it, as a sentence; empty when the other side did. `malformed`: because of a message that no
// client sends.
struct SessionClosed {
  SessionId session = 0;
  std::string ended = {};
  bool malformed = false;
};

// A data stream opened at a shard, and presents the token of a session. AcceptStream or CloseStream
// answers it.
struct StreamOpened {
  StreamId stream = 0;
  SessionToken token = 0;
  ShardId shard = kCoordinatorShard;
};

struct StreamLost {
  StreamId stream = 0;
};

// The session and all its data streams are closed. Delivery finds that out, from SessionClosed, for
// the coordinator. `closed_by_peer`: the other side closed every
// connection, as a kernel does when a process ends; false for a timeout or a broken network.
// `ended`, `malformed`: as in SessionClosed.
struct SessionLost {
  SessionId session = 0;
  bool closed_by_peer = false;
  std::string ended = {};
  bool malformed = false;
};

enum class FrameKind : uint8_t {
  kContribution = 0,
  kSupply = 1,  // Result chunks that the aggregator asked a holder for.
};

// A frame arrived whole on a data stream of `session`, its checksum is right, and `digests` were
// computed from the bytes that arrived. The runner holds the bytes until Step returns, and then the
// actions decide about them.
struct FrameReceived {
  SessionId session = 0;
  FrameKind kind = FrameKind::kContribution;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;  // kSupply: the value's.
  ChunkRanges ranges;
  uint64_t bytes = 0;
  ChunkDigests digests;
  ShardId shard = kCoordinatorShard;  // That of the stream; it holds the bytes.
};

// Chunks of a broadcast value arrived from a worker that was asked for them. Values are on shard 0
// alone; another one refuses their frames.
struct BlobReceived {
  SessionId session = 0;
  BlobKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t bytes = 0;
};

// The sums of the squares of a chunk's result, one for each block of 64 Ki elements, because the
// norm adds blocks in order (kernels/facts.h). A chunk of f16 or bf16 is two blocks, of f32 one, of
// f64 half of one.
struct ChunkNorm {
  double first = 0;
  double second = 0;
  auto Fields() const { return std::tie(first, second); }
};

// What the reduction of some chunks found out.
struct ChunkFacts {
  absl::InlinedVector<ChunkNorm, 4> squared_norms;  // One per chunk; empty where there is no norm.
  bool overflow = false;
  std::optional<NonFinite> nonfinite;
  auto Fields() const { return std::tie(squared_norms, overflow, nonfinite); }
};

// A Reduce action has been carried out; the result bytes are held under its ballot. If it failed,
// because the arithmetic contract refuses its constants or a device failed, nothing is held, and
// the round is aborted for this reason.
struct ReduceDone {
  JobId job = 0;
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRanges ranges;
  ChunkDigests digests;  // Those of the result.
  ChunkFacts facts;
  std::optional<std::string> failure = std::nullopt;
  TensorIndex failed = 0;             // The tensor that could not be reduced.
  ShardId shard = kCoordinatorShard;  // Where it was.
};

// A process that holds bytes has connected. Its number is never used for another one, and never 0.
// The runner must be able to carry out actions on it from now on.
struct ShardUp {
  ShardId shard = 0;
  std::string name;      // A label. No two shards that are up have the same.
  std::string endpoint;  // host:port where workers open data streams.
  uint64_t memory = 0;   // Its memory.budget; 0: it has not said.
};

// It is to end, and goes on until ReleaseShard: rounds that are open keep what they have there.
struct ShardDraining {
  ShardId shard = 0;
};

// It is gone, with all that it held. Nothing that it reports comes after this, and actions on it
// are dropped; its streams need no StreamLost. `why`: as a sentence.
struct ShardLost {
  ShardId shard = 0;
  std::string why;
};

// A SaveState action has been carried out, or failed (which is reported, and the job goes on).
struct StateSaved {
  JobId job = 0;
  Generation generation;
  bool ok = true;
};

// A SaveSettings action has been carried out, or failed. They end in the order of the actions.
struct SettingsSaved {
  JobId job = 0;
  bool ok = true;
};

// What an operator or a launcher may ask for.
struct EvictWorker {
  JobName job;
  WorkerId worker;
  std::string reason;
};
struct WorkerExited {  // The launcher saw the process end: no grace.
  JobName job;
  WorkerId worker;
  Nonce nonce = 0;  // That of the process; 0: any process with the id.
};
struct DrainWorker {
  JobName job;
  WorkerId worker;
};
// Open rounds end and no others open, and then the sessions end.
struct DrainService {
  bool keeps_sessions = false;  // They stay, until another aggregator can take the workers.
};
struct RecoverJob {  // Leave HALTED with the workers that are back.
  JobName job;
};
struct SuspendJob {
  JobName job;
};
struct ResumeJob {
  JobName job;
};

// Changes settings of a job, see WhyNotSet. What is absent stays as it is.
struct SetJob {
  JobName job;
  std::optional<uint32_t> min_workers;
  std::optional<uint32_t> max_workers;
  std::optional<LossPolicy> loss_policy;
  std::optional<LatePolicy> late_policy;
};

// Nothing but the passing of time.
struct Tick {};

// What the coordinator takes, besides SessionLost.
using Input = std::variant<Tick, SessionOpened, MessageReceived, MessagesWait, SessionsUnheard,
                           FrameReceived, BlobReceived, ReduceDone, StateSaved, SettingsSaved,
                           EvictWorker, WorkerExited, DrainWorker, DrainService, RecoverJob,
                           SuspendJob, ResumeJob, SetJob, ShardUp, ShardDraining, ShardLost>;

// What the runner reports: that, or what Delivery alone takes.
using Event = std::variant<Input, SessionClosed, StreamOpened, StreamLost>;

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_EVENT_H_
