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
// Job is what a job knows. What it does are functions: job_hello.h admits workers, job_messages.h
// takes what they send, job_lanes.h and job_rounds.h have the lanes and their rounds, job_members.h
// the members, job_recovery.h recoveries, job_pause.h pauses, job_settings.h what an operator sets,
// and job_timers.h what happens by itself.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_JOB_H_
#define BASIN_AGGREGATOR_CORE_JOB_H_

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/agreed_settings.h"
#include "aggregator/core/blobs.h"
#include "aggregator/core/config.h"
#include "aggregator/core/evidence.h"
#include "aggregator/core/forming.h"
#include "aggregator/core/generations.h"
#include "aggregator/core/goodput.h"
#include "aggregator/core/lanes.h"
#include "aggregator/core/notice.h"
#include "aggregator/core/pace.h"
#include "aggregator/core/pause.h"
#include "aggregator/core/placements.h"
#include "aggregator/core/standing.h"
#include "aggregator/core/state_writes.h"
#include "aggregator/core/workers.h"
#include "protocol/messages.h"
#include "protocol/transitions.h"

namespace basin::aggregator {

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

struct Job {
  // `least`: the term, unless the state file has that of a later one.
  Job(JobId id, JobName name, Term least, std::optional<SavedState> state, absl::Time now);

  JobState state() const { return machine.state(); }
  // All changes of the state go through here. Returns whether the table has the input in this
  // state; if not, nothing changes.
  bool Apply(JobInput input) { return machine.Apply(input); }
  const RowsTaken& taken() const { return machine.taken(); }

  // ---- settings
  const JobSettings& settings() const { return agreed.settings(); }
  LossPolicy loss_policy(const Config& config) const { return agreed.loss_policy(config); }
  LatePolicy late_policy(const Config& config) const { return agreed.late_policy(config); }
  // The same for now. Before this aggregator stands, it asks nobody to stage a value that it has
  // found in a recovery. So nobody is late, and the only worker that holds that value must stay.
  LatePolicy LatePolicyNow(const Config& config) const {
    return standing.stands() ? late_policy(config) : LatePolicy::kWait;
  }
  // How long what an operator has set holds, as the end of a sentence.
  std::string HowLongSet() const;

  // ---- workers and members
  const Membership& membership() const { return generations.current(); }
  // Workers with a session that wait until the job has recovered. They are not among `workers` yet.
  const std::map<WorkerId, SessionId>& waiting() const { return evidence.held().waiting(); }
  // Returns whether the hello comes from the process of a worker that is not lost.
  bool Knows(const Hello& hello) const;
  // Returns the same if a round is open. The round may need this worker to end.
  bool Expects(const Hello& hello) const { return HasOpenRound() && Knows(hello); }
  // The number that min_workers is compared with: living members, and workers that have finished.
  uint32_t Present() const { return workers.Present(); }
  // Returns whether the members go on without a worker that is not ready yet. They do not before
  // their first round.
  bool GoesOnWithout() const {
    return state() == JobState::kRunning && lanes.AnyRoundEver() &&
           Present() >= settings().min_workers && !NobodyGoesOn(workers);
  }
  Membership NextMembership(bool admit, bool keep_all = false) const;
  std::optional<WorkerId> DonorFor(const Membership& next) const;
  // The members of a round that opens now, in byte order of the id.
  std::vector<RoundMember> RoundMembers(LaneKind kind) const;
  // This process did not run for `gap`, until `now`.
  void NoteStall(absl::Duration gap, const Config& config, absl::Time now);

  // ---- pauses
  bool suspended() const { return pause.suspended(); }
  void Suspend(bool suspends);
  bool Paused() const { return pause.Holds(Present(), settings().min_workers); }
  // Returns whether the pause holds back the round of this lane. A drained worker is no longer a
  // member of the job but still takes part in its open rounds, so they count it. It leaves after
  // them, and another worker replaces it.
  bool PausedIn(const Lane& lane) const;
  // A worker may have begun to wait for a paused job.
  void NoteHeldUp() { changed |= state() == JobState::kRunning && !pause.noted() && Paused(); }

  // ---- its end
  // All members have finished or left in good order, and no worker has begun anew.
  bool over() const { return forming.over() && state() == JobState::kForming; }
  // A worker has come to a job that may be over.
  void BeginAnew();
  // The job never had a member, and no worker is ready to become one.
  bool Unstarted() const;
  bool HasOpenRound() const { return lanes.AnyOpen(); }
  bool Idle() const;  // Nobody is connected, and nobody is expected back.
  // From then on, the job is idle, and need not be remembered any more.
  absl::Time IdleDue(const Config& config) const;

  // The state file recorded this about the job. It is empty once the job has decided what it means.
  const std::optional<SavedState>& saved() const { return evidence.saved(); }
  // What the job holds of the memory budget: the lanes alone, which have their limit; everything;
  // and the part of it that describes tensors, rounds, values and hellos rather than having room
  // for their bytes.
  uint64_t lane_bytes() const { return lanes.held_bytes(); }
  uint64_t reserved_bytes() const {
    return lane_bytes() + blobs.reserved_bytes() + evidence.held().bytes();
  }
  uint64_t description_bytes() const;

  JobId id;
  JobName name;
  RunId run;
  Term term;
  StateMachine<kJobTransitions> machine{JobState::kForming};
  std::string reason;    // Explains the state.
  bool changed = false;  // Reconcile has something to do; always false between two steps.

  Standing standing;
  Evidence evidence;  // Recoveries decide from it.
  AgreedSettings agreed;
  SettingsWrites settings_writes;
  Pace pace;
  Forming forming;
  Generations generations;
  Workers workers;
  Lanes lanes;
  Placements placements;
  Blobs blobs;
  Pause pause;
  Notice why_not_running;                            // Sent to the workers that wait for the job.
  RoundCounts rounds;                                // That this aggregator ended, for observers.
  Goodput goodput;                                   // That of its gradient lanes, for observers.
  absl::Time deadlock_check = absl::InfinitePast();  // The earliest time of the next check.
  absl::Time idle_since;                             // Meaningful while Idle().
  bool forget_when_idle = false;  // The last worker that was lost has left, and asked for that.

  auto Fields() const {
    return std::tie(id, name, run, term, machine, reason, changed, standing, evidence, agreed,
                    settings_writes, pace, forming, generations, workers, lanes, placements, blobs,
                    pause, why_not_running, deadlock_check, idle_since, forget_when_idle);
  }
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_H_
