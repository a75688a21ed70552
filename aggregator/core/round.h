// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One round of one lane: its contributors, the chunks that have arrived, what is reduced, and how
// the value is settled. The job decides which workers are members.
//
// The table below has the phases of a round and the transitions between them. Round is what the
// decisions are made from: the members (Roster), the spec that they agree on (Agreement), how much
// they may send (FlowControl), the chunks of the present attempt (Attempt), the results that they
// have not acknowledged (HeldResults), and the chunks of a prepared value that they lack
// (Supplies). None of these parts knows another one, except that some use Roster.
//
// The decisions are functions: round_intake.h takes what members send of their contributions,
// round_members.h decides who contributes, round_attempt.h what is reduced, round_results.h who is
// sent results, round_settle.h how the value is settled, round_waits.h who is late, and
// round_late.h who is left out because of that.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_H_
#define BASIN_AGGREGATOR_CORE_ROUND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/agreement.h"
#include "aggregator/core/attempt.h"
#include "aggregator/core/flow_control.h"
#include "aggregator/core/held_results.h"
#include "aggregator/core/roster.h"
#include "aggregator/core/round_member.h"
#include "aggregator/core/supplies.h"
#include "protocol/layout.h"
#include "protocol/messages.h"
#include "protocol/transitions.h"

namespace basin::aggregator {

struct RoundScope;

enum class RoundInput : uint8_t {
  kOpen = 0,          // A member begins, withdraws or finishes.
  kAdopt = 1,         // Recovery adopts a value that was staged before.
  kRestart = 2,       // The next attempt begins.
  kReduced = 3,       // Every contribution is effective and reduced.
  kAbort = 4,         // There will be no result.
  kPrepareAgain = 5,  // More members have to stage.
  kRunAgain = 6,      // No member that holds the value is left.
};

struct RoundTransition {
  RoundPhase from;
  RoundInput input;
  RoundPhase to;
  const char* when;
  const char* what;  // What is done.
};

// A round exists once a member acts in the lane's next number or a recovery adopts a value. While
// it is kIdle, frames are parked. It ends when the job sends the verdict: every live member that
// takes part has staged the value at the current ballot, and no pause or rate limit holds it back.
inline constexpr RoundTransition kRoundTransitions[] = {
    // from              input                      to
    {RoundPhase::kIdle, RoundInput::kOpen, RoundPhase::kCollect,
     "the first begin, or a member withdraws or finishes without one",
     "each chunk that is whole is reduced, and its result is published"},
    {RoundPhase::kIdle, RoundInput::kAdopt, RoundPhase::kPrepared, "a value is adopted in recovery",
     "Prepared"},
    {RoundPhase::kIdle, RoundInput::kRestart, RoundPhase::kIdle,
     "a member that was left out of the call sends a frame or skip",
     "next attempt, at a higher ballot: AttemptRestarted"},

    {RoundPhase::kCollect, RoundInput::kRestart, RoundPhase::kCollect,
     "a contributor is lost, withdraws or is late after a chunk with its part was reduced; a "
     "digest is wrong; members join in a pause, or begin a call that was continuing without them",
     "next attempt, at a higher ballot: AttemptRestarted; every reduced chunk is reduced again"},
    {RoundPhase::kCollect, RoundInput::kReduced, RoundPhase::kPrepared,
     "every contribution is effective and reduced", "Prepared(COMMITTED)"},
    {RoundPhase::kCollect, RoundInput::kAbort, RoundPhase::kPrepared,
     "no contributor is left; a loss under policy `abort`; a deadlock; a reduction that cannot be "
     "computed; contributions that are not of a whole step of a global batch",
     "Prepared(ABORTED)"},

    {RoundPhase::kPrepared, RoundInput::kPrepareAgain, RoundPhase::kPrepared,
     "members join in a pause",
     "Prepared with the same value at a higher ballot; joiners receive it once they have the "
     "state"},
    {RoundPhase::kPrepared, RoundInput::kRunAgain, RoundPhase::kCollect,
     "no live worker holds the value, and this aggregator prepared it itself",
     "next attempt: every contribution is pushed and reduced again"},
};
static_assert(IsUnambiguous(kRoundTransitions));

// A round waits for this from a member.
struct Awaited {
  enum class What : uint8_t {
    kNothing = 0,
    kBegin = 1,
    kBeginCall = 2,  // To begin the call or to wait elsewhere: it is undecided; see Presence.
    kState = 3,      // To load the job's state and begin.
    kTensor = 4,
    kCommit = 5,
    kResults = 6,  // To take its results.
    kStage = 7,
  };
  What what = What::kNothing;
  TensorIndex tensor = 0;                     // With kTensor: the first incomplete one.
  absl::Time since = absl::InfiniteFuture();  // Infinite while no other member waits for it.
};

// The worker that completed its contribution last. The others waited only for it, from `since` to
// `until`.
struct Straggler {
  WorkerId worker;
  absl::Time since = absl::InfinitePast();  // InfinitePast if no other worker completed one.
  absl::Time until = absl::InfinitePast();
  bool waited() const { return since != absl::InfinitePast(); }
};

// Whether chunks are pulled in layout order, and whether this has to be planned again.
enum class PullMode : uint8_t { kOff = 0, kPlanned = 1, kPlanAgain = 2 };

struct Round {
  // `members` are in byte order of the id.
  Round(RoundNumber number, Ballot ballot, std::vector<RoundMember> members, const Layout& layout,
        const Shares& shares, absl::Time now);

  RoundPhase phase() const { return machine.state(); }
  // All changes of the phase go through here. Returns whether the table has the input in this
  // phase; if not, nothing changes.
  bool Apply(const RoundScope& scope, RoundInput input);
  const RowsTaken& taken() const { return machine.taken(); }
  bool begun() const { return phase() != RoundPhase::kIdle; }
  const std::vector<RoundMember>& members() const { return roster.members(); }
  // Returns whether a live member has the slot.
  bool Has(Slot slot) const { return roster.Has(slot); }
  bool HasBegun(Slot slot) const { return roster.At(slot).contribution.begun(); }
  // Returns whether the member takes part: it is neither undecided nor left out.
  bool TakesPart(Slot slot) const { return roster.At(slot).there(); }
  bool AnyoneAlive() const { return roster.alive() > 0; }
  // Returns whether the round collects, and a contributor has not begun it.
  bool AwaitsBegin() const {
    return phase() == RoundPhase::kCollect && roster.begun() < roster.contributors();
  }
  // Returns whether the value is prepared, and every live member that receives it has staged it. A
  // call in which no live member takes part waits for no member. False if no member is alive.
  bool Settled() const;
  // Returns a contribution of several trainers that the value has, or will have as things stand; an
  // empty one if there is none. Its worker may be lost.
  Contributor CountedNode() const;
  // Returns whether a value that was staged for this round at `ballot` is newer than what recovery
  // knew.
  bool IsNews(const Ballot& ballot) const { return !adopted.has_value() || *adopted < ballot; }
  // Returns whether no live member can have all bytes of the value. The holders of an adopted value
  // are known. The holders of another value are not, because a member may have staged it without
  // having reported that; but all members that request a chunk lack it, and so does the aggregator.
  bool ValueIsLost() const;
  // Returns whether no live member holds the adopted value any more. Another worker may have its
  // verdict, so the round must not be run again.
  bool Orphaned() const;
  bool pull_mode() const { return pull != PullMode::kOff; }
  // The chunks that members have to push may have changed.
  void PlanAgain() {
    if (pull_mode()) pull = PullMode::kPlanAgain;
  }
  // Returns how many members have more to send than there is room for.
  uint32_t WithoutCredit() const;
  uint64_t parked_bytes() const;

  RoundNumber number;
  Ballot ballot;
  Ballot value_ballot;  // The same as `ballot` unless the round is prepared.
  StateMachine<kRoundTransitions> machine;
  RoundValue value;
  Roster roster;
  Agreement agreement;
  FlowControl flow;
  PullMode pull = PullMode::kOff;
  Attempt attempt;
  HeldResults held;
  Supplies supplies;
  std::vector<WorkerId> dropped;  // The workers whose complete contributions were dropped.
  // With a late policy that leaves out: since when there has been a quorum, when those who are
  // missing are left out, and how late contributions were; see round_late.h.
  absl::Time quorum_at = absl::InfiniteFuture();
  absl::Time leave_out_at = absl::InfiniteFuture();
  std::vector<absl::Duration> lateness;
  bool reconnect = false;  // The members must report again, on new sessions, what they have of it.
  // The ballot at which recovery found the value staged; absent if the round adopted none. This
  // aggregator does not have its bytes.
  std::optional<Ballot> adopted;
  // These decide nothing, so Fields() omits them: when the round left kIdle, its straggler, and
  // what the only contributor that was left still owed when all others had arrived.
  absl::Time opened;
  Straggler straggler;
  Awaited last_owes;

  auto Fields() const {
    return std::tie(number, ballot, value_ballot, machine, value, roster, agreement, flow, pull,
                    attempt, held, supplies, dropped, quorum_at, leave_out_at, lateness, reconnect,
                    adopted);
  }
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_H_
