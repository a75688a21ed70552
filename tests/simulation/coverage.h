// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How often what happened, over one run or many: evidence that the seeds reach what they are meant
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

inline constexpr uint32_t kNoteKinds = static_cast<uint32_t>(aggregator::NoteKind::kDraining) + 1;

// What is neither a note of the core, nor a message, nor a fault.
enum class Sight : uint8_t {
  kRecoveredEveryone = 0,  // Every member was back.
  kRecoveredMajority,
  kRecoveredForced,
  kRecoveredFresh,    // Nobody remembered the run.
  kAdoptedCommitted,  // A value was prepared again at a higher ballot.
  kAdoptedAborted,
  kCrashBetweenVerdicts,  // The aggregator died after some workers were told, before others.
  kResultResent,          // On another stream, because its own was lost.
  kManyTensors,           // A frame with chunks of several tensors.
  kPushResent,            // A chunk that was pushed before, in the same round.
  kStaleReduction,        // A reduction ended after its attempt.
  kStateLoaded,           // A joiner took over a donor's state.
  kStateBroadcast,        // The same, through the broadcast mailbox.
  kStateLost,             // A joiner found nobody who had the state.
  kAttemptDropped,        // An effective contribution was dropped by a later attempt.
  kOutcomeUnknown,
  kRetriedAfterAbort,
  kExcusedFork,
  kForkFenced,  // LINEAGE_CONFLICT.
  kSuperseded,
  kOperatorRecovered,  // HALTED until somebody decided.
  kRefusedCall,        // A call of the trainer came at the wrong time.
  kJoinedCall,         // A worker that joined in a pause was counted in the call that was open.
  kLeftOutOfCall,      // Another one waited for something else.
  kCallWithout,        // A call was made without a worker that joined during it.
  kCallPostponed,      // The same, and the worker had begun it too late.
};
inline constexpr uint32_t kSights = static_cast<uint32_t>(Sight::kCallPostponed) + 1;

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

// The rows of each that were taken in a run.
struct TableRows {
  std::array<aggregator::RowsTaken, kTables> taken;

  void See(const aggregator::Job& job);
  void Add(const TableRows& other);
  // The name of a table one of whose machines refused an input; null for none.
  const char* Refused() const;
};

struct Coverage {
  std::array<uint64_t, kNoteKinds> notes = {};
  std::array<uint64_t, kFaultKinds> faults = {};
  std::array<uint64_t, kSights> sights = {};
  std::array<uint64_t, std::variant_size_v<ToAggregator>> to_aggregator = {};
  std::array<uint64_t, std::variant_size_v<ToWorker>> to_worker = {};
  // In how many runs each row was taken.
  std::array<std::array<uint64_t, aggregator::RowsTaken::kMostRows>, kTables> rows = {};
  uint64_t runs = 0;
  uint64_t steps = 0;  // Those of the cores.
  uint64_t verdicts = 0;

  void Saw(Sight sight) { ++sights[static_cast<uint32_t>(sight)]; }
  void Saw(const TableRows& run);
  void Add(const Coverage& other);
};

// A table of all counters, with what never happened first.
std::string Describe(const Coverage& coverage);

// What never happened, of all that can happen within the limits of a simulated run; empty when all
// of it did.
std::string Missing(const Coverage& coverage);

const char* ToAggregatorName(size_t index);
const char* ToWorkerName(size_t index);

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_COVERAGE_H_
