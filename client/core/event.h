// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Everything that can happen to the client's core: messages and frames from the network, and calls
// of the trainer.
//
// The network names lanes and tensors by the indexes that the aggregator gave, the trainer by its
// own handles, which it has from the moment of registration.
//
// Events of a session that the core closed, or that went down, are never given to it afterwards.
//
// Thread contract: plain values.

#ifndef BASIN_CLIENT_CORE_EVENT_H_
#define BASIN_CLIENT_CORE_EVENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "protocol/messages.h"

namespace basin::client {

// Makes values of this namespace comparable wherever they are nested, see protocol/fields.h.
using basin::operator==;
using basin::operator!=;

using ChunkDigests = absl::InlinedVector<Digest, 4>;

// A lane and a tensor as this process knows them: in the order of registration, from 0. Stable for
// the life of the process, whatever index the aggregator gives.
using LaneHandle = uint32_t;
using TensorHandle = uint32_t;

// ---- network

struct SessionUp {};  // The session stream is open; the core sends its hello.
// The session stream could not be opened or has ended, and every data stream has been closed with
// it; no StreamDown follows.
struct SessionDown {
  std::string reason;
};
struct StreamUp {
  uint32_t stream = 0;
};
// Data stream `stream` could not be opened or has ended; its unacknowledged frames may be lost. The
// reason is a part of a sentence.
struct StreamDown {
  uint32_t stream = 0;
  std::string reason = {};
};
struct MessageReceived {
  ToWorker message;
};
// A result frame arrived completely; `digests` were computed from its bytes. The runner holds the
// bytes until Step returns, and keeps the ones that KeepResult names.
struct ResultReceived {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  ChunkRanges ranges;
  ChunkDigests digests;
};
struct BlobReceived {
  BlobKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  ChunkDigests digests;
};

// ---- trainer

// The model is built and state can be loaded. After an eviction it must be declared again.
struct DeclareReady {
  uint64_t step_label = 0;
  uint64_t state_hash = 0;
};
// Handles are given in order: a lane not named before gets the next LaneHandle, each new tensor
// name the next TensorHandle of that lane.
struct RegisterTensors {
  std::string lane;
  LaneKind kind = LaneKind::kGradient;
  std::vector<TensorSpec> tensors;
};
struct BeginRound {
  LaneHandle lane = 0;
  RoundSpec spec;
  Counts counts;
  uint64_t step_label = 0;
  std::vector<SampleRange> samples;
  uint32_t represents = 0;  // Trainers of other workers whose gradients are in this contribution.
  // How this worker and these others were reduced to the contribution; see Contributor.
  LocalReduction local_reduction = LocalReduction::kUnspecified;
  std::vector<WorkerId> reduced_with = {};
  uint32_t ranks = 1;  // The core sets it: the trainers that the worker stands for now.
  bool compares_step = false;
  // Its payloads lie in memory that the aggregator reads, so no link carries them.
  bool in_place = false;
  // The epoch of which `samples` are positions. Absent: they are only a label.
  std::optional<uint64_t> sample_epoch = std::nullopt;
  std::string call = {};  // What an unnamed call does; see Begin::call.
  // A hash of these numbers of the trainer's optimizer, one in each line; 0: they are not compared.
  uint64_t optimizer = 0;
  std::vector<std::string> optimizer_numbers = {};
  uint32_t deferred = 0;  // See Begin.
};
// The tensor's bytes are final until the round has ended. `digest` is the sum over its blocks.
struct PushTensor {
  LaneHandle lane = 0;
  TensorHandle tensor = 0;
  Digest digest = 0;
  // Infinite when a number is not finite. Absent: integers have none.
  std::optional<double> squared_norm = std::nullopt;
  // The first chunks, which can be sent. The others, digest and norm follow with PushMore. Absent:
  // all chunks.
  std::optional<uint32_t> chunks = std::nullopt;
};
// Many at once, so that small ones share frames. If one of them cannot be pushed, none is.
struct PushTensors {
  LaneHandle lane = 0;
  std::vector<PushTensor> tensors;  // All in this lane.
};
// More chunks of tensors that were pushed in part. Ignored for a tensor that was not, or of which
// all chunks are here.
struct PushMore {
  struct Part {
    TensorHandle tensor = 0;
    uint32_t chunks = 0;  // That can be sent now; more than before.
    // Those of the tensor, if these are all its chunks.
    Digest digest = 0;
    std::optional<double> squared_norm;
  };
  LaneHandle lane = 0;
  std::vector<Part> parts;
};
struct SkipTensor {
  LaneHandle lane = 0;
  TensorHandle tensor = 0;
};
// Tensors neither pushed nor skipped are skipped.
struct CommitRound {
  LaneHandle lane = 0;
};
struct WithdrawRound {
  LaneHandle lane = 0;
  std::string reason;
  bool without_results = false;  // They reach the worker another way.
};
// No more results reach the worker another way: those that it lacks are requested.
// REQUIRES: the round was withdrawn.
struct RequestResults {
  LaneHandle lane = 0;
};
// The trainer waits for the lane's round, which it has committed or withdrawn; at `deadline` it
// gets OUTCOME_UNKNOWN. Nothing happens if the round has already ended.
struct WaitRound {
  LaneHandle lane = 0;
  absl::Time deadline = absl::InfiniteFuture();
};
// Gives up all rounds in flight, and with them this incarnation: the worker rejoins with state.
struct AbandonRounds {};
// Why the trainer does something else, and for how long; zero: it is over.
struct SetBusy {
  std::string reason;
  absl::Duration expected;
};
// The trainers that the worker stands for from the next begin on, and the number of this process
// among them.
struct SetRanks {
  uint32_t ranks = 1;
  uint32_t local_rank = 0;
};
struct Progress {};  // The trainer did something; shown in status.
// Out of data: contributes to no further round.
struct Finish {};
// The trainer leaves at the end of its step. It waits for no round and no value of a paused job,
// because the members that the job lacks may never come.
struct WillLeave {};
struct LeaveJob {
  bool forget = false;  // See Leave.
};
// This process can serve the value, until it announces a newer version of the same tensor.
struct AnnounceBlob {
  BlobKey key;
  TensorSpec spec;
  Digest digest = 0;
};
// This process stops serving the value.
struct StopServing {
  std::string lane;
  std::string tensor;
};
// Answered by BlobReady or BlobFailed.
struct GetBlob {
  BlobKey key;
  std::optional<TensorSpec> expected;
  std::optional<WorkerId> source;
  absl::Time deadline = absl::InfiniteFuture();
};

// Leases up to `count` positions of the epoch; answered by SamplesAnswered. A later epoch than
// before gives up the positions that the worker holds of that.
struct TakeSamples {
  LaneHandle lane = 0;
  SampleEpoch epoch;
  uint64_t count = 0;
};
// Positions that the trainer will not use. Those that the worker does not hold are ignored.
struct GiveBackSamples {
  LaneHandle lane = 0;
  uint64_t epoch = 0;
  std::vector<SampleRange> ranges;
};
// What a checkpoint had committed, before the first lease of its epoch.
struct ResumeSamples {
  LaneHandle lane = 0;
  SampleProgress committed;
};

// Reports the samples that the trainer has accumulated gradients of for its next round, which is to
// have `target` samples of all workers; answered by BatchAnswered.
struct AccumulateBatch {
  LaneHandle lane = 0;
  uint64_t samples = 0;
  uint64_t target = 0;
};

struct Tick {};

using Event =
    std::variant<Tick, SessionUp, SessionDown, StreamUp, StreamDown, MessageReceived,
                 ResultReceived, BlobReceived, DeclareReady, RegisterTensors, BeginRound,
                 PushTensor, PushTensors, PushMore, SkipTensor, CommitRound, WithdrawRound,
                 RequestResults, WaitRound, AbandonRounds, SetBusy, SetRanks, Progress, Finish,
                 WillLeave, LeaveJob, AnnounceBlob, StopServing, GetBlob, TakeSamples,
                 GiveBackSamples, ResumeSamples, AccumulateBatch>;

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_EVENT_H_
