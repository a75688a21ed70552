// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a job passes what its workers send to lanes and rounds. Hellos are in job_hello.cc, recovery
// in job_recovery.cc, membership in job_members.cc, pauses in job_pause.cc, lanes in job_lanes.cc,
// timers in job_timers.cc, and verdicts in job_verdict.cc.

#include "aggregator/core/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/round_attempt.h"
#include "aggregator/core/round_intake.h"
#include "aggregator/core/round_results.h"
#include "aggregator/core/round_scope.h"
#include "aggregator/core/round_settle.h"
#include "aggregator/core/spec.h"
#include "protocol/overloaded.h"

namespace basin::aggregator {
const char* JobStateName(JobState state) {
  switch (state) {
    case JobState::kRecovering:
      return "RECOVERING";
    case JobState::kHalted:
      return "HALTED";
    case JobState::kForming:
      return "FORMING";
    case JobState::kRunning:
      return "RUNNING";
  }
  return "UNKNOWN";
}

const char* WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kAdmitted:
      return "ADMITTED";
    case WorkerState::kCandidate:
      return "READY";
    case WorkerState::kSpare:
      return "SPARE";
    case WorkerState::kMember:
      return "MEMBER";
    case WorkerState::kFinished:
      return "FINISHED";
    case WorkerState::kLost:
      return "LOST";
  }
  return "UNKNOWN";
}

Job::Job(JobId id, JobName name, Term term, std::optional<SavedState> saved, absl::Time now)
    : id_(id), name_(std::move(name)), term_(term), evidence_(std::move(saved)), idle_since_(now) {
  if (this->saved().has_value()) term_ = std::max(term_, this->saved()->term + 1);
}

bool Job::Fits(const JobScope& scope, const JobSettings& settings, std::string& why) {
  const uint64_t workers = std::max<uint32_t>(settings.max_workers, 1);
  const uint64_t need = LeastLaneMemory(scope.config, workers, scope.config.frame_bytes).reserved;
  const uint64_t quota = scope.config.max_job_bytes;
  if (quota != 0 && need > quota) {
    why = absl::StrCat("needs at least ", need, " bytes for ", workers, " workers with frames of ",
                       scope.config.frame_bytes, " bytes, and a job may have ", quota,
                       " (limits.job_memory). Lower max_workers, or have the limit raised");
    return false;
  }
  if (need <= scope.memory.free()) return true;
  why = absl::StrCat("needs at least ", need, " bytes for ", workers, " workers with frames of ",
                     scope.config.frame_bytes, " bytes, and ", scope.memory.free(), " of ",
                     scope.memory.total,
                     " are free. Give the aggregator more memory, or lower max_workers");
  return false;
}

RoundScope Job::ScopeOf(const JobScope& scope, LaneIndex index) const {
  const Lane& lane = lanes_[index];
  const JobContext job{id_,
                       name_,
                       workers_,
                       membership(),
                       lanes_.all(),
                       standing_.stands(),
                       loss_policy(scope.config),
                       LatePolicyNow(scope.config)};
  return RoundScope{scope.now, scope.config, scope.actions, job, index, lane, PausedIn(lane)};
}

ValueScope Job::ValuesScope(const JobScope& scope) const {
  const bool paused = state() == JobState::kRunning && Paused();
  return ValueScope{scope.now, scope.config, scope.memory, scope.actions,
                    id_,       name_,        workers_,     paused ? reason_ : std::string()};
}

Note& Job::AddNote(const JobScope& scope, NoteKind kind, const WorkerId& worker,
                   const std::string& text) const {
  return std::get<Note>(scope.actions.emplace_back(Note{kind, name_, worker, "", 0, text}));
}

void Job::SendTo(const JobScope& scope, Slot slot, ToWorker message) const {
  const Worker& worker = workers_[slot];
  if (worker.connected()) scope.actions.push_back(Send{*worker.session, std::move(message)});
}

void Job::RejectMessage(const JobScope& scope, Slot slot, ErrorCode code, const std::string& text,
                        std::optional<LaneIndex> lane, RoundNumber round) {
  Reject(scope, slot, Rejected{Error{code, text}, lane, round});
}

void Job::Reject(const JobScope& scope, Slot slot, Rejected rejected) {
  AddNote(scope, NoteKind::kContributionRejected, workers_[slot].id,
          absl::StrCat(ErrorCodeName(rejected.error.code), ": ", rejected.error.text));
  SendTo(scope, slot, std::move(rejected));
}

// Notes that a message or frame of the worker has arrived.
void Job::Hear(const JobScope& scope, Slot slot) {
  Worker& worker = workers_[slot];
  if (scope.now - worker.last_heard > scope.config.silence()) worker.silent_until = scope.now;
  worker.last_heard = scope.now;
  OnPromise(scope, worker.id);
}

void Job::NoteUnread(const JobScope& scope, Slot slot) {
  Hear(scope, slot);
  workers_[slot].unread_at = scope.now;
}

void Job::NoteUnread(const JobScope& scope, const WaitingHello& hello) {
  const std::optional<Slot> slot = workers_.Find(hello.worker);
  if (!slot.has_value()) return;
  Worker& worker = workers_[*slot];
  if (worker.nonce != hello.nonce || worker.state == WorkerState::kLost) return;
  worker.unread_at = scope.now;
  if (worker.connected()) {
    worker.last_heard = scope.now;  // Its earlier session has not ended here yet.
  } else {
    worker.lost_at = std::max(worker.lost_at, scope.now + scope.config.closed_lease);
  }
}

bool Job::Unstarted() const {
  return state() == JobState::kForming && membership().generation == Generation{} &&
         workers_.Count(WorkerState::kCandidate) == 0;
}

bool Job::Idle() const {
  if (!waiting().empty()) return false;
  return workers_.Count(WorkerState::kLost) == workers_.size();
}

bool Job::Expired(const JobScope& scope) const { return scope.now >= IdleDue(scope.config); }

// ---- messages

void Job::OnMessage(const JobScope& scope, Slot slot, const ToAggregator& message) {
  Worker& worker = workers_[slot];
  Hear(scope, slot);

  // Runs `take` on the open round of a lane if the worker belongs to it. A worker that is behind
  // receives the verdicts that it missed instead.
  const auto in_round = [&](LaneIndex index, RoundNumber number, bool open, auto&& take) {
    Lane* lane = FindLane(scope, slot, index);
    if (lane == nullptr) return;
    Round* round = RoundFor(scope, slot, *lane, index, number, open);
    if (round == nullptr) return;
    take(*round, ScopeOf(scope, index));
    AdvanceLane(scope, index);
  };
  // A list may not name more chunks than the lane has. The lane's memory charge then also bounds
  // the work that one message can cause.
  const auto valid = [&](LaneIndex index, const std::vector<ChunkRange>& ranges) {
    uint64_t chunks = 0;
    for (const ChunkRange& range : ranges) {
      if (index >= lanes_.size() || !lanes_[index].layout.Contains(range)) return false;
      chunks += range.count;
    }
    return ranges.empty() || chunks <= lanes_[index].layout.chunks();
  };
  const auto refuse_ranges = [&](LaneIndex lane, RoundNumber round) {
    RejectMessage(scope, slot, ErrorCode::kInvalidArgument,
                  absl::StrCat("Job ", name_, ": worker ", worker.id,
                               " named chunks that do not exist; update its client library."),
                  lane, round);
  };

  std::visit(
      Overloaded{
          [&](const Hello&) {
            RejectMessage(scope, slot, ErrorCode::kInvalidArgument,
                          "A session takes one hello; open another session.");
          },
          [&](const Ready& ready) { OnReady(scope, slot, ready); },
          [&](const Heartbeat& heartbeat) {
            worker.progress = heartbeat.progress;
            OnWaits(scope, slot, heartbeat.waits);
          },
          [&](const Register& request) { OnRegister(scope, slot, request); },
          [&](const LayoutSeen& seen) {
            Lane* lane = FindLane(scope, slot, seen.lane);
            if (lane == nullptr || seen.version > lane->layout.version()) return;
            const uint32_t before = worker.LayoutSeen(seen.lane);
            if (seen.version <= before) return;
            worker.SeeLayout(seen.lane, seen.version);
            if (lane->round.has_value() && lane->round->Has(slot)) {
              OnLayoutSeen(*lane->round, ScopeOf(scope, seen.lane), slot, before);
            }
          },
          [&](const Begin& begin) { OnBegin(scope, slot, begin); },
          [&](const Skip& skip) {
            for (const TensorIndex tensor : skip.tensors) {
              if (skip.lane < lanes_.size() && tensor < lanes_[skip.lane].layout.version())
                continue;
              return refuse_ranges(skip.lane, skip.round);
            }
            in_round(skip.lane, skip.round, true,
                     [&](Round& round, const RoundScope& in) { OnSkip(round, in, slot, skip); });
          },
          [&](const Commit& commit) {
            if (commit.present.size() > commit.layout_version) {
              return refuse_ranges(commit.lane, commit.round);
            }
            in_round(commit.lane, commit.round, false, [&](Round& round, const RoundScope& in) {
              OnCommit(round, in, slot, commit);
            });
          },
          [&](const Withdraw& withdraw) {
            in_round(withdraw.lane, withdraw.round, true, [&](Round& round, const RoundScope& in) {
              HoldsState(scope, slot);
              OnWithdraw(round, in, slot, withdraw.reason, withdraw.without_results);
            });
            NoteHeldUp();
          },
          [&](const Staged& staged) {
            in_round(staged.lane, staged.round, false, [&](Round& round, const RoundScope& in) {
              OnStaged(round, in, slot, staged);
            });
          },
          [&](const ResultAck& ack) {
            if (ack.lane >= lanes_.size() || !valid(ack.lane, ack.ranges)) {
              return refuse_ranges(ack.lane, ack.round);
            }
            Lane& lane = lanes_[ack.lane];
            if (!lane.round.has_value() || lane.round->number != ack.round ||
                !lane.round->Has(slot)) {
              return;  // The round already has its verdict.
            }
            scope.actions.push_back(
                ResultsTaken{*worker.session, id_, ack.lane, ack.round, ack.ballot, ack.ranges});
            OnResultAck(*lane.round, ScopeOf(scope, ack.lane), slot, ack);
            AdvanceLane(scope, ack.lane);
          },
          [&](const Need& need) {
            if (!valid(need.lane, need.ranges)) return refuse_ranges(need.lane, need.round);
            in_round(need.lane, need.round, false,
                     [&](Round& round, const RoundScope& in) { OnNeed(round, in, slot, need); });
          },
          [&](const Busy& busy) {
            worker.busy = busy.expected > absl::ZeroDuration() ? busy.reason : "";
            worker.busy_until = scope.now + busy.expected;
            AddNote(scope, NoteKind::kWorkerBusy, worker.id,
                    worker.busy.empty() ? "It is no longer busy." : worker.busy);
          },
          [&](const Abandon&) {
            Lose(scope, slot, NoteKind::kWorkerLost, "gave up its incarnation (abandon)",
                 Error{ErrorCode::kEvicted,
                       absl::StrCat("Worker ", worker.id, " of job ", name_,
                                    " abandoned its rounds. Rejoin with state.")});
          },
          [&](const Finished&) {
            if (worker.finishing) return;
            worker.finishing = true;
            AddNote(scope, NoteKind::kWorkerFinished, worker.id, "It has run out of data.");
            LeaveOutOfCalls(scope, slot);
            // It takes part in no later round, and in an open round only if it has begun it.
            for (LaneIndex i = 0; i < lanes_.size(); ++i) {
              Lane& lane = lanes_[i];
              if (!lane.round.has_value() || !lane.round->Has(slot)) continue;
              if (lane.round->phase() == RoundPhase::kPrepared) {
                OnState(*lane.round, ScopeOf(scope, i), slot);
              } else if (!lane.round->HasBegun(slot)) {
                OnFinished(*lane.round, ScopeOf(scope, i), slot);
              }
            }
            changed_ = true;
          },
          [&](const Leave& leave) {
            Lose(scope, slot, NoteKind::kWorkerLeft, "left",
                 Error{ErrorCode::kOk,
                       absl::StrCat("Worker ", worker.id, " left job ", name_, ".")});
            forget_when_idle_ = leave.forget;
          },
          [&](const Announce& announce) { values_.Announce(ValuesScope(scope), slot, announce); },
          [&](const Get& get) {
            LeaveOutOfCalls(scope, slot);  // It may be waiting for a state to load.
            values_.Get(ValuesScope(scope), slot, get);
            NoteHeldUp();
          },
      },
      message);
}

// ---- rounds

// The members of a round that opens now, in byte order of the id.
std::vector<RoundMember> Job::RoundMembers(LaneKind kind) const {
  std::vector<RoundMember> members;
  for (const auto& [id, slot] : workers_.by_id()) {
    const Worker& worker = workers_[slot];
    if (worker.state != WorkerState::kMember || worker.finishing) continue;
    RoundMember member;
    member.slot = slot;
    member.id = id;
    member.incarnation = worker.incarnation;
    // A round waits for every member. A call may go on without one that is out of step; see
    // LeaveOut.
    const bool may_be_elsewhere = kind == LaneKind::kCall && worker.out_of_step;
    if (may_be_elsewhere)
      member.presence = StateMachine<kPresenceTransitions>(Presence::kUndecided);
    members.push_back(std::move(member));
  }
  return members;
}

// Returns the round `number` of a lane if this worker may act in it. With `open`, the first member
// that acts opens the round. A worker that is behind receives the verdicts that it missed.
Round* Job::RoundFor(const JobScope& scope, Slot slot, Lane& lane, LaneIndex index,
                     RoundNumber number, bool open) {
  if (number < lane.next) {
    TellVerdictAgain(scope, slot, lane, index, number);
    return nullptr;
  }
  // A draining service opens no round; the next aggregator answers this worker.
  if (open && scope.draining && !lane.Open()) return nullptr;
  const Worker& worker = workers_[slot];
  if (number > lane.next) {
    RejectMessage(
        scope, slot, ErrorCode::kInvalidArgument,
        absl::StrCat("Job ", name_, ", lane ", lane.name, ": worker ", worker.id, " acts in round ",
                     number, " while round ", lane.next, " has no verdict."),
        index, number);
    return nullptr;
  }
  if (!lane.round.has_value() && open && state() == JobState::kRunning && IsMember(worker) &&
      !worker.finishing) {
    std::vector<RoundMember> members = RoundMembers(lane.kind);
    // With the lane's index a session gets the window of its rounds; without it, it sends nothing.
    for (RoundMember& member : members) member.room.told = lane.memory.window;
    lane.round.emplace(number, Ballot{term_, 1}, std::move(members), lane.layout, scope.now);
    lane.last_used = scope.now;
  }
  if (lane.round.has_value() && lane.round->Has(slot)) return &*lane.round;
  if (open) {
    RejectMessage(scope, slot, ErrorCode::kFailedPrecondition,
                  absl::StrCat("Job ", name_, ", lane ", lane.name, ": worker ", worker.id,
                               " is not a member of round ", number, "; wait until it is one."),
                  index, number);
  }
  return nullptr;
}

void Job::TellVerdictAgain(const JobScope& scope, Slot slot, const Lane& lane, LaneIndex index,
                           RoundNumber number) {
  for (const VerdictRecord& record : lane.verdicts) {
    if (record.round >= number) SendTo(scope, slot, Verdict{index, record, generations_.donor()});
  }
  if (lane.verdicts.empty() || number < lane.verdicts.front().round) {
    RejectMessage(scope, slot, ErrorCode::kStale,
                  absl::StrCat("Job ", name_, ", lane ", lane.name, ": worker ", workers_[slot].id,
                               " acts in round ", number,
                               ", which has a verdict; the lane is at round ", lane.next, "."),
                  index, number);
  }
}

void Job::OnBegin(const JobScope& scope, Slot slot, const Begin& begin) {
  Lane* lane = FindLane(scope, slot, begin.lane);
  if (lane == nullptr) return;
  const Worker& worker = workers_[slot];
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string why = WhyNotAllowed(begin);
  // Otherwise they are those of its hello, which was checked.
  if (why.empty() && begin.trainers() > 1 && begin.trainers() != worker.ranks) {
    if (worker.knows_ranks) code = ErrorCode::kVersionMismatch;
    why = WhyNotKnown(begin.trainers(), worker.knows_ranks, worker.id);
  }
  // What it repeats is older than the number in its hello.
  const auto repeats = workers_[slot].repeats.extract(begin.lane);
  const bool repeated = !repeats.empty() && repeats.mapped() == begin.round;
  if (!why.empty()) {
    RejectMessage(scope, slot, code,
                  absl::StrCat("Job ", name_, ", lane ", lane->name, ", round ", begin.round,
                               ": the begin of worker ", workers_[slot].id, " ", why, "."),
                  begin.lane, begin.round);
    // The begin shows that the worker is present, but the round cannot count its contribution.
    if (Round* round = RoundFor(scope, slot, *lane, begin.lane, begin.round, true)) {
      HoldsState(scope, slot);
      OnWithdraw(*round, ScopeOf(scope, begin.lane), slot, absl::StrCat("its begin ", why));
      AdvanceLane(scope, begin.lane);
    }
    NoteHeldUp();
    return;
  }
  Round* round = RoundFor(scope, slot, *lane, begin.lane, begin.round, true);
  if (round == nullptr) return;
  HoldsState(scope, slot);  // It computed a gradient with the state.
  if (!repeated) workers_[slot].ranks = begin.ranks;
  aggregator::OnBegin(*round, ScopeOf(scope, begin.lane), slot, begin);
  AdvanceLane(scope, begin.lane);
  NoteHeldUp();
}

// The worker takes part in a round, so its trainer has the job's state.
void Job::HoldsState(const JobScope& scope, Slot slot) {
  if (std::exchange(workers_[slot].holds_state, true)) return;
  for (LaneIndex i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    if (lane.round.has_value() && lane.round->Has(slot)) {
      OnState(*lane.round, ScopeOf(scope, i), slot);
    }
  }
}

void Job::OnFrame(const JobScope& scope, Slot slot, const FrameReceived& frame) {
  Hear(scope, slot);
  Lane* lane = FindLane(scope, slot, frame.lane);
  if (lane == nullptr) return;
  const bool well_formed = lane->layout.ContainsFrame(frame.ranges) &&
                           frame.digests.size() == CountChunks(frame.ranges) &&
                           frame.bytes == lane->layout.RangeBytes(frame.ranges) &&
                           frame.bytes <= scope.config.frame_bytes &&
                           frame.ranges.size() <= workers_[slot].frame_tensors;
  if (!well_formed) {
    const ChunkRange first = frame.ranges.empty() ? ChunkRange{} : frame.ranges.front();
    RejectMessage(
        scope, slot, ErrorCode::kInvalidArgument,
        absl::StrCat("Job ", name_, ", lane ", lane->name, ": a frame of worker ",
                     workers_[slot].id, " does not fit the layout: ", frame.bytes, " bytes for ",
                     first.count, " chunks from ", first.first, " of tensor ", first.tensor,
                     frame.ranges.size() > 1
                         ? absl::StrCat(" and of ", frame.ranges.size() - 1, " more")
                         : "",
                     "."),
        frame.lane, frame.round);
    return;
  }
  if (frame.kind == FrameKind::kSupply) {
    if (lane->round.has_value() && lane->round->number == frame.round && lane->round->Has(slot)) {
      OnSupply(*lane->round, ScopeOf(scope, frame.lane), slot, frame);
    }
    return;
  }
  const bool old_generation = scope.config.rules.fence_by_generation && lane->round.has_value() &&
                              lane->round->ballot.attempt > 1;
  if (frame.round < lane->next || old_generation) {
    // The round has its verdict and cannot use the bytes, so the client may release them.
    scope.actions.push_back(Note{NoteKind::kFrameStale, name_, workers_[slot].id, lane->name,
                                 frame.round, "A frame arrived for a round that has a verdict."});
    SendTo(scope, slot,
           Credit{frame.lane,
                  frame.round,
                  lane->memory.window,
                  {frame.ranges.begin(), frame.ranges.end()},
                  {}});
    return;
  }
  Round* round = RoundFor(scope, slot, *lane, frame.lane, frame.round, true);
  if (round == nullptr) return;
  aggregator::OnFrame(*round, ScopeOf(scope, frame.lane), slot, frame);
  AdvanceLane(scope, frame.lane);
}

void Job::OnValue(const JobScope& scope, Slot slot, const ValueReceived& received) {
  Hear(scope, slot);
  values_.Received(ValuesScope(scope), slot, received);
}

void Job::OnReduceDone(const JobScope& scope, const ReduceDone& done) {
  if (done.lane >= lanes_.size()) return;
  Lane& lane = lanes_[done.lane];
  if (!lane.round.has_value() || lane.round->number != done.round) return;
  aggregator::OnReduceDone(*lane.round, ScopeOf(scope, done.lane), done);
  AdvanceLane(scope, done.lane);
}

void Job::AdvanceLane(const JobScope& scope, LaneIndex index) {
  Lane& lane = lanes_[index];
  if (!lane.round.has_value() || generations_.HoldsVerdict(index)) return;
  if (std::exchange(lane.round->reconnect, false)) {
    EndAllSessions(scope, Error{ErrorCode::kUnavailable,
                                absl::StrCat("Job ", name_, " repeats round ", lane.next,
                                             ". The client reconnects by itself.")});
  }
  if (lane.round->phase() != RoundPhase::kPrepared) return;
  const Rules& rules = scope.config.rules;
  const bool at_once =
      !rules.two_phases || (!rules.second_prepare && lane.round->adopted.has_value());
  if (at_once || (lane.round->Settled() && standing_.stands())) Settle(scope, index);
}

// Stops at the first verdict, because it may change the members.
void Job::AdvanceAll(const JobScope& scope) {
  for (LaneIndex i = 0; i < lanes_.size() && !changed_; ++i) {
    if (lanes_[i].round.has_value()) Advance(*lanes_[i].round, ScopeOf(scope, i));
    AdvanceLane(scope, i);
  }
}

}  // namespace basin::aggregator
