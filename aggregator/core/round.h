// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One round of one lane: its contributors, the chunks that have arrived, what is reduced, and how
// the value is settled. The job decides which workers are members.
//
// The table below has the phases of a round and the transitions between them. Round makes the
// decisions. Its parts hold what it decides from: the members (Roster), the spec that they agree on
// (Agreement), how much they may send (FlowControl), the chunks of the present attempt (Attempt),
// the results that they have not acknowledged (HeldResults), and the chunks of a prepared value
// that they lack (Supplies). None of these parts knows another one, except that some use Roster.
//
// Thread contract: a plain value; the methods append actions and have no other effect.

#ifndef BASIN_AGGREGATOR_CORE_ROUND_H_
#define BASIN_AGGREGATOR_CORE_ROUND_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/agreement.h"
#include "aggregator/core/attempt.h"
#include "aggregator/core/config.h"
#include "aggregator/core/event.h"
#include "aggregator/core/flow_control.h"
#include "aggregator/core/held_results.h"
#include "aggregator/core/layout.h"
#include "aggregator/core/memory.h"
#include "aggregator/core/roster.h"
#include "aggregator/core/round_member.h"
#include "aggregator/core/supplies.h"
#include "aggregator/core/workers.h"
#include "protocol/messages.h"
#include "protocol/transitions.h"

namespace basin::aggregator {

struct Lane;

// A round sees this of its surroundings during one Step.
struct RoundScope {
  absl::Time now;
  const Config& config;
  std::vector<Action>& actions;
  JobId job;
  const JobName& job_name;
  LaneIndex lane;
  const std::string& lane_name;
  const Layout& layout;
  const LaneMemory& memory;
  const Workers& workers;
  bool paused;                                // A pause of the job holds back this round.
  bool stands;                                // The job's last recovery stands; see Standing.
  const std::optional<RoundSpec>& last_spec;  // The spec of the lane's last committed round.
  const Membership& membership;               // The present members of the job.
  const std::vector<Lane>& lanes;             // All lanes of the job.
  LossPolicy loss_policy;
  LatePolicy late_policy;
};

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
     "a contributor is lost or withdraws after a chunk with its part was reduced; a digest is "
     "wrong; members join in a pause, or begin a call that was continuing without them",
     "next attempt, at a higher ballot: AttemptRestarted; every reduced chunk is reduced again"},
    {RoundPhase::kCollect, RoundInput::kReduced, RoundPhase::kPrepared,
     "every contribution is effective and reduced", "Prepared(COMMITTED)"},
    {RoundPhase::kCollect, RoundInput::kAbort, RoundPhase::kPrepared,
     "no contributor is left; a loss under policy `abort`; a deadlock; a reduction that cannot be "
     "computed",
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

class Round {
 public:
  // `members` are in byte order of the id.
  Round(RoundNumber number, Ballot ballot, std::vector<RoundMember> members, const Layout& layout,
        absl::Time now);

  RoundNumber number() const { return number_; }
  RoundPhase phase() const { return machine_.state(); }
  Ballot ballot() const { return ballot_; }
  Ballot value_ballot() const { return value_ballot_; }
  const RoundValue& value() const { return value_; }
  const std::vector<RoundMember>& members() const { return roster_.members(); }
  // The ballot at which recovery found the value staged; absent if the round adopted none.
  const std::optional<Ballot>& adopted() const { return adopted_; }
  // Returns whether a value that was staged for this round at `ballot` is newer than what recovery
  // knew.
  bool IsNews(const Ballot& ballot) const { return !adopted_.has_value() || *adopted_ < ballot; }
  // Returns whether no live member holds the adopted value any more. Another worker may have its
  // verdict, so the round must not be run again.
  bool Orphaned() const;
  bool pull_mode() const { return pull_ != PullMode::kOff; }
  // Returns whether a live member has the slot.
  bool Has(Slot slot) const { return roster_.Has(slot); }
  bool begun() const { return phase() != RoundPhase::kIdle; }
  bool HasBegun(Slot slot) const { return roster_.At(slot).contribution.begun(); }
  // Returns whether the member takes part: it is neither undecided nor away.
  bool TakesPart(Slot slot) const { return roster_.At(slot).there(); }
  // Returns a contribution of several trainers that the value has, or will have as things stand; an
  // empty one if there is none. Its worker may be lost.
  Contributor CountedNode() const;

  // Returns whether the value is prepared, and every live member that receives it has staged it. A
  // call in which no live member takes part waits for no member. False if no member is alive.
  bool Settled() const;
  bool AnyoneAlive() const { return roster_.alive() > 0; }

  // Returns true once if the members must report again, on new sessions, what they have of this
  // round.
  bool WantsReconnect() { return std::exchange(reconnect_, false); }

  // ---- from the members. REQUIRES: Has(slot).
  void OnBegin(const RoundScope& scope, Slot slot, const Begin& begin);
  void OnFrame(const RoundScope& scope, Slot slot, const FrameReceived& frame);
  void OnSkip(const RoundScope& scope, Slot slot, const Skip& skip);
  void OnCommit(const RoundScope& scope, Slot slot, const Commit& commit);
  // `reason`: empty if its gradients are in the contribution of another worker. `without_results`:
  // they reach it another way.
  void OnWithdraw(const RoundScope& scope, Slot slot, const std::string& reason,
                  bool without_results = false);
  // The member is out of data and will not begin this round. REQUIRES: the member has not begun it,
  // and the round is not prepared.
  void OnFinished(const RoundScope& scope, Slot slot);
  void OnResultAck(const RoundScope& scope, Slot slot, const ResultAck& ack);
  void OnNeed(const RoundScope& scope, Slot slot, const Need& need);
  void OnSupply(const RoundScope& scope, Slot slot, const FrameReceived& frame);
  void OnStaged(const RoundScope& scope, Slot slot, const Staged& staged);

  // ---- from the runner and the job
  void OnReduceDone(const RoundScope& scope, const ReduceDone& done);
  void Lose(const RoundScope& scope, Slot slot, const std::string& reason);
  void Admit(const RoundScope& scope, std::vector<RoundMember> joiners);
  // Replaces the members of a round that none of them has begun. REQUIRES: phase() is kIdle.
  void Reform(const RoundScope& scope, std::vector<RoundMember> members);
  void Adopt(const RoundScope& scope, const StagedValue& staged, const std::set<Slot>& holders);
  void GrowLayout(const RoundScope& scope);
  // Returns how many members have more to send than there is room for.
  uint32_t WithoutCredit() const;

  // Continues the call without an undecided member. Its trainer waits for something else, possibly
  // for the other members, so the call must not wait for it.
  void LeaveOut(const RoundScope& scope, Slot slot);

  // Returns whether the round collects, and a contributor has not begun it.
  bool AwaitsBegin() const {
    return phase() == RoundPhase::kCollect && roster_.begun() < roster_.contributors();
  }
  // Aborts the round for this `reason`: its members wait for each other. REQUIRES: AwaitsBegin().
  void EndDeadlock(const RoundScope& scope, const std::string& reason);

  // The member's trainer now has the state before this round, or will never need it.
  void OnState(const RoundScope& scope, Slot slot);
  // The job's last recovery stands from now on.
  void OnStanding(const RoundScope& scope);

  // The member's client now knows the lane.
  void OnRegistered(const RoundScope& scope, Slot slot);

  // The lane has more memory: every live member receives its larger window.
  void MemoryGrew(const RoundScope& scope);
  // The member's client now knows the tensors from index `before` on.
  void LayoutSeen(const RoundScope& scope, Slot slot, uint32_t before);
  // Sends what a member needs on a new session, after its welcome.
  void Resume(const RoundScope& scope, Slot slot, const LaneHistory* history);
  // Does all that the round can do now, for example after a pause.
  void Advance(const RoundScope& scope);

  OpenRound Describe(const RoundScope& scope, Slot slot) const;

  // Names late members, and appends those that the job must give up to `overdue`.
  void CheckDeadlines(const RoundScope& scope, std::vector<std::pair<Slot, std::string>>& overdue);
  absl::Time NextDeadline(const Config& config, LatePolicy late_policy,
                          const Workers& workers) const;

  // Returns what the round waits for from the member.
  Awaited Awaits(const Layout& layout, const RoundMember& member) const;
  // Returns the first member that the round waits for, and what it lacks, for errors: "worker w-7:
  // tensor layer3.weight". Empty if the round waits for no member.
  std::string WaitsFor(const Layout& layout) const;
  // Returns the same for one member; empty if the round does not wait for it.
  std::string WaitsFor(const Layout& layout, const RoundMember& member) const;
  // Returns whether the others wait until the member's process takes or stages results. Each step
  // of that may take one lease.
  bool Owes(const RoundMember& member) const;

  // For observers: when the round left kIdle, and its straggler.
  absl::Time opened() const { return opened_; }
  const Straggler& straggler() const { return straggler_; }
  // The number of times that a member had to wait for room.
  uint64_t credit_stalls() const { return flow_.stalls(); }
  const RowsTaken& taken() const { return machine_.taken(); }

  uint64_t parked_bytes() const;
  uint64_t result_bytes() const { return held_.bytes(); }

  auto Fields() const {
    return std::tie(number_, ballot_, value_ballot_, machine_, value_, roster_, agreement_, flow_,
                    pull_, attempt_, held_, supplies_, dropped_, reconnect_, adopted_);
  }

 private:
  // Whether chunks are pulled in layout order, and whether this has to be planned again.
  enum class PullMode : uint8_t { kOff = 0, kPlanned = 1, kPlanAgain = 2 };

  // round_waits.cc
  bool AwaitsContribution(const RoundMember& member) const;
  absl::Time AwaitedSince(const RoundMember& member) const;
  absl::Time LeaseOf(const Config& config, const RoundMember& member) const;
  absl::Time EvictionOf(const Config& config, const Workers& workers,
                        const RoundMember& member) const;
  std::string DescribeLate(const RoundScope& scope, const RoundMember& member) const;
  std::string WaitsElsewhere(const RoundScope& scope, const RoundMember& member) const;
  void TellThoseWhoWait(const RoundScope& scope, const std::vector<std::string>& late) const;

  // round_intake.cc
  void UpdateBlocked(const RoundScope& scope, RoundMember& member) {
    flow_.Review(scope.memory, scope.now, roster_, member);
  }
  void ReviewRoom(const RoundScope& scope, RoundMember& member);
  bool RefuseTensor(const RoundScope& scope, RoundMember& member, TensorIndex index);
  struct Intake;
  void OnRange(const RoundScope& scope, RoundMember& member, const ChunkRange& range,
               const Digest* digests, Intake& intake);
  void MarkSkipped(const RoundScope& scope, RoundMember& member, TensorIndex tensor);
  void SkipWhatIsNotCommitted(const RoundScope& scope, RoundMember& member);
  void CheckEffective(const RoundScope& scope, RoundMember& member);

  // round_members.cc
  void OnPart(const RoundScope& scope, RoundMember& member);
  bool Refuse(const RoundScope& scope, RoundMember& member, ErrorCode code,
              const std::string& text);
  bool RemoveContribution(const RoundScope& scope, RoundMember& member, ContributionInput input);
  void AfterRemoval(const RoundScope& scope, bool restart, const std::string& reason);
  void RemoveEarlierLives(const RoundScope& scope, const RoundMember& member);

  // round_attempt.cc
  void Compare(const RoundScope& scope);
  void CompareSteps(const RoundScope& scope);
  void StartAttemptNow(const RoundScope& scope);
  void Restart(const RoundScope& scope, const std::string& reason,
               const RoundMember* refetched = nullptr);
  std::vector<ChunkRange> TakeBack(const RoundScope& scope, RoundMember& member,
                                   const std::vector<uint32_t>& redo, bool all);
  bool IsWhole(TensorIndex tensor, uint32_t flat) const;
  void CheckReady(TensorIndex tensor, uint32_t flat);
  void Rescan(const RoundScope& scope);
  void PumpReduce(const RoundScope& scope);

  // round_pull.cc
  // The chunks that members have to push may have changed.
  void PlanAgain() {
    if (pull_ == PullMode::kPlanned) pull_ = PullMode::kPlanAgain;
  }
  bool Stuck() const;
  void EnterPull(const RoundScope& scope);
  void PlanPull(const RoundScope& scope);

  // round_settle.cc
  void TryPrepare(const RoundScope& scope);
  void PrepareCommitted(const RoundScope& scope);
  void ReportPlan(const RoundScope& scope);
  void PrepareAborted(const RoundScope& scope, AbortCause cause, const std::string& reason);
  void SendPrepared(const RoundScope& scope, RoundInput input);
  void TellPrepared(const RoundScope& scope, RoundMember& member);
  bool MayStage(const RoundScope& scope, const RoundMember& member) const;
  void MayStageNow(const RoundScope& scope, RoundMember& member);
  void Publish(const RoundScope& scope, const ChunkRanges& ranges);
  // Sends held result chunks to one worker.
  void PublishTo(const Worker& worker, const RoundScope& scope,
                 const std::vector<ChunkRange>& ranges) const;
  void PublishMissing(const RoundScope& scope, RoundMember& member);
  void SendNoResults(const RoundScope& scope, RoundMember& member);
  void SendResults(const RoundScope& scope, RoundMember& member);
  void KeepAReceiver(const RoundScope& scope, const RoundMember& leaving);
  void Acknowledge(const RoundScope& scope, RoundMember& member, uint32_t flat);
  void AcknowledgeAll(const RoundScope& scope, RoundMember& member);
  bool ValueIsLost() const;
  void AskSupply(const RoundScope& scope);
  void RunAgain(const RoundScope& scope, const std::string& reason);
  RoundFacts Facts(const RoundScope& scope) const;

  // Valid until the next action is added.
  Note& AddNote(const RoundScope& scope, NoteKind kind, const WorkerId& worker,
                const std::string& text) const;
  void Reject(const RoundScope& scope, const RoundMember& member, ErrorCode code,
              const std::string& text) const;
  void SendTo(const RoundScope& scope, const RoundMember& member, ToWorker message,
              bool can_wait = false) const;

  // All changes of the phase go through here. Returns whether the table has the input in this
  // phase; if not, nothing changes.
  bool Apply(const RoundScope& scope, RoundInput input) {
    const bool opens = phase() == RoundPhase::kIdle;
    if (!machine_.Apply(input)) return false;
    if (opens && begun()) opened_ = scope.now;
    return true;
  }

  RoundNumber number_;
  Ballot ballot_;
  Ballot value_ballot_;  // The same as ballot_ unless the round is prepared.
  StateMachine<kRoundTransitions> machine_;
  RoundValue value_;
  Roster roster_;
  Agreement agreement_;
  FlowControl flow_;
  PullMode pull_ = PullMode::kOff;
  Attempt attempt_;
  HeldResults held_;
  Supplies supplies_;
  std::vector<WorkerId> dropped_;  // The workers whose complete contributions were dropped.
  bool reconnect_ = false;         // See WantsReconnect.
  std::optional<Ballot> adopted_;  // See adopted(). This aggregator does not have its bytes.
  // These decide nothing, so Fields() omits them.
  absl::Time opened_;
  Straggler straggler_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_H_
