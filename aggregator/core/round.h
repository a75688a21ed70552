// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One round of one lane: who contributes, which chunks are there, what is reduced, and how the
// value is settled. The job decides who is a member; a round receives that decision.
//
// Its phases and how they follow each other are in the table below. What it decides is here; what
// it knows is in parts that do not know each other: its members (Roster), what they agree on
// (Agreement), what they may send (FlowControl), what is reduced (Attempt), what of it is held for
// whom (HeldResults), and who lacks what of a prepared value (Supplies).
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

// What a round may see of its surroundings during one Step.
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
  bool paused;                                // Below min_workers, or suspended.
  bool stands;                                // The job's last recovery; see Promises.
  const std::optional<RoundSpec>& last_spec;  // That of the lane's last committed round.
  const Membership& membership;               // That of the job.
  const std::vector<Lane>& lanes;             // Those of the job, to say what a late worker does.
  LossPolicy loss_policy;
  LatePolicy late_policy;
};

enum class RoundInput : uint8_t {
  kOpen = 0,          // A member begins or withdraws.
  kAdopt = 1,         // Recovery adopts a value that was staged before.
  kRestart = 2,       // What was reduced has to be reduced again.
  kReduced = 3,       // Every contribution is effective and reduced.
  kAbort = 4,         // There will be no result.
  kPrepareAgain = 5,  // The members that stage are others.
  kRunAgain = 6,      // Nobody is left who holds the value.
};

struct RoundTransition {
  RoundPhase from;
  RoundInput input;
  RoundPhase to;
  const char* when;
  const char* what;  // Is done.
};

// A round exists from the first frame, skip or begin for the lane's next number on; frames are
// parked while it is kIdle. It is over when every live member has STAGED at the current ballot and
// the job is not paused: then the job tells the verdict.
inline constexpr RoundTransition kRoundTransitions[] = {
    // from              input                      to
    {RoundPhase::kIdle, RoundInput::kOpen, RoundPhase::kCollect, "the first begin or withdrawal",
     "each chunk that is whole is reduced, and its result published"},
    {RoundPhase::kIdle, RoundInput::kAdopt, RoundPhase::kPrepared, "a value is adopted in recovery",
     "Prepared"},
    {RoundPhase::kIdle, RoundInput::kRestart, RoundPhase::kIdle,
     "a frame comes from a member that was left out of the call",
     "next attempt, at a higher ballot: AttemptRestarted"},

    {RoundPhase::kCollect, RoundInput::kRestart, RoundPhase::kCollect,
     "a contributor is lost or withdraws, and a chunk that it was part of has been reduced; a "
     "digest is wrong; members join in a pause, or begin a call that was going on without them",
     "next attempt, at a higher ballot: AttemptRestarted; every reduced chunk is done again"},
    {RoundPhase::kCollect, RoundInput::kReduced, RoundPhase::kPrepared,
     "every contribution is effective and reduced", "Prepared(COMMITTED)"},
    {RoundPhase::kCollect, RoundInput::kAbort, RoundPhase::kPrepared,
     "nobody is left to contribute; loss under `abort`; a deadlock; a reduction cannot be made",
     "Prepared(ABORTED)"},

    {RoundPhase::kPrepared, RoundInput::kPrepareAgain, RoundPhase::kPrepared,
     "members join in a pause",
     "Prepared again: the same value, at a higher ballot; to those who join, once they have the "
     "state"},
    {RoundPhase::kPrepared, RoundInput::kRunAgain, RoundPhase::kCollect,
     "nobody is left who holds the value (of one that recovery adopted, the job recovers instead)",
     "run again"},
};
static_assert(IsUnambiguous(kRoundTransitions));

// What a round waits for from a member.
struct Awaited {
  enum class What : uint8_t {
    kNothing = 0,
    kBegin = 1,
    kBeginCall = 2,  // Or to wait elsewhere: it joined while the call was open.
    kState = 3,      // To load the job's state and begin.
    kTensor = 4,
    kCommit = 5,
    kResults = 6,  // To take them.
    kStage = 7,
  };
  What what = What::kNothing;
  TensorIndex tensor = 0;                     // With kTensor: the first incomplete one.
  absl::Time since = absl::InfiniteFuture();  // Infinite while nobody has to wait for it.
};

// "worker-3 was the last one": who completed its contribution last, and how long the others waited
// for that alone.
struct Straggler {
  WorkerId worker;
  absl::Time since = absl::InfinitePast();  // When the one before it had; never: there was none.
  absl::Time until = absl::InfinitePast();
  bool waited() const { return since != absl::InfinitePast(); }
};

class Round {
 public:
  // `members` in byte order of the id. An adopted round starts prepared; see Adopt.
  Round(RoundNumber number, Ballot ballot, std::vector<RoundMember> members, const Layout& layout,
        absl::Time now);

  RoundNumber number() const { return number_; }
  RoundPhase phase() const { return machine_.state(); }
  Ballot ballot() const { return ballot_; }
  Ballot value_ballot() const { return value_ballot_; }
  const RoundValue& value() const { return value_; }
  const std::vector<RoundMember>& members() const { return roster_.members(); }
  // The ballot at which recovery found the value staged; nothing if the round was reduced here.
  const std::optional<Ballot>& adopted() const { return adopted_; }
  // Whether a value that was staged for this round at `ballot` is newer than what recovery knew.
  bool IsNews(const Ballot& ballot) const { return !adopted_.has_value() || *adopted_ < ballot; }
  // A value that recovery adopted, so that its verdict may have been told, and that none of the
  // members who are left holds.
  bool Orphaned() const;
  bool pull_mode() const { return pull_ != PullMode::kOff; }
  // Whether a live member has the slot.
  bool Has(Slot slot) const { return roster_.Has(slot); }
  bool begun() const { return phase() != RoundPhase::kIdle; }
  bool HasBegun(Slot slot) const { return roster_.At(slot).contribution.begun(); }
  // Whether it neither may begin elsewhere nor has done so.
  bool TakesPart(Slot slot) const { return roster_.At(slot).there(); }

  // Prepared, and every live member that gets the value has staged it. A call that nobody who is
  // alive takes part in waits for nobody. False when nobody is alive.
  bool Settled() const;
  bool AnyoneAlive() const { return roster_.alive() > 0; }

  // The members must say what they have in this round once more, on new sessions. True once.
  bool WantsReconnect() { return std::exchange(reconnect_, false); }

  // ---- from the members; the member of `slot` belongs to the round and is not gone
  void OnBegin(const RoundScope& scope, Slot slot, const Begin& begin);
  void OnFrame(const RoundScope& scope, Slot slot, const FrameReceived& frame);
  void OnSkip(const RoundScope& scope, Slot slot, const Skip& skip);
  void OnCommit(const RoundScope& scope, Slot slot, const Commit& commit);
  void OnWithdraw(const RoundScope& scope, Slot slot, const std::string& reason);
  // It is out of data, and has not begun this round: nothing is missed of it. REQUIRES: the round
  // is not prepared.
  void OnFinished(const RoundScope& scope, Slot slot);
  void OnResultAck(const RoundScope& scope, Slot slot, const ResultAck& ack);
  void OnNeed(const RoundScope& scope, Slot slot, const Need& need);
  void OnSupply(const RoundScope& scope, Slot slot, const FrameReceived& frame);
  void OnStaged(const RoundScope& scope, Slot slot, const Staged& staged);

  // ---- from the runner and the job
  void OnReduceDone(const RoundScope& scope, const ReduceDone& done);
  void Lose(const RoundScope& scope, Slot slot, const std::string& reason);
  void Admit(const RoundScope& scope, std::vector<RoundMember> joiners);
  // Sets the members of a round that nobody has begun. REQUIRES: phase() is kIdle.
  void Reform(const RoundScope& scope, std::vector<RoundMember> members);
  void Adopt(const RoundScope& scope, const StagedValue& staged, const std::set<Slot>& holders);
  void GrowLayout(const RoundScope& scope);
  // How many members have more to send than there is room for.
  uint32_t WithoutCredit() const;

  // The member joined while the call was open, and its trainer waits for something else: the others
  // may be what it waits for there, so the call goes on without it.
  void LeaveOut(const RoundScope& scope, Slot slot);

  // Whether the round collects, and somebody whose contribution it waits for has not begun it.
  bool AwaitsBegin() const {
    return phase() == RoundPhase::kCollect && roster_.begun() < roster_.contributors();
  }
  // Nobody will begin it any more, for this `reason`. REQUIRES: AwaitsBegin().
  void EndDeadlock(const RoundScope& scope, const std::string& reason);

  // The member's trainer has the state of before this round now, or will never need it.
  void OnState(const RoundScope& scope, Slot slot);
  // The job's last recovery stands from now on.
  void OnStanding(const RoundScope& scope);

  // The member's client knows the lane now.
  void OnRegistered(const RoundScope& scope, Slot slot);

  // The lane was given more memory: everyone hears of its larger window.
  void MemoryGrew(const RoundScope& scope);
  void LayoutSeen(const RoundScope& scope, Slot slot, uint32_t before);
  // Sends what a worker must hear on a new session, after its welcome.
  void Resume(const RoundScope& scope, Slot slot, const LaneHistory* history);
  // Goes on where something outside the round held it up (pause, memory).
  void Advance(const RoundScope& scope);

  OpenRound Describe(const RoundScope& scope, Slot slot) const;

  // Names who is waited for and gives up members that are overdue.
  void CheckDeadlines(const RoundScope& scope, std::vector<std::pair<Slot, std::string>>& overdue);
  absl::Time NextDeadline(const Config& config, LatePolicy late_policy,
                          const Workers& workers) const;

  // What the round waits for from the member.
  Awaited Awaits(const Layout& layout, const RoundMember& member) const;
  // "worker w-7: tensor layer3.weight", for errors; empty when nobody is waited for.
  std::string WaitsFor(const Layout& layout) const;
  // The same of one member; empty when nothing is waited for of it.
  std::string WaitsFor(const Layout& layout, const RoundMember& member) const;
  // Whether the member's process has to take or stage results before the others can go on. It has
  // one lease for each step of that.
  bool Owes(const RoundMember& member) const;

  // For observers: when the first member began it, and who was last.
  absl::Time opened() const { return opened_; }
  const Straggler& straggler() const { return straggler_; }
  // How often a member had more to send than there was room for, and had to wait.
  uint64_t credit_stalls() const { return flow_.stalls(); }
  const RowsTaken& taken() const { return machine_.taken(); }

  uint64_t parked_bytes() const;
  uint64_t result_bytes() const { return held_.bytes(); }

  auto Fields() const {
    return std::tie(number_, ballot_, value_ballot_, machine_, value_, roster_, agreement_, flow_,
                    pull_, attempt_, held_, supplies_, dropped_, reconnect_, adopted_);
  }

 private:
  // Whether chunks are pulled in layout order, and the plan of that is to be made anew.
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
  // What somebody has to push may have changed.
  void PlanAgain() {
    if (pull_ == PullMode::kPlanned) pull_ = PullMode::kPlanAgain;
  }
  bool Stuck() const;
  void EnterPull(const RoundScope& scope);
  void PlanPull(const RoundScope& scope);

  // round_settle.cc
  void TryPrepare(const RoundScope& scope);
  void PrepareCommitted(const RoundScope& scope);
  void PrepareAborted(const RoundScope& scope, const std::string& reason);
  void SendPrepared(const RoundScope& scope, RoundInput input);
  void TellPrepared(const RoundScope& scope, RoundMember& member);
  bool MayStage(const RoundScope& scope, const RoundMember& member) const;
  void MayStageNow(const RoundScope& scope, RoundMember& member);
  void Publish(const RoundScope& scope, const ChunkRanges& ranges);
  // Held result chunks for one session.
  void PublishTo(const Worker& worker, const RoundScope& scope,
                 const std::vector<ChunkRange>& ranges) const;
  void PublishMissing(const RoundScope& scope, RoundMember& member);
  void Acknowledge(const RoundScope& scope, RoundMember& member, uint32_t flat);
  void AcknowledgeAll(const RoundScope& scope, RoundMember& member);
  bool ValueIsLost() const;
  void AskSupply(const RoundScope& scope);
  void RunAgain(const RoundScope& scope, const std::string& reason);
  RoundFacts Facts(const RoundScope& scope) const;

  void AddNote(const RoundScope& scope, NoteKind kind, const WorkerId& worker,
               const std::string& text) const;
  void Reject(const RoundScope& scope, const RoundMember& member, ErrorCode code,
              const std::string& text) const;
  void SendTo(const RoundScope& scope, const RoundMember& member, ToWorker message) const;

  // The only way to change the phase. Returns whether the table has the input in this phase; if
  // not, nothing changes.
  bool Apply(const RoundScope& scope, RoundInput input) {
    const bool opens = phase() == RoundPhase::kIdle;
    if (!machine_.Apply(input)) return false;
    if (opens && begun()) opened_ = scope.now;
    return true;
  }

  RoundNumber number_;
  Ballot ballot_;
  Ballot value_ballot_;  // While collecting: the same as ballot_.
  StateMachine<kRoundTransitions> machine_;
  RoundValue value_;
  Roster roster_;
  Agreement agreement_;
  FlowControl flow_;
  PullMode pull_ = PullMode::kOff;
  Attempt attempt_;
  HeldResults held_;
  Supplies supplies_;
  std::vector<WorkerId> dropped_;  // Whose contributions were complete, and are not in the value.
  bool reconnect_ = false;         // See WantsReconnect.
  std::optional<Ballot> adopted_;  // See adopted(). The aggregator never had its bytes.
  // Nothing is decided by these, so they are none of the fields that are compared.
  absl::Time opened_;
  Straggler straggler_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_ROUND_H_
