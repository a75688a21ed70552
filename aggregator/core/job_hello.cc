// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_hello.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job_lanes.h"
#include "aggregator/core/job_members.h"
#include "aggregator/core/job_pause.h"
#include "aggregator/core/job_placement.h"
#include "aggregator/core/job_recovery.h"
#include "aggregator/core/job_samples.h"
#include "aggregator/core/job_settings.h"
#include "aggregator/core/round_members.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

// A job remembers this many superseded processes of one worker id. If a process older than these
// came back, the job would take it for a new one, and it would supersede the current one.
constexpr size_t kRememberedNonces = 16;

bool Contains(const std::vector<Nonce>& nonces, Nonce nonce) {
  return std::find(nonces.begin(), nonces.end(), nonce) != nonces.end();
}

using Histories = std::map<LaneIndex, const LaneHistory*>;

// Returns what the worker remembers of the lanes of the job.
Histories HistoriesOf(const Job& job, const Hello& hello) {
  Histories histories;
  for (const LaneHistory& history : hello.lanes) {
    const Lane* lane = job.lanes.Named(history.name);
    if (lane == nullptr || job.lanes.HasLetGo(hello, history, job.term)) continue;
    histories.emplace(lane->index, &history);
  }
  return histories;
}

// Returns what the worker remembers of one of them; nullptr for nothing.
const LaneHistory* HistoryOf(const Histories& histories, LaneIndex lane) {
  const auto found = histories.find(lane);
  return found == histories.end() ? nullptr : found->second;
}

// Returns whether the process has been a member of this job, or knows the chain of one of its
// lanes, which only a worker that took part can know.
bool TookPart(const Hello& hello, const Workers& workers, const Membership& membership,
              const Lanes& lanes) {
  if (const std::optional<Slot> slot = workers.Find(hello.worker); slot.has_value()) {
    const Worker& worker = workers[*slot];
    const std::vector<WorkerId>& members = membership.members;
    const bool member = !(worker.member_since == Generation{}) ||
                        std::find(members.begin(), members.end(), worker.id) != members.end();
    if (member && worker.nonce == hello.nonce) return true;
  }
  for (const LaneHistory& history : hello.lanes) {
    const Lane* lane = lanes.Named(history.name);
    if (lane == nullptr) continue;
    if (lane->Remembers(history.last_verdict, history.chain)) return true;
    for (const VerdictRecord& record : history.verdicts) {
      if (lane->Remembers(record.round, record.chain)) return true;
    }
  }
  return false;
}

// Returns whether to believe a hello that names a higher term than the job's. Another aggregator
// can lead the members only after they have left this one. While more than half of them are
// connected here, a stranger that names such a term belongs to another run or lies, so the job
// refuses it and goes on. The stranger may retry while some of these connections may be stale.
bool CheckTerm(Job& job, const JobScope& scope, SessionId session, const Hello& hello) {
  if (TookPart(hello, job.workers, job.membership(), job.lanes)) return true;
  size_t connected = 0;
  size_t steady = 0;
  for (const WorkerId& id : job.membership().members) {
    const std::optional<Slot> slot = job.workers.Find(id);
    if (!slot.has_value() || !job.workers[*slot].connected()) continue;
    const Worker& worker = job.workers[*slot];
    ++connected;
    // After a silence, the worker may have left this session without the aggregator noticing yet.
    steady += scope.now - worker.last_message <= scope.config.silence() &&
              scope.now - worker.silent_until >= scope.config.lease;
  }
  const size_t members = job.membership().members.size();
  if (2 * connected <= members) return true;
  const std::string text =
      absl::StrCat("Job ", job.name, ": worker ", hello.worker, " has been in term ",
                   HighestTerm(hello), ", and ", connected, " of ", CountOf(members, "member"),
                   connected == 1 ? " is" : " are", " connected in term ", job.term, ". ");
  if (2 * steady > members) {
    Refuse(job, scope, session, hello.worker, ErrorCode::kLineageConflict,
           absl::StrCat(text,
                        "Its state is from another run with this name. Restart it; it then loads "
                        "the state of the other workers."));
  } else {
    Refuse(job, scope, session, hello.worker, ErrorCode::kUnavailable,
           absl::StrCat(text, "The client retries."));
  }
  return false;
}

bool CheckRun(Job& job, const JobScope& scope, SessionId session, const Hello& hello) {
  if (hello.run.empty() || hello.run == job.run) return true;
  if (job.run.empty() && !(job.agreed.declared() && job.standing.sent_verdict())) {
    job.run = hello.run;
    job.evidence.NameRun(job.run);
    return true;
  }
  // A worker is present while it waits for the recovery. Until the window is over, it is present
  // even if its session has ended.
  const bool waits = !job.waiting().empty() || (!job.evidence.held().hellos().empty() &&
                                                job.state() == JobState::kRecovering);
  const bool present = waits || job.workers.Count(WorkerState::kLost) < job.workers.size();
  if (present) {
    Refuse(job, scope, session, hello.worker, ErrorCode::kRunConflict,
           absl::StrCat("Job ", job.name, ": run ", job.run.empty() ? "(unnamed)" : job.run,
                        " is in progress, and worker ", hello.worker, " belongs to run ", hello.run,
                        ". Wait until its workers are gone, or use another job name."));
    return false;
  }
  AddNote(job, scope, NoteKind::kJobAdmitted, "", absl::StrCat("The new run is ", hello.run, "."));
  Forget(job, scope);
  job.generations.ForgetMembers();
  job.evidence.Close();
  job.agreed.Reopen();
  job.run = hello.run;
  return true;
}

bool CheckBounds(Job& job, const JobScope& scope, SessionId session, const Hello& hello) {
  const JobSettings asked = AgreedSettings::Resolve(hello.settings);
  if (asked.min_workers <= asked.start_workers && asked.start_workers <= asked.max_workers) {
    return true;
  }
  Refuse(job, scope, session, hello.worker, ErrorCode::kInvalidArgument,
         absl::StrCat("Job ", job.name, ": worker ", hello.worker, " asks for min_workers = ",
                      asked.min_workers, ", start_workers = ", asked.start_workers,
                      ", max_workers = ", asked.max_workers,
                      "; required is min_workers <= start_workers <= max_workers."));
  return false;
}

bool CheckSettings(Job& job, const JobScope& scope, SessionId session, const Hello& hello) {
  const std::optional<AgreedSettings::Difference> differs = job.agreed.DiffersFrom(hello.settings);
  if (!differs.has_value()) return true;
  Refuse(job, scope, session, hello.worker, ErrorCode::kMismatch,
         absl::StrCat("Job ", job.name, ": worker ", hello.worker, " asks for ", differs->name,
                      " = ", differs->theirs, ", but the job has ", differs->ours,
                      ". Start all workers of a job with the same settings."));
  return false;
}

// Finds a slot for a new worker. When the table is full, the slot comes from the worker that was
// lost longest ago among those that no list of members, round or state transfer names. The job then
// forgets which processes of that worker's id were superseded.
std::optional<Slot> SlotFor(Job& job, const JobScope& scope, const WorkerId& id) {
  if (job.workers.size() < scope.config.max_workers) return job.workers.Add(id);
  std::set<WorkerId> named = job.generations.Named();
  for (const Lane& lane : job.lanes) {
    if (!lane.round.has_value()) continue;
    for (const RoundMember& member : lane.round->members()) named.insert(member.id);
  }
  std::optional<Slot> oldest;
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    const bool counts = worker.state != WorkerState::kLost || worker.still_counts;
    if (counts || named.count(worker.id) > 0) continue;
    if (!oldest.has_value() || worker.last_message < job.workers[*oldest].last_message)
      oldest = slot;
  }
  if (oldest.has_value()) job.workers.Reuse(*oldest, id);
  return oldest;
}

bool CheckJoins(Job& job, const JobScope& scope, SessionId session, const Worker& worker) {
  const absl::Time until = worker.joins.RefusedUntil(scope.config);
  if (scope.now >= until) return true;
  Refuse(job, scope, session, worker.id, ErrorCode::kFailedPrecondition,
         absl::StrCat("Job ", job.name, ": worker ", worker.id, " joined ",
                      CountOf(worker.joins.fruitless(), "time"),
                      " in a row and was lost before any round counted it; the last time it ",
                      worker.joins.reason(), ". It holds up the others, so it is refused for ",
                      absl::FormatDuration(absl::Ceil(until - scope.now, absl::Seconds(1))),
                      " (worker.join_pause). Find the cause in its own output; its client "
                      "keeps trying."),
         NoteCause::kFruitlessJoins);
  return false;
}

void WelcomeWorker(Job& job, const JobScope& scope, Slot slot, const Hello& hello) {
  Worker& worker = job.workers[slot];
  Welcome welcome;
  welcome.token = scope.sessions[*worker.session].token;
  welcome.incarnation = worker.incarnation;
  welcome.run = job.run;
  welcome.term = job.term;
  welcome.role = IsMember(worker)                      ? Role::kMember
                 : worker.state == WorkerState::kSpare ? Role::kSpare
                                                       : Role::kJoiner;
  welcome.membership = job.membership();
  welcome.settings = job.settings();
  welcome.frame_bytes = scope.config.frame_bytes;
  welcome.heartbeat = scope.config.heartbeat;
  const bool runs = scope.config.frame_tensors > 1 && (hello.features & kFeatureRuns) != 0;
  welcome.features = (hello.features & (scope.config.features | kFeatureRanks | kFeatureSamples |
                                        kFeatureGlobalBatch | kFeatureLetGo | kFeaturePlacement)) |
                     (runs ? kFeatureRuns : 0);
  worker.frame_tensors = runs ? scope.config.frame_tensors : 1;
  welcome.job_runs = job.GoesOnWithout();
  welcome.placements = PlacementsFor(job, worker);

  // A worker that became a member while it was disconnected does not know this, so it starts where
  // the lanes are.
  const auto& remembered = hello.membership.members;
  const bool knows = hello.incarnation == worker.incarnation &&
                     !(hello.membership.generation < worker.member_since) &&
                     std::find(remembered.begin(), remembered.end(), worker.id) != remembered.end();
  const bool news = IsMember(worker) && !knows;
  if (news) welcome.role = Role::kJoiner;

  const Histories histories = HistoriesOf(job, hello);
  for (const Lane& lane : job.lanes) {
    const LaneIndex i = lane.index;
    welcome.layouts.push_back(LaneLayout{i, lane.name, lane.kind, 0, lane.layout.shared_tensors(),
                                         lane.next, lane.memory.window,
                                         PlacementFor(worker, lane)});
    // A former member also receives the verdicts of rounds that it took part in.
    if (!knows) continue;
    const LaneHistory* history = HistoryOf(histories, i);
    const RoundNumber last = history == nullptr ? 0 : history->last_verdict;
    LastVerdicts missed{i, {}};
    for (const VerdictRecord& record : lane.verdicts) {
      if (record.round > last) missed.verdicts.push_back(record);
    }
    if (!missed.verdicts.empty()) welcome.verdicts.push_back(std::move(missed));
    if (lane.round.has_value() && lane.round->Has(slot)) {
      welcome.open.push_back(Describe(*lane.round, ScopeOf(job, scope, i), slot));
    }
  }
  SendTo(job, scope, slot, std::move(welcome));
  if (news) {
    SendTo(job, scope, slot,
           MembershipChanged{job.membership(), Role::kMember, job.generations.donor(),
                             StartRoundsFor(job, worker)});
  } else if (IsMember(worker) && AnyMemberLacksState(job.workers)) {
    // The worker may not know that it serves its state, or which worker serves it.
    SendTo(job, scope, slot,
           MembershipChanged{job.membership(), Role::kMember, job.generations.donor(), {}});
  }
  if (job.pause.named() && job.state() == JobState::kRunning) {
    const std::string before = std::exchange(job.reason, WhyPaused(job));
    if (job.reason == before) {
      SendTo(job, scope, slot, HeldUp{0, 0, job.reason});
    } else {
      SendToAll(job, scope, HeldUp{0, 0, job.reason});
    }
  }
  // The session on which an earlier notice was sent may have ended before it arrived.
  if (worker.draining || scope.draining) SendTo(job, scope, slot, Drain{!worker.draining});
  ForRoundsOf(job, scope, slot, [&](Round& round, const RoundScope& in) {
    Resume(round, in, slot, HistoryOf(histories, in.index));
  });
  job.blobs.Resume(BlobScopeOf(job, scope), slot);
}

}  // namespace

void Refuse(Job& job, const JobScope& scope, SessionId session, const WorkerId& worker,
            ErrorCode code, const std::string& text, NoteCause cause) {
  // Two groups of workers may have trained apart from each other, and operators must notice that.
  const NoteKind kind =
      code == ErrorCode::kLineageConflict ? NoteKind::kLineageConflict : NoteKind::kWorkerRefused;
  AddNote(job, scope, kind, worker, absl::StrCat(ErrorCodeName(code), ": ", text)).cause = cause;
  scope.sessions.erase(session);
  scope.actions.push_back(EndSession{session, Error{code, text}});
}

void OnHello(Job& job, const JobScope& scope, SessionId session, const Hello& hello) {
  if (!CheckRun(job, scope, session, hello)) return;
  const bool remembers = HasHistory(hello);
  if (!job.agreed.declared()) {
    if (!CheckBounds(job, scope, session, hello)) return;
    job.agreed.Declare(hello.settings);
    const bool long_up = scope.now >= scope.started + scope.config.recovery_window;
    const bool known = remembers || job.evidence.HasSavedGeneration();
    const bool fresh = !known && (hello.fresh || long_up);
    if (fresh) {
      job.Apply(JobInput::kFreshHello);
      job.forming.Begin(scope.now);
    } else {
      EnterRecovery(job, scope, "the aggregator does not remember this run");
    }
  }
  RestoreSettings(job, scope, hello);
  if (job.state() == JobState::kForming)
    job.evidence.CloseAsNew();  // The file has no more evidence.
  if (!CheckSettings(job, scope, session, hello)) return;
  const std::optional<Slot> known = job.workers.Find(hello.worker);
  const bool same_process = known.has_value() && job.workers[*known].nonce == hello.nonce;
  const bool was_superseded =
      known.has_value() && Contains(job.workers[*known].superseded, hello.nonce);
  const bool decided = job.state() == JobState::kForming || job.state() == JobState::kRunning;
  if (decided && remembers && !was_superseded) {
    if (HighestTerm(hello) > job.term) {
      if (!CheckTerm(job, scope, session, hello)) return;
      AddNote(job, scope, NoteKind::kSteppedDown, hello.worker,
              absl::StrCat("The worker has been in term ", HighestTerm(hello),
                           ", this aggregator in term ", job.term,
                           ": another aggregator has served this job."));
      EnterRecovery(job, scope, "another aggregator has served this job meanwhile");
    } else if (!job.standing.established() && !same_process) {
      if (job.state() == JobState::kRunning) job.standing.Void();
      EnterRecovery(
          job, scope,
          absl::StrCat("worker ", hello.worker, " remembers a run that was started as new"));
    } else if (job.lanes.Lack(hello, job.standing.stands(), job.term)) {
      EnterRecovery(
          job, scope,
          absl::StrCat("worker ", hello.worker,
                       " reports a verdict or a result that this aggregator has not seen"));
    }
  }
  if (job.state() == JobState::kRecovering || job.state() == JobState::kHalted) {
    HoldHello(job, scope, session, hello);
    return;
  }
  if (!CheckLineage(job, scope, session, hello)) return;
  Admit(job, scope, session, hello);
}

bool CheckLineage(Job& job, const JobScope& scope, SessionId session, const Hello& hello) {
  if (!HasHistory(hello)) return true;
  for (const LaneHistory& history : hello.lanes) {
    if (history.last_verdict == 0 || job.lanes.HasLetGo(hello, history, job.term)) continue;
    const Lane* lane = job.lanes.Named(history.name);
    const bool ahead = lane == nullptr || history.last_verdict >= lane->next;
    if (!ahead && lane->Agrees(history.last_verdict, history.chain)) continue;
    Refuse(job, scope, session, hello.worker, ErrorCode::kLineageConflict,
           absl::StrCat(
               "Job ", job.name, ", lane ", history.name, ": worker ", hello.worker,
               " holds a verdict of round ", history.last_verdict,
               " that is not in this job's history",
               ahead ? absl::StrCat(", which ends at round ", lane == nullptr ? 0 : lane->next - 1)
                     : std::string(),
               ". Its model differs. Restart it; it then loads the state of the other workers."));
    return false;
  }
  return true;
}

std::string WhyNotKnown(const Job& job, uint32_t ranks, bool knows, const WorkerId& except) {
  if (knows && ranks == 1) return "";
  if (!knows && ranks > 1) {
    return absl::StrCat("stands for ", ranks,
                        " trainers, but its client did not declare that feature; update it");
  }
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    if (worker.state == WorkerState::kLost || worker.id == except) continue;
    if (ranks > 1 && !worker.knows_ranks) {
      return absl::StrCat("stands for ", ranks, " trainers, but the client of worker ", worker.id,
                          " is too old to know that; update it");
    }
    if (!knows && worker.ranks > 1) {
      return absl::StrCat("has a client that is too old to know that worker ", worker.id,
                          " stands for ", worker.ranks, " trainers; update it");
    }
  }
  for (const Lane& lane : job.lanes) {
    if (knows || !lane.round.has_value()) continue;
    const Contributor node = lane.round->CountedNode();
    if (!node.is_partial()) continue;
    return absl::StrCat("has a client that is too old to know that worker ", node.worker,
                        " stands for ", node.ranks, " trainers, which round ", lane.round->number,
                        " of lane ", lane.name, " counts; update it");
  }
  return "";
}

void Admit(Job& job, const JobScope& scope, SessionId session, const Hello& hello) {
  std::optional<Slot> found = job.workers.Find(hello.worker);
  const bool reconnects = found.has_value() && job.workers[*found].nonce == hello.nonce &&
                          job.workers[*found].state != WorkerState::kLost &&
                          job.workers[*found].incarnation == hello.incarnation;
  const bool knows_ranks = (hello.features & kFeatureRanks) != 0;
  std::string why_not = WhyNotKnown(job, hello.ranks, knows_ranks, hello.worker);
  if (why_not.empty()) why_not = WhyNotKnowsSamples(job, hello.features);
  // A worker that reconnects is no newcomer. It keeps the number that it had, as when it reports
  // another one in a session: its begins of several trainers are refused.
  if (!reconnects && !why_not.empty()) {
    Refuse(job, scope, session, hello.worker, ErrorCode::kVersionMismatch,
           absl::StrCat("Job ", job.name, ": worker ", hello.worker, " ", why_not, "."));
    return;
  }
  if (!found.has_value()) {
    found = SlotFor(job, scope, hello.worker);
    if (!found.has_value()) {
      Refuse(job, scope, session, hello.worker, ErrorCode::kResourceExhausted,
             absl::StrCat("Job ", job.name, " has ", job.workers.size(),
                          " workers, which is its limit (limits.workers). Try again when one of "
                          "them has left."));
      return;
    }
  }
  const Slot slot = *found;
  Worker& worker = job.workers[slot];
  const Error superseded{ErrorCode::kSuperseded,
                         absl::StrCat("A newer process has replaced worker ", hello.worker,
                                      " of job ", job.name, ". This process must exit.")};
  if (Contains(worker.superseded, hello.nonce)) {
    Refuse(job, scope, session, hello.worker, superseded.code, superseded.text);
    return;
  }
  if (!reconnects && !CheckJoins(job, scope, session, worker)) return;
  if (worker.nonce != hello.nonce) {
    if (worker.state != WorkerState::kLost) {
      Lose(job, scope, slot, NoteKind::kWorkerSuperseded, "was replaced by a newer process",
           superseded);
    }
    if (worker.nonce != 0) {
      worker.superseded.push_back(worker.nonce);
      if (worker.superseded.size() > kRememberedNonces) {
        worker.superseded.erase(worker.superseded.begin());
      }
    }
    worker.nonce = hello.nonce;
    worker.draining = false;  // An operator drained the earlier process, not this one.
  } else if (worker.state != WorkerState::kLost && worker.state != WorkerState::kAdmitted &&
             hello.incarnation != worker.incarnation) {
    // The process has begun or will begin another incarnation: it gave this one up, or another
    // aggregator evicted it meanwhile. The job must not credit what it does next to this
    // incarnation.
    Lose(job, scope, slot, NoteKind::kWorkerLost, "gave up its incarnation",
         Error{ErrorCode::kStale, "A newer session of this process has taken over."});
  }

  const bool lives = worker.state != WorkerState::kLost;
  if (lives && worker.connected() && *worker.session != session) {
    scope.sessions.erase(*worker.session);
    scope.actions.push_back(
        EndSession{*worker.session,
                   Error{ErrorCode::kStale, "A newer session of this process has taken over."}});
    job.blobs.ForgetRequests(BlobScopeOf(job, scope), slot);
  }
  if (!reconnects) {
    job.BeginAnew();
    job.workers.Apply(slot, WorkerInput::kAdmit);
    worker.incarnation = job.workers.NextIncarnation(job.term);
    job.workers.SetStillCounts(slot, false);
    worker.finishing = worker.left = worker.holds_state = worker.out_of_step = false;
    worker.member_since = Generation{};
    worker.busy.clear();
    worker.misfit.clear();
    worker.layouts.clear();
    worker.registered.clear();
    job.lanes.FewerKnow();
  }
  worker.session = session;
  if (reconnects) ResumeSamples(job, scope, slot, hello);
  if (why_not.empty()) worker.ranks = hello.ranks;
  worker.knows_ranks = knows_ranks;
  worker.knows_samples = (hello.features & kFeatureSamples) != 0;
  worker.knows_steps = (hello.features & kFeatureGlobalBatch) != 0;
  worker.group = hello.group;
  worker.software = hello.software;
  worker.repeats.clear();
  for (const LaneHistory& history : hello.lanes) {
    const Lane* lane = job.lanes.Named(history.name);
    if (!reconnects || lane == nullptr || job.lanes.HasLetGo(hello, history, job.term)) continue;
    if (history.begun == lane->next) worker.repeats[lane->index] = history.begun;
  }
  worker.waits.clear();
  worker.last_message = scope.now;
  worker.silent_until = absl::InfinitePast();
  scope.sessions[session].slot = slot;
  AddNote(job, scope, lives ? NoteKind::kWorkerReconnected : NoteKind::kWorkerAdmitted, worker.id,
          absl::StrCat("Incarnation ", ToString(worker.incarnation), "."));
  worker.lets_go = (hello.features & kFeatureLetGo) != 0;
  worker.knows_placement = (hello.features & kFeaturePlacement) != 0;
  worker.unreachable.clear();  // Its earlier session said them; it says so again.
  ReviewPlacement(job, scope, slot);
  WelcomeWorker(job, scope, slot, hello);
  if (reconnects) CorrectSamples(job, scope, slot, hello);
  AskAgain(job, scope, slot);
  TrimNames(job, scope);
}

}  // namespace basin::aggregator
