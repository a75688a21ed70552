// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The control messages of a session, as plain values. The wire layer translates them to and from
// basin/v1; both cores consume and produce them and never see protobuf.
//
// Thread contract: plain values.

#ifndef BASIN_PROTOCOL_MESSAGES_H_
#define BASIN_PROTOCOL_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "protocol/bitmap.h"
#include "protocol/error.h"
#include "protocol/fields.h"
#include "protocol/ids.h"
#include "protocol/placement.h"
#include "protocol/round.h"
#include "protocol/shared_list.h"
#include "protocol/tensor.h"
#include "protocol/version.h"

namespace basin {

enum class LaneKind : uint8_t { kGradient = 0, kCall = 1 };

// ---------------------------------------------------------------- worker -> aggregator

// Settings that are equal on all workers of a job. Zero means the default: max_workers is the
// number of launched workers, min_workers = start_workers = max_workers.
struct JobSettings {
  uint32_t min_workers = 0;
  uint32_t max_workers = 0;
  uint32_t start_workers = 0;
  auto Fields() const { return std::tie(min_workers, max_workers, start_workers); }
};

// A value that the worker holds completely, but without a verdict.
struct StagedValue {
  RoundNumber round = 0;
  Ballot ballot;
  Ballot value_ballot;
  RoundValue value;
  auto Fields() const { return std::tie(round, ballot, value_ballot, value); }
};

// What a worker remembers of one lane.
struct LaneHistory {
  std::string name;
  LaneKind kind = LaneKind::kGradient;
  LaneIndex lane = 0;
  std::vector<TensorSpec> layout;       // In index order, as last seen.
  std::vector<VerdictRecord> verdicts;  // The last two, oldest first.
  RoundNumber last_verdict = 0;         // 0 before the first.
  uint64_t chain = 0;                   // After last_verdict.
  std::optional<StagedValue> staged;
  RoundNumber begun = 0;  // The round in flight, 0 when none.
  Ballot held_ballot;     // The ballot of the chunks in `held`, of the round last_verdict + 1.
  std::vector<ChunkRange> held;
  SampleProgress committed;  // As of last_verdict.
  SampleProgress leased;     // The positions that it holds, of the epoch that it last asked for.
  // What a checkpoint had committed of that epoch, if no verdict has committed anything of it.
  std::vector<SampleRange> resumed;
  // It has said LetGo after last_verdict, so the lane may be gone.
  bool let_go = false;
  auto Fields() const {
    return std::tie(name, kind, lane, layout, verdicts, last_verdict, chain, staged, begun,
                    held_ballot, held, committed, leased, resumed, let_go);
  }
};

inline constexpr uint32_t kMaxGroup = 1024;  // Workers of a group.

// Workers that reduce among themselves before one of them contributes, so they become members
// together.
struct JoinGroup {
  std::string name;   // Each of them reports the same; empty: there is no group.
  uint32_t size = 1;  // How many they are.
  auto Fields() const { return std::tie(name, size); }
};

struct Hello {
  JobName job;
  RunId run;  // Empty: the run in progress.
  WorkerId worker;
  Nonce nonce = 0;
  uint32_t protocol_version = kProtocolVersion;
  uint32_t contract_version = kContractVersion;  // That of the arithmetic.
  uint64_t features = 0;
  bool fresh = false;  // The launcher declares that the run is new.
  // The incarnation was welcomed before the run had any members. Without history it then certainly
  // received no verdict, whereas a restarted process may have forgotten one.
  bool from_start = false;
  // A member that joined with a donor and has begun no round since: its trainer may lack the state.
  bool lacks_state = false;
  JobSettings settings;
  Incarnation incarnation;  // Zero before the first welcome.
  Membership membership;    // The last membership that it received; generation zero: no history.
  std::vector<LaneHistory> lanes;
  uint32_t ranks = 1;  // The trainers that the worker stands for.
  JoinGroup group;
  std::string software;  // The versions that the worker runs, for operators.
  auto Fields() const {
    return std::tie(job, run, worker, nonce, protocol_version, contract_version, features, fresh,
                    from_start, lacks_state, settings, incarnation, membership, lanes, ranks, group,
                    software);
  }
};

// The model is built and state can be loaded: the worker may become a member. `step_label` and
// `state_hash` identify the state that it has loaded, and determine the donor of a new lineage.
struct Ready {
  uint64_t step_label = 0;
  uint64_t state_hash = 0;
  auto Fields() const { return std::tie(step_label, state_hash); }
};

// A round whose outcome the trainer waits for.
struct RoundWait {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  auto Fields() const { return std::tie(lane, round); }
};

struct Heartbeat {
  uint64_t progress = 0;  // Increases while the trainer works; shown in status.
  std::vector<RoundWait> waits;
  auto Fields() const { return std::tie(progress, waits); }
};

// Names a lane and tensors of it. Idempotent; answered by LaneLayout.
struct Register {
  std::string lane;
  LaneKind kind = LaneKind::kGradient;
  std::vector<TensorSpec> tensors;
  auto Fields() const { return std::tie(lane, kind, tensors); }
};

struct LayoutSeen {
  LaneIndex lane = 0;
  uint32_t version = 0;
  auto Fields() const { return std::tie(lane, version); }
};

struct Begin {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  RoundSpec spec;
  Counts counts;
  uint64_t step_label = 0;
  std::vector<SampleRange> samples;
  uint32_t ranks = 1;       // The trainers that the worker stands for.
  uint32_t represents = 0;  // Trainers of other workers, which withdraw.
  // How the worker and these others were reduced to the contribution; see Contributor.
  LocalReduction local_reduction = LocalReduction::kUnspecified;
  std::vector<WorkerId> reduced_with = {};
  bool compares_step = false;  // Whether step_label is compared with that of the others.
  // The epoch of which `samples` are positions that are leased to this worker. Absent: they are
  // only a label.
  std::optional<uint64_t> sample_epoch = std::nullopt;
  // What a call does: "SUM of f32 [2, 3]", or what its client says. All contributors must say the
  // same, or nobody gets a result. Empty: not compared.
  std::string call = {};
  // A hash of the numbers of the trainer's optimizer, which is compared with that of the others; 0:
  // not compared. Not in the spec, because a schedule changes it in each round.
  uint64_t optimizer = 0;
  // The numbers, for people. Empty if the aggregator has them already.
  std::vector<std::string> optimizer_numbers = {};
  // Trainers whose gradients of the round before, which went on without them, are in the
  // contribution as well; see WhyNotLate.
  uint32_t deferred = 0;
  // Those whose gradients of this round are in the contribution; the counts are the sums over them,
  // and over what is deferred.
  uint32_t trainers() const { return ranks + represents; }
  // What it counts in the divisor of an AVERAGE.
  uint32_t gradients() const { return trainers() + deferred; }
  auto Fields() const {
    return std::tie(lane, round, spec, counts, step_label, samples, ranks, represents,
                    local_reduction, reduced_with, compares_step, sample_epoch, call, optimizer,
                    optimizer_numbers, deferred);
  }
};

// Tensors that this worker will not push in this round.
struct Skip {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  std::vector<TensorIndex> tensors;
  auto Fields() const { return std::tie(lane, round, tensors); }
};

// Declares the contribution complete. Tensors that are not in `present`, and those from
// `layout_version` on, are skipped.
struct Commit {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  uint32_t layout_version = 0;
  Bitmap present;
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  Digest digest = 0;
  // The norm of the pushed tensors; infinite if a number is not finite. Absent for integers only.
  std::optional<double> squared_norm = std::nullopt;
  auto Fields() const {
    return std::tie(lane, round, layout_version, present, chunks, bytes, digest, squared_norm);
  }
};

struct Withdraw {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  std::string reason;
  bool without_results = false;  // They reach it another way; it requests with Need what it lacks.
  auto Fields() const { return std::tie(lane, round, reason, without_results); }
};

// The worker holds every result chunk of the prepared value, digest checked.
struct Staged {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  auto Fields() const { return std::tie(lane, round, ballot); }
};

// Acknowledges result frames: the ranges arrived and were checked.
struct ResultAck {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  std::vector<ChunkRange> ranges;
  auto Fields() const { return std::tie(lane, round, ballot, ranges); }
};

// Result chunks of the prepared value that the worker lacks.
struct Need {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;  // The value's.
  std::vector<ChunkRange> ranges;
  auto Fields() const { return std::tie(lane, round, ballot, ranges); }
};

struct Busy {
  std::string reason;
  absl::Duration expected;  // Zero: no longer busy.
  auto Fields() const { return std::tie(reason, expected); }
};

// Gives the incarnation up: the process must rejoin with state.
struct Abandon {
  auto Fields() const { return std::tuple<>(); }
};

// Has run out of data: counts for min_workers, contributes to no further round.
struct Finished {
  auto Fields() const { return std::tuple<>(); }
};

struct Leave {
  bool forget = false;  // The job, if no worker is left in it then.
  auto Fields() const { return std::tie(forget); }
};

// A blob can be broadcast: one tensor of a lane at a version.
struct BlobKey {
  std::string lane;
  std::string tensor;
  uint64_t version = 0;
  auto Fields() const { return std::tie(lane, tensor, version); }
};

// This worker can serve the value until the next version replaces it.
struct Announce {
  BlobKey key;
  TensorSpec spec;
  Digest digest = 0;
  auto Fields() const { return std::tie(key, spec, digest); }
};

// Asks for chunks of a value. `timeout` runs at the aggregator from arrival.
struct Get {
  BlobKey key;
  std::optional<TensorSpec> expected;
  std::optional<WorkerId> source;  // Only from this worker (root); absent: from any holder.
  uint32_t first = 0;
  uint32_t count = 0;  // 0: only the description of the value.
  absl::Duration timeout;
  auto Fields() const { return std::tie(key, expected, source, first, count, timeout); }
};

// Wants up to `count` positions of the epoch; answered by SamplesLeased. With the asking for a
// later epoch the worker gives up what it holds of the earlier one.
struct LeaseSamples {
  LaneIndex lane = 0;
  uint64_t request = 0;  // Repeated in the answer.
  SampleEpoch epoch;
  uint64_t count = 0;
  // What a checkpoint had committed of this epoch; it counts if nothing of the epoch has begun.
  std::vector<SampleRange> resumed;
  // In an epoch of steps: the positions of its share of the first step that begins at or after this
  // one. It has those of earlier steps.
  uint64_t after = 0;
  auto Fields() const { return std::tie(lane, request, epoch, count, resumed, after); }
};

// Gives back positions that the worker holds and will not use.
struct ReturnSamples {
  LaneIndex lane = 0;
  uint64_t epoch = 0;
  std::vector<SampleRange> ranges;
  auto Fields() const { return std::tie(lane, epoch, ranges); }
};

// The samples that the worker has accumulated gradients of, for a round that is to begin when the
// workers have `target` together; answered by BatchReported.
struct ReportBatch {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  uint64_t samples = 0;
  uint64_t target = 0;
  auto Fields() const { return std::tie(lane, round, samples, target); }
};

// A call lane that no round uses. From the aggregator: the job has many names, so whoever has the
// verdict of this round and does not need the lane says the same. When all workers that know the
// lane have said so, it is gone: its name is free, and its index is never used again.
struct LetGo {
  LaneIndex lane = 0;
  RoundNumber round = 0;  // The lane's last verdict; 0: it has none.
  auto Fields() const { return std::tie(lane, round); }
};

// The worker cannot open a data stream to a shard that holds chunks of its rounds, and has tried
// more than once. Sent again in each session as long as that lasts.
struct ShardUnreachable {
  ShardId shard = 0;
  std::string why;  // Empty: it has opened one again.
  auto Fields() const { return std::tie(shard, why); }
};

using ToAggregator =
    std::variant<Hello, Ready, Heartbeat, Register, LayoutSeen, Begin, Skip, Commit, Withdraw,
                 Staged, ResultAck, Need, Busy, Abandon, Finished, Leave, Announce, Get,
                 LeaseSamples, ReturnSamples, ReportBatch, LetGo, ShardUnreachable>;

// ---------------------------------------------------------------- aggregator -> worker

// The role of a worker in the job. Members belong to the generation; the others wait.
enum class Role : uint8_t { kJoiner = 0, kSpare = 1, kMember = 2 };

struct StartRound {
  std::string lane;
  LaneIndex index = 0;
  RoundNumber round = 0;
  uint64_t chain = 0;             // After round - 1: the start of the joiner's history.
  SampleProgress committed = {};  // After round - 1.
  RoundPlacement placement = {};  // For that round.
  auto Fields() const { return std::tie(lane, index, round, chain, committed, placement); }
};

enum class RoundPhase : uint8_t {
  kIdle = 0,      // No begin yet.
  kCollect = 1,   // Contributions arrive and are reduced.
  kPrepared = 2,  // The value is fixed; members stage it.
};

// Where an open round of a lane stands for the worker that is welcomed.
struct OpenRound {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  RoundPhase phase = RoundPhase::kIdle;
  Ballot ballot;
  std::vector<ChunkRange> have;  // Chunks of this worker that need not be pushed again.
  uint64_t window = 0;           // Bytes that may be unacknowledged at once.
  auto Fields() const { return std::tie(lane, round, phase, ballot, have, window); }
};

struct LaneLayout {
  LaneIndex lane = 0;
  std::string name;
  LaneKind kind = LaneKind::kGradient;
  uint32_t first = 0;  // Index of tensors[0]; the layout's version is first + tensors.size().
  SharedList<TensorSpec> tensors;
  RoundNumber round = 0;  // The lane's next or open round.
  uint64_t window = 0;
  RoundPlacement placement = {};  // For that round.
  auto Fields() const {
    return std::tie(lane, name, kind, first, tensors, round, window, placement);
  }
};

struct LastVerdicts {
  LaneIndex lane = 0;
  std::vector<VerdictRecord> verdicts;  // Oldest first.
  auto Fields() const { return std::tie(lane, verdicts); }
};

struct Welcome {
  SessionToken token = 0;
  Incarnation incarnation;
  RunId run;
  Term term = 0;
  Role role = Role::kJoiner;
  Membership membership;
  JobSettings settings;  // As resolved.
  uint64_t frame_bytes = 0;
  absl::Duration heartbeat;
  std::vector<LaneLayout> layouts;
  std::vector<OpenRound> open;
  std::vector<LastVerdicts> verdicts;
  uint32_t contract_version = kContractVersion;  // That of the arithmetic.
  uint64_t features = 0;                         // Those of Hello::features that are in use.
  bool job_runs = false;  // The job goes on without this worker until that is ready.
  // Those that rounds use, and the present one; empty while everything is on shard 0.
  std::vector<Placement> placements = {};
  auto Fields() const {
    return std::tie(token, incarnation, run, term, role, membership, settings, frame_bytes,
                    heartbeat, layouts, open, verdicts, contract_version, features, job_runs,
                    placements);
  }
};

// The membership changed outside a verdict (genesis, pause), or the receiver is not a member. As
// with a verdict, every member receives the donor's id: the donor serves its state, even if it has
// just joined; other new members load it; the rest keep their state. A new member also receives
// where each lane starts.
struct MembershipChanged {
  Membership membership;
  Role role = Role::kJoiner;
  std::optional<WorkerId> donor;  // Absent: every member keeps its state.
  std::vector<StartRound> start;  // Only for a new member.
  auto Fields() const { return std::tie(membership, role, donor, start); }
};

// Acknowledges frames of the data streams and sets how many bytes may be unacknowledged from now on
// at a shard, or at each. One message has both, because both hold at the same moment.
struct Credit {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  uint64_t window = 0;
  std::vector<ChunkRange> acked;    // Held by the aggregator, or of no further use to it.
  std::vector<ChunkRange> refused;  // Arrived but were not kept: push again when there is room.
  std::optional<ShardId> shard = std::nullopt;  // The window is that of this one; absent: of each.
  auto Fields() const { return std::tie(lane, round, window, acked, refused, shard); }
};

// Pull mode: push these chunks of the open round, and no others.
struct Pull {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  std::vector<ChunkRange> wanted;     // All that may be pushed now.
  std::vector<ChunkRange> discarded;  // Acknowledged before, no longer held.
  uint64_t window = 0;
  auto Fields() const { return std::tie(lane, round, wanted, discarded, window); }
};

// The round is reduced again by the remaining members.
struct AttemptRestarted {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  std::string reason;
  std::vector<ChunkRange> redo;  // Push these again; the rest is still held.
  uint64_t window = 0;
  auto Fields() const { return std::tie(lane, round, ballot, reason, redo, window); }
};

struct Prepared {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;
  Ballot value_ballot;
  RoundValue value;
  auto Fields() const { return std::tie(lane, round, ballot, value_ballot, value); }
};

// Send these result chunks, which you staged, to the aggregator.
struct Supply {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  Ballot ballot;  // The value's.
  std::vector<ChunkRange> ranges;
  auto Fields() const { return std::tie(lane, round, ballot, ranges); }
};

struct Verdict {
  LaneIndex lane = 0;
  VerdictRecord record;
  std::optional<WorkerId> donor;  // Serves the state to members that join with this verdict.
  RoundPlacement placement = {};  // For the round that follows.
  auto Fields() const { return std::tie(lane, record, donor, placement); }
};

// A request was refused; the session continues. The fields name the refused item if possible.
struct Rejected {
  Error error;
  std::optional<LaneIndex> lane;
  RoundNumber round = 0;
  // For a registration. Without a tensor: all tensors of the lane that have no index.
  std::string lane_name{};
  std::string tensor{};
  auto Fields() const { return std::tie(error, lane, round, lane_name, tensor); }
};

// The session is over; the error tells whether the client may open a new one.
struct Ended {
  Error error;  // kOk: as the worker asked (Leave).
  auto Fields() const { return std::tie(error); }
};

// Drain: of this worker (it is not among the next members), or of the whole aggregator.
struct Drain {
  bool service = false;
  auto Fields() const { return std::tie(service); }
};

// Send chunks of a value that you announced.
struct Ask {
  BlobKey key;
  uint32_t first = 0;
  uint32_t count = 0;
  auto Fields() const { return std::tie(key, first, count); }
};

// Describes a requested value; its chunks follow on the data streams.
struct BlobKnown {
  BlobKey key;
  TensorSpec spec;
  Digest digest = 0;
  WorkerId source;
  auto Fields() const { return std::tie(key, spec, digest, source); }
};

struct GetFailed {
  BlobKey key;
  Error error;
  auto Fields() const { return std::tie(key, error); }
};

// What waiting workers wait for, for their logs and errors: in a round, the late workers; with
// round 0, why the job is paused, or does not run yet or again.
struct HeldUp {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  std::string text;  // "worker b: to begin the round (last seen 5s ago)", or why the job does not
                     // go on; empty: it does.
  auto Fields() const { return std::tie(lane, round, text); }
};

enum class LeaseOutcome : uint8_t {
  kLeased = 0,
  kNoneNow = 1,  // Others hold what is left, or an earlier epoch has not ended.
  kEnded = 2,    // All of the epoch is committed, or the lane is at a later one.
  kRefused = 3,  // As the error says.
};

// Answers LeaseSamples. With request 0 it corrects a hello: `ranges` is all that the worker holds.
struct SamplesLeased {
  LaneIndex lane = 0;
  uint64_t request = 0;
  uint64_t epoch = 0;
  LeaseOutcome outcome = LeaseOutcome::kLeased;
  std::vector<SampleRange> ranges;   // With kLeased: ascending.
  std::vector<SampleRange> resumed;  // As in LaneHistory, whichever worker had the checkpoint.
  Error error = {};                  // With kRefused.
  auto Fields() const { return std::tie(lane, request, epoch, outcome, ranges, resumed, error); }
};

// Answers ReportBatch. Once a round is closed it stays so: each worker begins it with what it has.
struct BatchReported {
  LaneIndex lane = 0;
  RoundNumber round = 0;
  uint64_t samples = 0;  // Those of all workers.
  bool closed = false;
  Error error = {};  // Why the report was refused; kOk: it was not.
  auto Fields() const { return std::tie(lane, round, samples, closed, error); }
};

// The lane has no name any more. A worker that has begun a round of it meanwhile registers the name
// again, and sends that round as the first one of the new lane.
struct LaneGone {
  LaneIndex lane = 0;
  auto Fields() const { return std::tie(lane); }
};

// Placement, as a message: a shard was added or lost. One of a number that the worker knows has
// more shards that are lost, and replaces that at once, also for the rounds that use it. One of
// another number is used by the rounds that name it. Its receiver may forget those that no lane
// uses, but not the last one.

using ToWorker =
    std::variant<Welcome, MembershipChanged, LaneLayout, Credit, Pull, AttemptRestarted, Prepared,
                 Supply, Verdict, Rejected, Ended, Drain, Ask, BlobKnown, GetFailed, HeldUp,
                 SamplesLeased, BatchReported, LetGo, LaneGone, Placement>;

}  // namespace basin

#endif  // BASIN_PROTOCOL_MESSAGES_H_
