// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Counts what happened in one run or in many, as evidence that the seeds reach what they are meant
// to reach.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_SIMULATION_COVERAGE_H_
#define BASIN_TESTS_SIMULATION_COVERAGE_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "aggregator/core/action.h"
#include "aggregator/core/job.h"
#include "protocol/transitions.h"
#include "tests/simulation/scenario.h"

namespace basin::simulation {

inline constexpr uint32_t kNoteKinds =
    static_cast<uint32_t>(aggregator::NoteKind::kShardUnreachable) + 1;

// Events that are neither notes of the core nor messages nor faults.
enum class Sight : uint8_t {
  kRecoveredEveryone = 0,  // Every member was back.
  kRecoveredMajority,
  kRecoveredForced,
  kRecoveredFresh,    // The run was taken for a new one.
  kAdoptedCommitted,  // A value was prepared again at a higher ballot.
  kAdoptedAborted,
  kCrashBetweenVerdicts,  // The aggregator died after it had sent a verdict to only some workers.
  kResultResent,          // On another stream, because its own was lost.
  kPushedInPieces,        // A tensor's last chunks came after its first ones were pushed.
  kManyTensors,           // A frame with chunks of several tensors.
  kPushResent,            // A chunk was pushed once more in the same round.
  kStaleReduction,        // A reduction ended after its attempt.
  kStateLoaded,           // A joiner took over a donor's state.
  kStateBroadcast,        // The same, through the broadcast mailbox.
  kStateServed,           // A script would serve its state to those who have joined.
  kStateLost,             // A joiner found no worker that had the state.
  kAttemptDropped,        // A later attempt dropped an effective contribution.
  kOutcomeUnknown,
  kRetriedAfterAbort,
  kExcusedFork,
  kForkFenced,  // LINEAGE_CONFLICT.
  kSuperseded,
  kOperatorRecovered,  // The job was HALTED until an operator decided.
  kRefusedCall,        // A call of the trainer came at the wrong time.
  kJoinedCall,         // An open call counted a worker that joined in a pause.
  kLeftOutOfCall,      // An open call left such a worker out.
  kCallWithout,        // A call ended without a worker that joined during it.
  kCallPostponed,      // The same, and the worker had begun it too late.
  kSeveralRanks,       // A member had several ranks.
  kCarried,            // A contribution was for trainers of other workers, too.
  kTookResults,        // A worker was given the results that another one held.
  kRequestedResults,   // A worker without results requested those that it lacked.
  kRanksChanged,       // A generation with the same members had other ranks.
  kJoinedAlone,        // The rest of a worker's group did not come in time.
  kSamplesCommitted,   // A round committed samples.
  kSamplesNoneNow,     // A worker asked for samples while others held what was left.
  kStepCommitted,      // A round committed a whole step of a global batch.
  kStepAgain,          // A round was aborted because samples of its step were missing.
  kEpochEnded,         // A verdict committed the last sample of an epoch.
  kBatchClosed,        // A batch had its samples.
  kEpochBrokenOff,     // A trainer asked for the next epoch before this one had ended.
  kCaughtUp,           // A joiner applied the rounds from which it had withdrawn before.
  kUnreachable,        // A worker was lost because its machine was not heard.
  kFruitlessJoins,     // A worker was refused because it was lost again and again.
  kLateBegun,          // A worker was left out of a round that it had begun.
  kLateUnbegun,        // A worker was left out of a round before it began it.
  kLateAgain,          // A worker was left out of two rounds in a row.
  kLateCounted,        // A worker was counted again after it had been left out.
  kMadeRoom,           // An idle call gave its place to another one.
  kDifferentCalls,     // A round was aborted because its workers made different calls.
  kOtherOptimizer,     // A worker was refused because of the numbers of its optimizer.
  kDeferred,           // What was late was counted with the next contribution of its worker.
  kDeferredLost,       // It was not, because that one was not counted either.
  kNameLetGo,          // A worker forgot a call, because all had let its name go.
  kLetGoLater,         // A worker was asked to let a name go that it still needed.
  kLetGoVoid,          // It had another verdict of the call before it could answer.
  kNameAgain,          // A call began under a name that had been let go.
  kBegunAnew,          // A call was in flight when its name went, and began anew.
  kPlaced,             // A frame arrived at a shard.
  kMisplaced,          // One arrived at a shard that does not hold its chunks.
  kParkedLost,         // Parked chunks were lost with a shard, and pushed again.
  kResultsLost,        // Results were lost with a shard, and reduced again in the same attempt.
  kContributorLost,    // With a shard, what a lost worker could not push again.
  kPreparedLost,       // Results of a prepared value were lost with a shard, and supplied.
  kValueLost,          // The same, and nobody could have staged the value.
  kShardReleased,      // A shard drained, and no round needed it any more.
  kDrainOverdue,       // One ended while rounds needed it, in its drain.
};
inline constexpr uint32_t kSights = static_cast<uint32_t>(Sight::kDrainOverdue) + 1;

const char* SightName(Sight sight);

// The transition tables of the aggregator's core.
enum class Table : uint8_t {
  kJob = 0,
  kWorker,
  kPause,
  kRound,
  kContribution,
  kPresence,
  kStaging,
};
inline constexpr uint32_t kTables = static_cast<uint32_t>(Table::kStaging) + 1;

// The rows of each table that a run took.
struct TableRows {
  std::array<RowsTaken, kTables> taken;

  void See(const aggregator::Job& job);
  void Add(const TableRows& other);
  // The name of a table of which a machine refused an input; null for none.
  const char* Refused() const;
};

struct Coverage {
  std::array<uint64_t, kNoteKinds> notes = {};
  std::array<uint64_t, kFaultKinds> faults = {};
  std::array<uint64_t, kSights> sights = {};
  std::array<uint64_t, std::variant_size_v<ToAggregator>> to_aggregator = {};
  std::array<uint64_t, std::variant_size_v<ToWorker>> to_worker = {};
  // The number of runs in which each row was taken.
  std::array<std::array<uint64_t, RowsTaken::kMostRows>, kTables> rows = {};
  uint64_t runs = 0;
  uint64_t steps = 0;  // Steps of the cores.
  uint64_t verdicts = 0;

  void Saw(Sight sight) { ++sights[static_cast<uint32_t>(sight)]; }
  void Saw(const TableRows& run);
  void Add(const Coverage& other);
};

// A table of all counters.
std::string Describe(const Coverage& coverage);

// Lists what never happened, among all that can happen in a simulated run; empty if all of it did.
std::string Missing(const Coverage& coverage);

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_COVERAGE_H_
