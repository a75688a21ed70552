// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A seed decides the following before the run begins: the job, its model, its limits, the network,
// and a list of faults. Each seed switches a random subset of fault kinds on ("swarm testing",
// Groce et al., 2012), so that each kind also occurs without the noise of all others.
//
// The faults in the list are independent of each other, so a failing run can be shrunk by leaving
// some of them out.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_TESTS_SIMULATION_SCENARIO_H_
#define BASIN_TESTS_SIMULATION_SCENARIO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "aggregator/core/config.h"
#include "protocol/messages.h"
#include "tests/simulation/event_queue.h"

namespace basin::simulation {

enum class FaultKind : uint8_t {
  // The network.
  kCutStream = 0,   // One data connection is reset.
  kCutSession,      // The session's connection is reset.
  kCutAll,          // All connections of a worker are reset.
  kHalfOpen,        // All connections of a worker die silently; each side notices later.
  kHalfOpenStream,  // The same for one data connection.
  kPartition,       // Nothing from or to a worker passes for a while, then everything does.
  kOneWay,          // The same in one direction.
  // Worker processes.
  kWorkerCrash,    // It starts again late, without memory.
  kWorkerRestart,  // It starts again soon, without memory.
  kWorkerStop,     // SIGSTOP, and later SIGCONT.
  kTwin,           // A second process with the same worker id.
  kJoin,           // One more worker.
  kExitReported,   // A crash that the launcher reports.
  // The aggregator.
  kAggregatorCrash,
  kAggregatorStop,
  kTwoAggregators,  // A second one starts; some workers move to it, and the first one lives on.
  kStateFileFails,
  // Commands.
  kEvict,  // A healthy worker is evicted.
  kDrainWorker,
  kDrainService,
  kSuspend,
  kForceRecovery,
  // Trainers.
  kWithdraw,
  kMismatch,  // It begins with another op, or another optimizer.
  kCorrupt,   // Its commit has another digest than its bytes.
  kBusy,      // A long evaluation between steps.
  kDeadline,  // It waits with a deadline that passes.
  kAbandon,   // The same, and it gives up.
  kLeave,
  kFinish,
  // Shards. Only drawn where there are some, and by draws of their own.
  kShardCrash,
  kShardStop,         // SIGSTOP, and later SIGCONT.
  kShardLinkCut,      // Its link to the aggregator breaks.
  kShardLinkStalled,  // Nothing passes on it for a while, then everything does.
  kShardUnreachable,  // A worker cannot reach it for a while.
  kShardCut,          // A worker's connections to it are reset.
  kShardAdded,
  kShardSlow,
  kShardDrain,  // SIGTERM; it starts again when it has ended.
};
// Those that every seed may draw.
inline constexpr uint32_t kCommonFaultKinds = static_cast<uint32_t>(FaultKind::kFinish) + 1;
inline constexpr uint32_t kFaultKinds = static_cast<uint32_t>(FaultKind::kShardDrain) + 1;

const char* FaultKindName(FaultKind kind);

// When a fault strikes.
enum class Trigger : uint8_t {
  kTime = 0,  // At time `at`.
  kHello,     // From here on: when this happens for the `at`-th time in the run.
  kWelcome,
  kBegin,
  kPush,
  kCommit,
  kReduce,
  kResult,
  kPrepared,
  kStaged,
  kVerdict,
  kStep,  // When the worker begins a step, the `at`-th or a later one.
};
inline constexpr uint32_t kTriggers = static_cast<uint32_t>(Trigger::kStep) + 1;

const char* TriggerName(Trigger trigger);

struct Fault {
  FaultKind kind = FaultKind::kCutStream;
  Trigger trigger = Trigger::kTime;
  SimTime at = 0;        // A time or a count.
  uint32_t worker = 0;   // The worker that it strikes, if any.
  SimTime duration = 0;  // How long a stop, a partition or a death lasts.
  uint64_t salt = 0;     // Selects the stream, the direction, or the way to die.
};

// For example: "WorkerCrash of w2 at the 3rd Prepared, for 1.2 s"
std::string Describe(const Fault& fault);

struct LaneModel {
  std::string name;
  LaneKind kind = LaneKind::kGradient;
  std::vector<TensorSpec> tensors;
};

// Bugs planted in the cores or around them, to show that the checkers find them.
enum class PlantedBug : uint8_t {
  kNone = 0,
  kLoseAck,           // A lost Credit, so that the worker waits forever.
  kWrongResult,       // One worker gets other bytes with a matching digest.
  kCountTwice,        // A contribution is added twice.
  kLeaveOut,          // A contribution is left out of one chunk.
  kStaleBytes,        // A chunk of another round replaces that of this round.
  kForgetToFree,      // Result buffers are not freed.
  kSilentEviction,    // The note of an eviction is lost.
  kSendEarly,         // A verdict is sent before all have staged (Rules::two_phases).
  kRecoverWithFirst,  // Rules::recover_with_first.
  kCountMemoryless,   // Rules::memoryless_counts.
  kAdoptWithoutPrepare,
  kStageWithoutState,  // Rules::stages_without_state.
  kForgetFrame,        // Rules::forgets_lost_frames.
  kSendElsewhere,      // Rules::resends_to_anyone.
  kAcknowledgeTwice,   // Rules::counts_acks_twice.
  kLoseEarly,          // Rules::loses_at_once.
  kKeepSamples,        // Rules::keeps_lost_samples.
  kFreeCounted,        // Rules::frees_counted_samples.
  kPartsOfSteps,       // Rules::commits_parts_of_steps.
  kLateUnstaged,       // Rules::leaves_out_of_staging.
  kDifferentCalls,     // Rules::reduces_different_calls.
  kCountLate,          // Rules::counts_late.
  kForgetDeferred,     // Rules::forgets_deferred.
  kDeferCounted,       // A trainer adds to a contribution what was counted in the round before.
  kDropDeferred,       // A trainer drops what was late, though its next contribution may have it.
  kKeepLostChunks,     // Rules::keeps_lost_chunks.
  kShardStaleBytes,    // A chunk of another round replaces that of this round, on a shard.
};
inline constexpr uint32_t kPlantedBugs = static_cast<uint32_t>(PlantedBug::kShardStaleBytes) + 1;

const char* PlantedBugName(PlantedBug bug);

inline constexpr uint32_t kMostShards = 8;

struct Scenario {
  uint64_t seed = 0;

  uint32_t workers = 0;  // Launched at the start.
  JobSettings settings;
  uint32_t rounds = 0;  // Per lane.
  std::vector<LaneModel> lanes;
  bool one_lane_at_a_time = false;  // One lane follows the other, instead of all at once.
  // So many calls before each step of the first lane, under names that take turns. All other lanes
  // are names of calls, more than the job keeps, so that idle ones are let go. 0: all lanes stay.
  uint32_t calls = 0;
  // The trainers are scripts: a process that starts again begins with the first lane, wherever the
  // other workers are.
  bool scripts = false;
  RoundSpec spec;
  uint32_t skip_percent = 0;
  uint32_t most_ranks = 1;      // A worker stands for 1 to this many trainers, which change.
  bool groups = false;          // Each two workers join together, as ranks of one node.
  bool partial_models = false;  // A worker may lack a tensor or register it late.
  bool broadcast = false;       // Trainers announce values, and joiners get them.
  bool checkpoints = false;     // A restarted trainer loads the last state of its predecessor.

  uint64_t epoch_samples = 0;      // In an epoch of a gradient lane; 0: the rounds name none.
  uint64_t batch = 0;              // A contribution names at most so many.
  uint64_t global_batch = 0;       // A round is of so many; 0: of what the contributions name.
  uint32_t break_off_percent = 0;  // How often a loop goes on to the next epoch too early.
  uint64_t target_batch = 0;       // Of the rounds of gradient lanes; 0: they have none.
  uint32_t late_percent = 0;       // How often a trainer is late for a round.
  // The most rounds from which a joiner withdraws before it has the state; 0: it loads that first.
  uint32_t rounds_ahead = 0;

  uint32_t streams = 1;
  SimTime latency = 0;  // The least latency of a connection.
  SimTime jitter = 0;
  SimTime step = 0;  // The time that a trainer computes between rounds.
  bool slow_reducer = false;
  bool batches = false;  // Half of the frames travel with the session of their stream.

  aggregator::Config config;

  std::vector<Fault> faults;
  SimTime heal_at = 0;  // When faults stop.
  PlantedBug bug = PlantedBug::kNone;

  uint32_t shards = 0;                 // Beside the aggregator, at the start.
  bool old_clients = false;            // Every other worker has a client that does not know shards.
  SimTime shards_start_at = 0;         // Those after the first one start until then.
  std::vector<uint64_t> shard_memory;  // What each has; 0: it does not say.
};

// `late`: workers that are late are left out. `names`: there are calls under many names. Some seeds
// draw these anyway. `shards`: there are shards, which strikes other faults, too; no other seed has
// any.
Scenario DrawScenario(uint64_t seed, bool late = false, bool names = false, bool shards = false);

// Describes the run in a few lines: its size, its limits and its faults.
std::string Describe(const Scenario& scenario);

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_SCENARIO_H_
