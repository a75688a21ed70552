// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Decides what to do with the hellos that arrive after the aggregator lost its memory.
//
// The job resumes after the newest verdict that any worker with memory reports. A worker that is
// missing may already have a verdict of a value staged for the next round, so the recovery adopts
// the staged value with the highest ballot. If no worker staged one, no verdict was sent, and the
// round runs again. A process without memory knows nothing about verdicts, so it never counts
// towards the majority that has to be back.
//
// The same holds for the lane of a call, unless it is over. A worker that has let it go and one
// that was lost before may not know that all others have let it go since, so that it is gone. Its
// name may be that of another lane by now.
//
// The decision depends on which workers are back:
//
//   - every member of the newest list, with memory: recover;
//   - every member of the list in the state file, with memory or not: recover, or fresh if none has
//     memory;
//   - the window is over, more than half of the newest list is back with memory, and a worker with
//     the state is back: recover;
//   - every member of the newest list, where no worker has received a verdict or staged a value,
//     and those without memory never received the list: fresh, because nothing has happened;
//   - no worker with memory, no members in the state file, and the window is over: fresh;
//   - the window is over otherwise: halted, until the missing workers come, or an operator (or
//     policy `any`) decides to go on with those that are back.
//
// Thread contract: pure functions over plain values.

#ifndef BASIN_AGGREGATOR_CORE_RECOVERY_H_
#define BASIN_AGGREGATOR_CORE_RECOVERY_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "aggregator/core/config.h"
#include "aggregator/core/histories.h"
#include "aggregator/core/note.h"
#include "protocol/messages.h"

namespace basin::aggregator {

enum class RecoveryStep : uint8_t { kWait = 0, kHalt = 1, kFresh = 2, kRecover = 3 };

struct RecoveredLane {
  std::string name;
  LaneKind kind = LaneKind::kGradient;
  LaneIndex lane = 0;
  std::vector<TensorSpec> layout;
  RoundNumber last_verdict = 0;
  uint64_t chain = 0;
  std::vector<VerdictRecord> verdicts;
  SampleProgress committed;            // As of last_verdict.
  std::optional<StagedValue> adopted;  // For round last_verdict + 1.
  std::set<WorkerId> holders;          // The workers that staged it.
  auto Fields() const {
    return std::tie(name, kind, lane, layout, last_verdict, chain, verdicts, committed, adopted,
                    holders);
  }
};

// The most that the ledger of the lane's samples needs, with what these workers hold.
uint64_t LedgerNeed(const RecoveredLane& lane, const Histories& histories);

struct RecoveryDecision {
  RecoveryStep step = RecoveryStep::kWait;
  std::string reason;
  NoteCause cause = NoteCause::kUnspecified;  // With kRecover.
  std::vector<WorkerId> members;              // The workers with current state, in rank order.
  std::vector<WorkerId> conflicts;            // Workers whose history is not the job's.
  // The workers of the newest list whose history makes the decision valid; none if it was forced.
  std::set<WorkerId> counted;
  std::vector<RecoveredLane> lanes;
};

// A value that a recovery adopted and that was lost with all its holders before other workers had
// its bytes. Its verdict may have been sent, so no other value may take its place.
struct Orphan {
  std::string lane;
  RoundNumber round = 0;
  Ballot ballot;       // The highest ballot at which it may have been staged.
  uint64_t chain = 0;  // The chain after its verdict.
  std::set<WorkerId> holders;
  auto Fields() const { return std::tie(lane, round, ballot, chain, holders); }
};

// "round 7 of lane g may have a verdict, and its result was lost with w-3"
std::string Describe(const Orphan& orphan);

// Returns whether this decision goes on from the orphan's verdict, or adopts it or a later value
// again.
bool Explains(const RecoveryDecision& decision, const Orphan& orphan);

// A recovery decides from these facts and the hellos.
struct RecoveryFacts {
  std::optional<SavedState> saved;
  // The list with which this process led the job when the recovery began. Members on this list that
  // no other worker remembers may have gone on past what the others remember.
  std::optional<Membership> led;
  // A worker that can explain one of these becomes a member again, even if a later generation does
  // not list it, because no other worker can report the outcome of the round.
  std::vector<Orphan> orphans;
  uint32_t max_workers = 1;
  bool window_over = false;  // The recovery window has passed.
  bool forced = false;  // An operator, or policy `any`, goes on with the workers that are back.
};

// `hellos` has the latest hello of each worker.
RecoveryDecision DecideRecovery(const std::map<WorkerId, Hello>& hellos, const RecoveryFacts& facts,
                                const Rules& rules);

// Returns whether this hello remembers a generation.
inline bool HasHistory(const Hello& hello) { return hello.membership.generation.term > 0; }

// The highest term that the hello mentions.
Term HighestTerm(const Hello& hello);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_RECOVERY_H_
