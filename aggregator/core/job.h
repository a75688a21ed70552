// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One training job: its workers, its lanes, their rounds and its membership.
//
// The table below has the states of a job and the transitions between them.
//
// A running job is paused while fewer than min_workers members are left, or while an operator
// suspends it. A pause holds back the verdicts of the rounds for which PausedIn is true. Members
// change at once before the first round, in a pause, and after every member has finished. Otherwise
// they change with a verdict: of a gradient lane while no other gradient lane is open, or of any
// lane if the job has no gradient lane.
//
// Thread contract: a plain value; the methods append actions and have no other effect.

#ifndef BASIN_AGGREGATOR_CORE_JOB_H_
#define BASIN_AGGREGATOR_CORE_JOB_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "aggregator/core/agreed_settings.h"
#include "aggregator/core/config.h"
#include "aggregator/core/event.h"
#include "aggregator/core/evidence.h"
#include "aggregator/core/forming.h"
#include "aggregator/core/generations.h"
#include "aggregator/core/lanes.h"
#include "aggregator/core/memory.h"
#include "aggregator/core/notice.h"
#include "aggregator/core/pace.h"
#include "aggregator/core/pause.h"
#include "aggregator/core/standing.h"
#include "aggregator/core/values.h"
#include "aggregator/core/workers.h"
#include "protocol/messages.h"
#include "protocol/transitions.h"

namespace basin::aggregator {

// An open session, and the job and worker that it belongs to.
struct Session {
  SessionToken token = 0;
  std::optional<JobId> job;  // Known once the hello has arrived.
  std::optional<Slot> slot;  // Known once the job has welcomed it.
  // By lane; false beyond the end. True once the session has received the whole layout in answer to
  // a registration. From then on it receives every addition, so no later answer repeats the layout.
  std::vector<bool> laid_out;
  std::string address;  // See SessionOpened.
  auto Fields() const { return std::tie(token, job, slot, laid_out, address); }
};

// Every frame looks its session up, and a B-tree has few, wide nodes. The order is that of the ids.
using Sessions = absl::btree_map<SessionId, Session>;

// A job sees this of its surroundings during one Step.
struct JobScope {
  absl::Time now;
  const Config& config;
  MemoryBudget& memory;
  std::vector<Action>& actions;
  Sessions& sessions;
  absl::Time started;  // When this aggregator began to listen.
  bool draining;       // The service drains: it opens no round and admits nobody.
};

enum class JobState : uint8_t {
  kRecovering = 0,  // The aggregator does not know the last verdict of the run; it holds hellos.
  kHalted = 1,      // The workers that are back do not know it either; an operator decides.
  kForming = 2,     // The job has no members and waits for start_workers.
  kRunning = 3,
};

const char* JobStateName(JobState state);

enum class JobInput : uint8_t {
  kFreshHello = 0,   // The first hello of a new run arrived.
  kRecover = 1,      // Some worker may know more about the run than this aggregator does.
  kForm = 2,         // Enough workers are ready.
  kKnow = 3,         // The workers that are back know the last verdict of the run.
  kKnowNothing = 4,  // No worker remembers the run, or nothing has happened in it.
  kHalt = 5,  // The window is over, and the workers that are back do not know the last verdict.
  kEndLineage = 6,  // No worker that holds the state is left.
};

struct JobTransition {
  JobState from;
  JobInput input;
  JobState to;
  const char* when;
};

// A job starts as kForming, and its first hello decides what follows. When no worker is present, a
// hello of another run under the same name starts the job anew from any state.
inline constexpr JobTransition kJobTransitions[] = {
    // from                input                   to
    {JobState::kForming, JobInput::kFreshHello, JobState::kForming,
     "first hello: without history, and the recovery window is long over or its launcher declares "
     "the run new"},
    {JobState::kForming, JobInput::kRecover, JobState::kRecovering,
     "first hello otherwise; or, before the first verdict, a hello with history; or a message "
     "names a higher term"},
    {JobState::kForming, JobInput::kForm, JobState::kRunning,
     "start_workers are ready, or min_workers at start_timeout"},

    {JobState::kRecovering, JobInput::kKnow, JobState::kRunning,
     "the workers that are back know how far the run is"},
    {JobState::kRecovering, JobInput::kKnowNothing, JobState::kForming,
     "no worker remembers the run, or nothing has happened in it"},
    {JobState::kRecovering, JobInput::kHalt, JobState::kHalted,
     "the window is over, and the workers that are back do not know how far the run is"},
    {JobState::kRecovering, JobInput::kRecover, JobState::kRecovering, "another run"},
    {JobState::kRecovering, JobInput::kFreshHello, JobState::kForming, "another run that is new"},

    {JobState::kHalted, JobInput::kKnow, JobState::kRunning,
     "the missing workers return, or an operator overrides"},
    {JobState::kHalted, JobInput::kKnowNothing, JobState::kForming,
     "an operator overrides, and no worker remembers the run"},
    {JobState::kHalted, JobInput::kHalt, JobState::kHalted,
     "a worker returned, and more are needed"},
    {JobState::kHalted, JobInput::kRecover, JobState::kRecovering, "another run"},
    {JobState::kHalted, JobInput::kFreshHello, JobState::kForming, "another run that is new"},

    {JobState::kRunning, JobInput::kRecover, JobState::kRecovering,
     "a hello names a higher term, or has the verdict of a value that recovery adopted (another "
     "aggregator ruled); or such a value is lost with all its holders; or, before a recovery "
     "stands, a worker that it counted is lost, or a hello reports more than it knew; or, before "
     "the first verdict, another worker's hello with history; or another run"},
    {JobState::kRunning, JobInput::kEndLineage, JobState::kForming,
     "no worker with the state is left: a new lineage begins"},
    {JobState::kRunning, JobInput::kFreshHello, JobState::kForming, "another run that is new"},
};
static_assert(IsUnambiguous(kJobTransitions));

// How many rounds got which verdict.
struct RoundCounts {
  uint64_t committed = 0;
  uint64_t aborted = 0;
};

class Job {
 public:
  Job(JobId id, JobName name, Term term, std::optional<SavedState> saved, absl::Time now);

  // Returns whether a job with these settings fits the memory; if not, `why` has the numbers.
  static bool Fits(const JobScope& scope, const JobSettings& settings, std::string& why);

  // Takes a hello on a session that belongs to no worker yet. The job welcomes the worker, holds
  // the hello while it recovers, or ends the session.
  void OnHello(const JobScope& scope, SessionId session, const Hello& hello);
  // Returns whether a round is open and the hello comes from the process of a worker that is not
  // lost. The round may need this worker to end.
  bool Expects(const Hello& hello) const;
  // Returns whether the hello comes from the process of a worker that is not lost.
  bool Knows(const Hello& hello) const;
  // Takes what the worker in `slot` sent on its current session.
  void OnMessage(const JobScope& scope, Slot slot, const ToAggregator& message);
  // A message of the worker has arrived and waits.
  void NoteUnread(const JobScope& scope, Slot slot);
  // A hello waits. If it is of a process whose worker is not lost, that worker is back.
  void NoteUnread(const JobScope& scope, const WaitingHello& hello);
  void OnFrame(const JobScope& scope, Slot slot, const FrameReceived& frame);
  void OnValue(const JobScope& scope, Slot slot, const ValueReceived& received);
  // `slot` is absent while the job holds the session's hello.
  void LoseSession(const JobScope& scope, std::optional<Slot> slot, const SessionLost& lost);
  void OnReduceDone(const JobScope& scope, const ReduceDone& done);
  void OnStateSaved(const JobScope& scope, const StateSaved& saved);
  void OnSettingsSaved(const JobScope& scope, const SettingsSaved& saved);

  void Evict(const JobScope& scope, const WorkerId& worker, const std::string& reason);
  void DrainWorkerNow(const JobScope& scope, const WorkerId& worker);
  void Recover(const JobScope& scope);
  void Suspend(bool suspended);
  // Returns why an operator cannot change these settings now, as the end of a sentence about the
  // job; empty if the operator can. `free` is what is left of the memory budget.
  std::string WhyNotSet(const Config& config, uint64_t free, const SetJob& set) const;
  void Set(const JobScope& scope, const SetJob& set);
  // How long what an operator has set holds, as the end of a sentence.
  std::string HowLongSet() const;
  // The job is about to be forgotten.
  void ForgetSettings(const JobScope& scope);
  void TellDraining(const JobScope& scope);
  void EndAllSessions(const JobScope& scope, const Error& error);

  // Draws the consequences of what a method above has changed, always in one order: a recovery that
  // has lost what it relied on, a lineage that has ended or lacks a donor, the members, the pause,
  // and rounds that can go on. The coordinator calls it after each of them.
  void Reconcile(const JobScope& scope);

  void CheckDeadlines(const JobScope& scope);
  absl::Time NextDeadline(const Config& config) const;
  // This process did not run for `gap`, until `now`.
  void NoteStall(absl::Duration gap, const Config& config, absl::Time now);
  // Lanes that wait for memory try again, because some became free.
  void RetryMemory(const JobScope& scope);
  void ReleaseMemory(const JobScope& scope);
  // Drops the broadcast values that the job keeps, because something else needs their memory.
  void DropCached(const JobScope& scope);

  JobId id() const { return id_; }
  const JobName& name() const { return name_; }
  // The state file recorded this about the job. It is empty once the job has decided what it means.
  const std::optional<SavedState>& saved() const { return evidence_.saved(); }
  const RunId& run() const { return run_; }
  JobState state() const { return machine_.state(); }
  Term term() const { return term_; }
  const JobSettings& settings() const { return settings_.settings(); }
  LossPolicy loss_policy(const Config& config) const { return settings_.loss_policy(config); }
  LatePolicy late_policy(const Config& config) const { return settings_.late_policy(config); }
  // The same for now. Before this aggregator stands, it asks nobody to stage a value that it has
  // found in a recovery. So nobody is late, and the only worker that holds that value must stay.
  LatePolicy LatePolicyNow(const Config& config) const {
    return standing_.stands() ? late_policy(config) : LatePolicy::kWait;
  }
  const Membership& membership() const { return generations_.current(); }
  const Workers& workers() const { return workers_; }
  // Workers with a session that wait until the job has recovered. They are not among workers() yet.
  const std::map<WorkerId, SessionId>& waiting() const { return evidence_.held().waiting(); }
  const std::vector<Lane>& lanes() const { return lanes_.all(); }
  uint64_t lanes_in_use() const { return lanes_.InUse(); }
  // What the job holds of the memory budget: the lanes alone, which have their limit; everything;
  // and the part of it that describes tensors, rounds, values and hellos rather than having room
  // for their bytes.
  uint64_t lane_bytes() const { return lanes_.held_bytes(); }
  uint64_t reserved_bytes() const {
    return lane_bytes() + values_.reserved_bytes() + evidence_.held().bytes();
  }
  uint64_t description_bytes() const;
  const std::string& reason() const { return reason_; }  // Explains state() in the status.
  // The rounds that this aggregator ended, for observers.
  const RoundCounts& rounds() const { return rounds_; }
  const RowsTaken& taken() const { return machine_.taken(); }
  const Pause& pause() const { return pause_; }
  const Pace& pace() const { return pace_; }
  bool suspended() const { return pause_.suspended(); }
  // All members have finished or left in good order, and no worker has begun anew.
  bool over() const { return forming_.over() && state() == JobState::kForming; }
  // The job never had a member, and no worker is ready to become one.
  bool Unstarted() const;
  bool HasOpenRound() const { return lanes_.AnyOpen(); }
  bool Idle() const;                          // Nobody is connected, and nobody is expected back.
  bool Expired(const JobScope& scope) const;  // It is idle, and need not be remembered any more.
  // The number that min_workers is compared with: living members, and workers that have finished.
  uint32_t Present() const { return workers_.Present(); }
  bool Paused() const { return pause_.Holds(Present(), settings().min_workers); }
  // Returns whether the members go on without a worker that is not ready yet. They do not before
  // the first round, which is for all that have come, and in a pause for lack of workers.
  bool GoesOnWithout() const {
    return state() == JobState::kRunning && lanes_.AnyRoundEver() &&
           Present() >= settings().min_workers && !NobodyGoesOn(workers_);
  }

  auto Fields() const {
    return std::tie(id_, name_, run_, term_, machine_, reason_, changed_, standing_, evidence_,
                    settings_, settings_writes_, pace_, forming_, generations_, workers_, lanes_,
                    values_, pause_, why_not_running_, deadlock_check_, idle_since_,
                    forget_when_idle_);
  }

 private:
  // The job does this by itself at a certain time.
  struct Timer {
    absl::Time (*due)(const Job&, const Config&);  // InfiniteFuture while the timer does not run.
    void (*fire)(Job&, const JobScope&);  // Null if the coordinator acts instead of the job.
  };
  static const Timer kTimers[];

  // All changes of the state go through here. Returns whether the table has the input in this
  // state; if not, nothing changes.
  bool Apply(JobInput input) { return machine_.Apply(input); }

  // job_hello.cc
  bool CheckTerm(const JobScope& scope, SessionId session, const Hello& hello);
  bool CheckRun(const JobScope& scope, SessionId session, const Hello& hello);
  bool CheckBounds(const JobScope& scope, SessionId session, const Hello& hello);
  bool CheckSettings(const JobScope& scope, SessionId session, const Hello& hello);
  bool CheckLineage(const JobScope& scope, SessionId session, const Hello& hello);
  std::string WhyNotKnown(uint32_t ranks, bool knows, const WorkerId& except) const;
  void Admit(const JobScope& scope, SessionId session, const Hello& hello);
  std::optional<Slot> SlotFor(const JobScope& scope, const WorkerId& id);
  void WelcomeWorker(const JobScope& scope, Slot slot, const Hello& hello);
  void Refuse(const JobScope& scope, SessionId session, const WorkerId& worker, ErrorCode code,
              const std::string& text);

  // job_recovery.cc
  void Forget(const JobScope& scope);
  void EnterRecovery(const JobScope& scope, const std::string& reason);
  void HoldHello(const JobScope& scope, SessionId session, const Hello& hello);
  void TryRecover(const JobScope& scope);
  void ApplyRecovery(const JobScope& scope, const RecoveryDecision& decision);
  void TakeUnusedTerm(const JobScope& scope);
  void FinishRecovery(const JobScope& scope);
  void OnPromise(const JobScope& scope, const WorkerId& worker);
  void RecoverOnceMore(const JobScope& scope);
  void StartFresh(const JobScope& scope, const std::string& reason);

  // job_members.cc
  void OnReady(const JobScope& scope, Slot slot, const Ready& ready);
  void BeginAnew();
  void StopWaitingForGroups(const JobScope& scope);
  void TryForm(const JobScope& scope);
  void ReconsiderMembers(const JobScope& scope);
  void RequestChange(const JobScope& scope, const Membership& next, std::optional<WorkerId> donor);
  void ApplyChange(const JobScope& scope, const Membership& next,
                   const std::optional<WorkerId>& donor);
  void Lose(const JobScope& scope, Slot slot, NoteKind kind, const std::string& reason,
            const Error& error);
  void RepairLineage(const JobScope& scope);
  void EndLineage(const JobScope& scope);
  Membership NextMembership(bool admit, bool keep_all = false) const;
  void Activate(const JobScope& scope, const Membership& next, const std::optional<WorkerId>& donor,
                bool tell_members);
  std::optional<WorkerId> DonorFor(const Membership& next) const;
  bool PausedIn(const Lane& lane) const;
  void ReleaseStateless(const JobScope& scope);
  void ReplaceDonor(const JobScope& scope);
  void ReformIdleRounds(const JobScope& scope);

  // job_pause.cc
  void NoteHeldUp() { changed_ |= state() == JobState::kRunning && !pause_.noted() && Paused(); }
  void ReviewPause(const JobScope& scope);
  void SendHeldUp(const JobScope& scope, const std::string& text) const;
  void ReportPause(const JobScope& scope);
  void NoteWaiting(const JobScope& scope);
  void ReportWhyNotRunning(const JobScope& scope);
  std::string WhyNotRunning(const JobScope& scope) const;
  std::string HowToEndHalt() const;
  std::string WhyPaused() const;

  // job_timers.cc
  absl::Time IdleDue(const Config& config) const;
  void GiveUpWrites(const JobScope& scope);
  void LoseSilentWorkers(const JobScope& scope);
  void CheckRounds(const JobScope& scope);

  // job_lanes.cc
  Lane* FindLane(const JobScope& scope, Slot slot, LaneIndex lane);
  void OnRegister(const JobScope& scope, Slot slot, const Register& request);
  std::string Revive(const JobScope& scope, Lane& lane);
  std::string ChargeTensors(const JobScope& scope, Lane& lane, const TensorSpec* next);
  void NameTensors(const JobScope& scope, LaneIndex index, TensorIndex first) const;
  void PlanMemory(const JobScope& scope, Lane& lane, LaneIndex index);

  // job_verdict.cc
  void Save(const JobScope& scope, const Membership& next) const;
  void SavePending(const JobScope& scope, PendingChange change);
  void EndWrite(const JobScope& scope, Generation generation, const std::string& failure);
  void Settle(const JobScope& scope, LaneIndex index);
  void TellVerdict(const JobScope& scope, LaneIndex index, const Membership& next);
  void TellPaced(const JobScope& scope);

  // job_settings.cc
  void SaveSettings(const JobScope& scope, const std::string& report);
  void GiveUpSettingsWrites(const JobScope& scope);
  void ReportSet(const JobScope& scope, const std::string& report) const;
  void RestoreSettings(const JobScope& scope, const Hello& hello);

  // job_waits.cc
  void OnWaits(const JobScope& scope, Slot slot, const std::vector<RoundWait>& waits);
  void LeaveOutOfStep(const JobScope& scope, Slot slot);
  void LeaveOutOfCalls(const JobScope& scope, Slot slot);
  void EndDeadlock(const JobScope& scope);

  // job.cc
  void OnBegin(const JobScope& scope, Slot slot, const Begin& begin);
  void HoldsState(const JobScope& scope, Slot slot);
  Round* RoundFor(const JobScope& scope, Slot slot, Lane& lane, LaneIndex index, RoundNumber number,
                  bool open);
  void TellVerdictAgain(const JobScope& scope, Slot slot, const Lane& lane, LaneIndex index,
                        RoundNumber number);
  void RejectMessage(const JobScope& scope, Slot slot, ErrorCode code, const std::string& text,
                     std::optional<LaneIndex> lane = std::nullopt, RoundNumber round = 0);
  void Reject(const JobScope& scope, Slot slot, Rejected rejected);
  std::vector<RoundMember> RoundMembers(LaneKind kind) const;
  void AdvanceLane(const JobScope& scope, LaneIndex index);
  void AdvanceAll(const JobScope& scope);
  RoundScope ScopeOf(const JobScope& scope, LaneIndex index) const;
  ValueScope ValuesScope(const JobScope& scope) const;
  // The caller may complete the note before it adds another action.
  Note& AddNote(const JobScope& scope, NoteKind kind, const WorkerId& worker,
                const std::string& text) const;
  void SendTo(const JobScope& scope, Slot slot, ToWorker message) const;
  void Hear(const JobScope& scope, Slot slot);

  JobId id_;
  JobName name_;
  RunId run_;
  Term term_;
  StateMachine<kJobTransitions> machine_{JobState::kForming};
  std::string reason_;
  bool changed_ = false;  // Reconcile has something to do; always false between two steps.

  Standing standing_;
  Evidence evidence_;  // Recoveries decide from it.
  AgreedSettings settings_;
  SettingsWrites settings_writes_;
  Pace pace_;
  Forming forming_;
  Generations generations_;
  Workers workers_;
  Lanes lanes_;
  Values values_;
  Pause pause_;
  Notice why_not_running_;  // Sent to the workers that wait for the job.
  RoundCounts rounds_;
  absl::Time deadlock_check_ = absl::InfinitePast();  // The earliest time of the next check.
  absl::Time idle_since_;                             // Meaningful while Idle().
  bool forget_when_idle_ = false;  // The last worker that was lost has left, and asked for that.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_H_
