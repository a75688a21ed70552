// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a job admits a worker: it checks the run, the process and the history of its hello, and sends
// the welcome.

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job.h"
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

}  // namespace

void Job::Refuse(const JobScope& scope, SessionId session, const WorkerId& worker, ErrorCode code,
                 const std::string& text) {
  // Two groups of workers may have trained apart from each other, and operators must notice that.
  const NoteKind kind =
      code == ErrorCode::kLineageConflict ? NoteKind::kLineageConflict : NoteKind::kWorkerRefused;
  AddNote(scope, kind, worker, absl::StrCat(ErrorCodeName(code), ": ", text));
  scope.sessions.erase(session);
  scope.actions.push_back(EndSession{session, Error{code, text}});
}

bool Job::Expects(const Hello& hello) const { return HasOpenRound() && Knows(hello); }

bool Job::Knows(const Hello& hello) const {
  const std::optional<Slot> slot = workers_.Find(hello.worker);
  return slot.has_value() && workers_[*slot].nonce == hello.nonce &&
         workers_[*slot].state != WorkerState::kLost;
}

void Job::OnHello(const JobScope& scope, SessionId session, const Hello& hello) {
  if (!CheckRun(scope, session, hello)) return;
  const bool remembers = HasHistory(hello);
  if (!settings_.declared()) {
    if (!CheckBounds(scope, session, hello)) return;
    settings_.Declare(hello.settings);
    const bool long_up = scope.now >= scope.started + scope.config.recovery_window;
    const bool known = remembers || evidence_.HasSavedGeneration();
    const bool fresh = !known && (hello.fresh || long_up);
    if (fresh) {
      Apply(JobInput::kFreshHello);
      forming_.Begin(scope.now);
    } else {
      EnterRecovery(scope, "the aggregator does not remember this run");
    }
  }
  RestoreSettings(scope, hello);
  if (state() == JobState::kForming) evidence_.CloseAsNew();  // The file has told all it can.
  if (!CheckSettings(scope, session, hello)) return;
  const std::optional<Slot> known = workers_.Find(hello.worker);
  const bool same_process = known.has_value() && workers_[*known].nonce == hello.nonce;
  const bool was_superseded =
      known.has_value() && Contains(workers_[*known].superseded, hello.nonce);
  const bool decided = state() == JobState::kForming || state() == JobState::kRunning;
  if (decided && remembers && !was_superseded) {
    if (HighestTerm(hello) > term_) {
      if (!CheckTerm(scope, session, hello)) return;
      AddNote(scope, NoteKind::kSteppedDown, hello.worker,
              absl::StrCat("The worker has been in term ", HighestTerm(hello),
                           ", this aggregator in term ", term_,
                           ": another aggregator has served this job."));
      EnterRecovery(scope, "another aggregator has served this job meanwhile");
    } else if (!standing_.established() && !same_process) {
      if (state() == JobState::kRunning) standing_.Void();
      EnterRecovery(
          scope, absl::StrCat("worker ", hello.worker, " remembers a run that was started as new"));
    } else if (lanes_.Lack(hello, standing_.stands())) {
      EnterRecovery(
          scope, absl::StrCat("worker ", hello.worker,
                              " reports a verdict or a result that this aggregator has not seen"));
    }
  }
  if (state() == JobState::kRecovering || state() == JobState::kHalted) {
    HoldHello(scope, session, hello);
    return;
  }
  if (!CheckLineage(scope, session, hello)) return;
  Admit(scope, session, hello);
}

// Returns whether to believe a hello that names a higher term than the job's. Another aggregator
// can lead the members only after they have left this one. While more than half of them are
// connected here, a stranger that names such a term belongs to another run or lies, so the job
// refuses it and goes on. The stranger may retry while some of these connections may be stale.
bool Job::CheckTerm(const JobScope& scope, SessionId session, const Hello& hello) {
  if (TookPart(hello, workers_, membership(), lanes_)) return true;
  size_t connected = 0;
  size_t steady = 0;
  for (const WorkerId& id : membership().members) {
    const std::optional<Slot> slot = workers_.Find(id);
    if (!slot.has_value() || !workers_[*slot].connected()) continue;
    const Worker& worker = workers_[*slot];
    ++connected;
    // After a silence, the worker may have left this session without the aggregator noticing yet.
    steady += scope.now - worker.last_heard <= scope.config.silence() &&
              scope.now - worker.silent_until >= scope.config.lease;
  }
  const size_t members = membership().members.size();
  if (2 * connected <= members) return true;
  const std::string text =
      absl::StrCat("Job ", name_, ": worker ", hello.worker, " has been in term ",
                   HighestTerm(hello), ", and ", connected, " of ", CountOf(members, "member"),
                   connected == 1 ? " is" : " are", " connected in term ", term_, ". ");
  if (2 * steady > members) {
    Refuse(scope, session, hello.worker, ErrorCode::kLineageConflict,
           absl::StrCat(text,
                        "Its state is from another run with this name. Restart it; it then loads "
                        "the state of the other workers."));
  } else {
    Refuse(scope, session, hello.worker, ErrorCode::kUnavailable,
           absl::StrCat(text, "The client retries."));
  }
  return false;
}

bool Job::CheckRun(const JobScope& scope, SessionId session, const Hello& hello) {
  if (hello.run.empty() || hello.run == run_) return true;
  if (run_.empty() && !(settings_.declared() && standing_.sent_verdict())) {
    run_ = hello.run;
    evidence_.NameRun(run_);
    return true;
  }
  // A worker is present while it waits for the recovery. Until the window is over, it is present
  // even if its session has ended.
  const bool waits = !waiting().empty() ||
                     (!evidence_.held().hellos().empty() && state() == JobState::kRecovering);
  const bool present = waits || workers_.Count(WorkerState::kLost) < workers_.size();
  if (present) {
    Refuse(scope, session, hello.worker, ErrorCode::kRunConflict,
           absl::StrCat("Job ", name_, ": run ", run_.empty() ? "(unnamed)" : run_,
                        " is in progress, and worker ", hello.worker, " belongs to run ", hello.run,
                        ". Wait until its workers are gone, or use another job name."));
    return false;
  }
  AddNote(scope, NoteKind::kJobAdmitted, "", absl::StrCat("The new run is ", hello.run, "."));
  Forget(scope);
  generations_.ForgetMembers();
  evidence_.Close();
  settings_.Reopen();
  run_ = hello.run;
  return true;
}

bool Job::CheckBounds(const JobScope& scope, SessionId session, const Hello& hello) {
  const JobSettings asked = AgreedSettings::Resolve(hello.settings);
  if (asked.min_workers <= asked.start_workers && asked.start_workers <= asked.max_workers) {
    return true;
  }
  Refuse(scope, session, hello.worker, ErrorCode::kInvalidArgument,
         absl::StrCat("Job ", name_, ": worker ", hello.worker, " asks for min_workers = ",
                      asked.min_workers, ", start_workers = ", asked.start_workers,
                      ", max_workers = ", asked.max_workers,
                      "; required is min_workers <= start_workers <= max_workers."));
  return false;
}

bool Job::CheckSettings(const JobScope& scope, SessionId session, const Hello& hello) {
  const std::optional<AgreedSettings::Difference> differs = settings_.DiffersFrom(hello.settings);
  if (!differs.has_value()) return true;
  Refuse(scope, session, hello.worker, ErrorCode::kMismatch,
         absl::StrCat("Job ", name_, ": worker ", hello.worker, " asks for ", differs->name, " = ",
                      differs->theirs, ", but the job has ", differs->ours,
                      ". Start all workers of a job with the same settings."));
  return false;
}

bool Job::CheckLineage(const JobScope& scope, SessionId session, const Hello& hello) {
  if (!HasHistory(hello)) return true;
  for (const LaneHistory& history : hello.lanes) {
    if (history.last_verdict == 0) continue;
    const Lane* lane = lanes_.Named(history.name);
    const bool ahead = lane == nullptr || history.last_verdict >= lane->next;
    if (!ahead && lane->Agrees(history.last_verdict, history.chain)) continue;
    Refuse(scope, session, hello.worker, ErrorCode::kLineageConflict,
           absl::StrCat(
               "Job ", name_, ", lane ", history.name, ": worker ", hello.worker,
               " holds a verdict of round ", history.last_verdict,
               " that is not in this job's history",
               ahead ? absl::StrCat(", which ends at round ", lane == nullptr ? 0 : lane->next - 1)
                     : std::string(),
               ". Its model differs. Restart it; it then loads the state of the other workers."));
    return false;
  }
  return true;
}

// Returns why a worker with these ranks cannot be with those that are here, as the end of a
// sentence about it: a client that does not know of ranks would compute wrong ones. `knows`: its
// own does. A lost worker is still here in a round that counts it: the client of a worker that gets
// the verdict of this round would compute another history.
std::string Job::WhyNotKnown(uint32_t ranks, bool knows, const WorkerId& except) const {
  if (knows && ranks == 1) return "";
  if (!knows && ranks > 1) {
    return absl::StrCat("stands for ", ranks,
                        " trainers, but its client did not declare that feature; update it");
  }
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    const Worker& worker = workers_[slot];
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
  for (const Lane& lane : lanes_) {
    if (knows || !lane.round.has_value()) continue;
    const Contributor node = lane.round->CountedNode();
    if (!node.is_partial()) continue;
    return absl::StrCat("has a client that is too old to know that worker ", node.worker,
                        " stands for ", node.ranks, " trainers, which round ", lane.round->number,
                        " of lane ", lane.name, " counts; update it");
  }
  return "";
}

void Job::Admit(const JobScope& scope, SessionId session, const Hello& hello) {
  std::optional<Slot> found = workers_.Find(hello.worker);
  const bool reconnects = found.has_value() && workers_[*found].nonce == hello.nonce &&
                          workers_[*found].state != WorkerState::kLost &&
                          workers_[*found].incarnation == hello.incarnation;
  const bool knows_ranks = (hello.features & kFeatureRanks) != 0;
  const std::string why_not = WhyNotKnown(hello.ranks, knows_ranks, hello.worker);
  // A worker that reconnects is no newcomer. It keeps the number that it had, as when it reports
  // another one in a session: its begins of several trainers are refused.
  if (!reconnects && !why_not.empty()) {
    Refuse(scope, session, hello.worker, ErrorCode::kVersionMismatch,
           absl::StrCat("Job ", name_, ": worker ", hello.worker, " ", why_not, "."));
    return;
  }
  if (!found.has_value()) {
    found = SlotFor(scope, hello.worker);
    if (!found.has_value()) {
      Refuse(scope, session, hello.worker, ErrorCode::kResourceExhausted,
             absl::StrCat("Job ", name_, " has ", workers_.size(),
                          " workers, which is its limit (limits.workers). Try again when one of "
                          "them has left."));
      return;
    }
  }
  const Slot slot = *found;
  Worker& worker = workers_[slot];
  const Error superseded{ErrorCode::kSuperseded,
                         absl::StrCat("A newer process has replaced worker ", hello.worker,
                                      " of job ", name_, ". This process must exit.")};
  if (Contains(worker.superseded, hello.nonce)) {
    Refuse(scope, session, hello.worker, superseded.code, superseded.text);
    return;
  }
  if (worker.nonce != hello.nonce) {
    if (worker.state != WorkerState::kLost) {
      Lose(scope, slot, NoteKind::kWorkerSuperseded, "was replaced by a newer process", superseded);
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
    Lose(scope, slot, NoteKind::kWorkerLost, "gave up its incarnation",
         Error{ErrorCode::kStale, "A newer session of this process has taken over."});
  }

  const bool lives = worker.state != WorkerState::kLost;
  if (lives && worker.connected() && *worker.session != session) {
    scope.sessions.erase(*worker.session);
    scope.actions.push_back(
        EndSession{*worker.session,
                   Error{ErrorCode::kStale, "A newer session of this process has taken over."}});
    values_.ForgetRequests(ValuesScope(scope), slot);
  }
  if (!reconnects) {
    BeginAnew();
    workers_.Apply(slot, WorkerInput::kAdmit);
    worker.incarnation = workers_.NextIncarnation(term_);
    workers_.SetStillCounts(slot, false);
    worker.finishing = worker.left = worker.holds_state = worker.out_of_step = false;
    worker.member_since = Generation{};
    worker.busy.clear();
    worker.misfit.clear();
    worker.layouts.clear();
    worker.registered.clear();
  }
  worker.session = session;
  if (why_not.empty()) worker.ranks = hello.ranks;
  worker.knows_ranks = knows_ranks;
  worker.group = hello.group;
  worker.repeats.clear();
  for (const LaneHistory& history : hello.lanes) {
    const LaneIndex lane = lanes_.IndexOf(history.name);
    const bool open = reconnects && lane < lanes_.size() && history.begun == lanes_[lane].next;
    if (open) worker.repeats[lane] = history.begun;
  }
  worker.waits.clear();
  worker.last_heard = scope.now;
  worker.silent_until = absl::InfinitePast();
  scope.sessions[session].slot = slot;
  AddNote(scope, lives ? NoteKind::kWorkerReconnected : NoteKind::kWorkerAdmitted, worker.id,
          absl::StrCat("Incarnation ", ToString(worker.incarnation), "."));
  WelcomeWorker(scope, slot, hello);
}

// Finds a slot for a new worker. When the table is full, the slot comes from the worker that was
// lost longest ago among those that no list of members, round or state transfer names. The job then
// forgets which processes of that worker's id were superseded.
std::optional<Slot> Job::SlotFor(const JobScope& scope, const WorkerId& id) {
  if (workers_.size() < scope.config.max_workers) return workers_.Add(id);
  std::set<WorkerId> named = generations_.Named();
  for (const Lane& lane : lanes_) {
    if (!lane.round.has_value()) continue;
    for (const RoundMember& member : lane.round->members()) named.insert(member.id);
  }
  std::optional<Slot> oldest;
  for (Slot slot = 0; slot < workers_.size(); ++slot) {
    const Worker& worker = workers_[slot];
    const bool counts = worker.state != WorkerState::kLost || worker.still_counts;
    if (counts || named.count(worker.id) > 0) continue;
    if (!oldest.has_value() || worker.last_heard < workers_[*oldest].last_heard) oldest = slot;
  }
  if (oldest.has_value()) workers_.Reuse(*oldest, id);
  return oldest;
}

void Job::WelcomeWorker(const JobScope& scope, Slot slot, const Hello& hello) {
  Worker& worker = workers_[slot];
  Welcome welcome;
  welcome.token = scope.sessions[*worker.session].token;
  welcome.incarnation = worker.incarnation;
  welcome.run = run_;
  welcome.term = term_;
  welcome.role = IsMember(worker)                      ? Role::kMember
                 : worker.state == WorkerState::kSpare ? Role::kSpare
                                                       : Role::kJoiner;
  welcome.membership = membership();
  welcome.settings = settings();
  welcome.frame_bytes = scope.config.frame_bytes;
  welcome.heartbeat = scope.config.heartbeat;
  const bool runs = scope.config.frame_tensors > 1 && (hello.features & kFeatureRuns) != 0;
  welcome.features =
      (hello.features & (scope.config.features | kFeatureRanks)) | (runs ? kFeatureRuns : 0);
  worker.frame_tensors = runs ? scope.config.frame_tensors : 1;
  welcome.job_runs = GoesOnWithout();

  // A worker that became a member while it was disconnected does not know this, so it starts where
  // the lanes are.
  const auto& heard = hello.membership.members;
  const bool knows = hello.incarnation == worker.incarnation &&
                     !(hello.membership.generation < worker.member_since) &&
                     std::find(heard.begin(), heard.end(), worker.id) != heard.end();
  const bool news = IsMember(worker) && !knows;
  if (news) welcome.role = Role::kJoiner;

  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (lane.name.empty()) continue;
    welcome.layouts.push_back(LaneLayout{i, lane.name, lane.kind, 0, lane.layout.shared_tensors(),
                                         lane.next, lane.memory.window});
    // A former member also receives the verdicts of rounds that it took part in.
    if (!knows) continue;
    const auto history = std::find_if(hello.lanes.begin(), hello.lanes.end(),
                                      [&](const LaneHistory& h) { return h.name == lane.name; });
    const RoundNumber last = history == hello.lanes.end() ? 0 : history->last_verdict;
    LastVerdicts missed{i, {}};
    for (const VerdictRecord& record : lane.verdicts) {
      if (record.round > last) missed.verdicts.push_back(record);
    }
    if (!missed.verdicts.empty()) welcome.verdicts.push_back(std::move(missed));
    if (lane.round.has_value() && lane.round->Has(slot)) {
      welcome.open.push_back(Describe(*lane.round, ScopeOf(scope, i), slot));
    }
  }
  SendTo(scope, slot, std::move(welcome));
  if (news) {
    SendTo(
        scope, slot,
        MembershipChanged{membership(), Role::kMember, generations_.donor(), lanes_.StartRounds()});
  } else if (IsMember(worker) && AnyMemberLacksState(workers_)) {
    // The worker may not know that it serves its state, or which worker serves it.
    SendTo(scope, slot, MembershipChanged{membership(), Role::kMember, generations_.donor(), {}});
  }
  if (pause_.named() && state() == JobState::kRunning) {
    const std::string before = std::exchange(reason_, WhyPaused());
    if (reason_ == before) {
      SendTo(scope, slot, HeldUp{0, 0, reason_});
    } else {
      SendHeldUp(scope, reason_);
    }
  }
  // The session on which an earlier notice was sent may have ended before it arrived.
  if (worker.draining || scope.draining) SendTo(scope, slot, Drain{!worker.draining});
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (!lane.round.has_value() || !lane.round->Has(slot)) continue;
    const auto history = std::find_if(hello.lanes.begin(), hello.lanes.end(),
                                      [&](const LaneHistory& h) { return h.name == lane.name; });
    Resume(*lane.round, ScopeOf(scope, i), slot,
           history == hello.lanes.end() ? nullptr : &*history);
  }
  values_.Resume(ValuesScope(scope), slot);
}

}  // namespace basin::aggregator
