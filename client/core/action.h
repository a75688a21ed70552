// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Everything the client's core can ask for. Actions of one Step are carried out in order.
//
// Thread contract: plain values.

#ifndef BASIN_CLIENT_CORE_ACTION_H_
#define BASIN_CLIENT_CORE_ACTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "client/core/event.h"
#include "protocol/messages.h"
#include "protocol/placement.h"

namespace basin::client {

// Open the session stream after `delay`; answered by SessionUp, or SessionDown when it fails.
struct OpenSession {
  absl::Duration delay;
};
// Close the session stream and every data stream, after earlier messages. No SessionDown or
// StreamDown follows.
struct CloseSession {
  std::string reason;
};
// Open data stream `stream` after `delay` and present `token`; answered by StreamUp or StreamDown.
struct OpenStream {
  uint32_t stream = 0;
  SessionToken token = 0;
  absl::Duration delay;
  PlacedShard shard = {};  // Where it ends.
  uint32_t number = 0;     // That it presents there: among the worker's streams to this shard.
};
// Close a data stream, or do not open it, because its shard is gone. No StreamDown follows.
struct CloseStream {
  uint32_t stream = 0;
  std::string reason;
};

struct Send {
  ToAggregator message;
};

// Send chunks of this round's contribution from the trainer's own buffers, as one frame.
struct SendContribution {
  uint32_t stream = 0;
  LaneHandle lane = 0;
  absl::InlinedVector<TensorHandle, 1> tensors;  // The owners of the buffers, by range.
  LaneIndex lane_index = 0;
  RoundNumber round = 0;
  ChunkRanges ranges;  // By layout index.
};
// Send staged result chunks to the aggregator.
struct SendSupply {
  uint32_t stream = 0;
  LaneHandle lane = 0;
  LaneIndex lane_index = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRanges ranges;
};
// Send chunks of an announced value. The runner waits for its gate (no optimizer step in progress).
struct SendBlob {
  uint32_t stream = 0;
  BlobKey key;
  uint32_t first = 0;
  uint32_t count = 0;
};

// Stage these chunks of the frame that this Step was given. The first chunk of another round
// replaces the staged chunks of the lane; a chunk that is kept again replaces its bytes.
struct KeepResult {
  LaneHandle lane = 0;
  RoundNumber round = 0;
  ChunkRange range;
};
// Keep these chunks of the value frame that this Step was given.
struct KeepBlob {
  BlobKey key;
  uint32_t first = 0;
  uint32_t count = 0;
};

// The round is COMMITTED: copy the staged results out and complete the trainer's handle.
struct Deliver {
  LaneHandle lane = 0;
  VerdictRecord record;
};
// The round's handle ends, or (kOutcomeUnknown, kPaused) only its wait, while the round continues.
struct FailRound {
  LaneHandle lane = 0;
  RoundNumber round = 0;
  Error error;
};
// The aggregator does not count this worker's contribution as it was sent. The round continues, and
// its outcome is delivered.
struct RoundRejected {
  LaneHandle lane = 0;
  RoundNumber round = 0;
  Error error;
};
// The round waits for late workers; the text is a sentence that names them.
struct RoundHeldUp {
  LaneHandle lane = 0;
  RoundNumber round = 0;
  std::string text;
};
// The job is paused, and the text is a sentence with the cause; empty: the job continues.
struct JobPaused {
  std::string text;
};
// The call lane is gone, and with it the handle: later calls with it are refused. An outcome that
// the trainer has not taken yet stays.
struct ForgetLane {
  LaneHandle lane = 0;
};
// A call of the trainer was refused: the event of this Step, which changed nothing, or a
// registration that the aggregator did not accept.
struct Refused {
  Error error;
};

// The rank of this trainer, and the number of trainers, if the worker became a member now.
struct ExpectedRank {
  uint32_t rank = 0;
  uint32_t world_size = 0;
  auto Fields() const { return std::tie(rank, world_size); }
};

// The worker's membership changed.
struct MembershipNow {
  Membership membership;
  Role role = Role::kJoiner;
  std::optional<uint32_t> rank;
  bool joined = false;            // This worker has just become a member.
  std::optional<WorkerId> donor;  // Serves the state to new members, which load it before their
                                  // first begin. Absent: every worker keeps its state.
  Generation donor_since = {};    // With a donor: with which they joined.
};

struct BlobReady {
  BlobKey key;
  TensorSpec spec;
  WorkerId source;
};
struct BlobFailed {
  BlobKey key;
  Error error;
};

// Answers TakeSamples.
struct SamplesAnswered {
  LaneHandle lane = 0;
  LeaseOutcome outcome = LeaseOutcome::kLeased;
  std::vector<SampleRange> ranges;
  Error error;  // With kRefused.
};

// Answers AccumulateBatch.
struct BatchAnswered {
  LaneHandle lane = 0;
  uint64_t samples = 0;  // Those of all workers.
  bool closed = false;   // The round begins with what each worker has.
  Error error;           // Not kOk: the report was refused.
};

// The process cannot go on with this job (superseded, another lineage, refused for good).
struct Fatal {
  Error error;
};

// Left in good order: nothing is open and nothing will be sent.
struct Left {};

using Action =
    std::variant<OpenSession, CloseSession, OpenStream, Send, SendContribution, SendSupply,
                 SendBlob, KeepResult, KeepBlob, Deliver, FailRound, RoundRejected, RoundHeldUp,
                 JobPaused, ForgetLane, Refused, MembershipNow, BlobReady, BlobFailed,
                 SamplesAnswered, BatchAnswered, Fatal, Left, CloseStream>;

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_ACTION_H_
