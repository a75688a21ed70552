// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_messages.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job_hello.h"
#include "aggregator/core/job_lanes.h"
#include "aggregator/core/job_members.h"
#include "aggregator/core/job_placement.h"
#include "aggregator/core/job_recovery.h"
#include "aggregator/core/job_rounds.h"
#include "aggregator/core/job_samples.h"
#include "aggregator/core/round_intake.h"
#include "aggregator/core/round_results.h"
#include "aggregator/core/round_settle.h"
#include "aggregator/core/spec.h"
#include "protocol/overloaded.h"

namespace basin::aggregator {
namespace {

// Notes that a message or frame of the worker has arrived.
void OnContact(Job& job, const JobScope& scope, Slot slot) {
  Worker& worker = job.workers[slot];
  if (scope.now - worker.last_message > scope.config.silence()) worker.silent_until = scope.now;
  worker.last_message = scope.now;
  OnPromise(job, scope, worker.id);
}

// The worker takes part in a round, so its trainer has the job's state.
void HoldsState(Job& job, const JobScope& scope, Slot slot) {
  if (std::exchange(job.workers[slot].holds_state, true)) return;
  ForRoundsOf(job, scope, slot,
              [&](Round& round, const RoundScope& in) { OnState(round, in, slot); });
}

// Why what is deferred to the next round of the lane cannot be, as the end of a sentence.
std::string WhyNotDeferred(const Lane& lane, const WorkerId& worker, const Begin& begin) {
  std::string why = WhyNotAdded(begin.spec, begin.deferred);
  // After a recovery from workers that have joined meanwhile, no verdict may be known here. Then
  // that with which the worker's library has compared it must do: to refuse it would end a trainer
  // that has done nothing wrong.
  const bool lost = lane.verdicts.empty() && lane.next > 1;
  if (!why.empty() || begin.deferred == 0 || lost) return why;
  return WhyNotLate(worker, lane.verdicts.empty() ? nullptr : &lane.verdicts.back());
}

template <typename T, typename = void>
struct IsAboutLane : std::false_type {};
template <typename T>
struct IsAboutLane<T, std::enable_if_t<std::is_same_v<decltype(T::lane), LaneIndex>>>
    : std::true_type {};

// Returns the lane that the message is about; kMostLaneIndexes, which no lane has, if there is
// none.
LaneIndex LaneOf(const ToAggregator& message) {
  return std::visit(
      []([[maybe_unused]] const auto& of) -> LaneIndex {
        if constexpr (IsAboutLane<std::decay_t<decltype(of)>>::value) return of.lane;
        return kMostLaneIndexes;
      },
      message);
}

void OnBegin(Job& job, const JobScope& scope, Slot slot, const Begin& begin) {
  Lane* lane = FindLane(job, scope, slot, begin.lane, begin.round);
  if (lane == nullptr) return;
  Worker& worker = job.workers[slot];
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string why = WhyNotAllowed(begin);
  if (why.empty() && begin.round == lane->next) why = WhyNotDeferred(*lane, worker.id, begin);
  // Otherwise they are those of its hello, which was checked.
  if (why.empty() && begin.trainers() > 1 && begin.trainers() != worker.ranks) {
    if (worker.knows_ranks) code = ErrorCode::kVersionMismatch;
    why = WhyNotKnown(job, begin.trainers(), worker.knows_ranks, worker.id);
  }
  if (why.empty()) {
    code = ErrorCode::kResourceExhausted;
    why = WhyNoMemoryForSamples(job, scope, *lane, slot, begin);
  }
  // What it repeats is older than the number in its hello.
  const auto repeats = worker.repeats.extract(begin.lane);
  const bool repeated = !repeats.empty() && repeats.mapped() == begin.round;
  if (!why.empty()) {
    RejectMessage(job, scope, slot, code,
                  absl::StrCat("Job ", job.name, ", lane ", lane->name, ", round ", begin.round,
                               ": the begin of worker ", worker.id, " ", why, "."),
                  begin.lane, begin.round);
  }
  Round* round = RoundFor(job, scope, slot, *lane, begin.lane, begin.round, true);
  if (round == nullptr && why.empty()) return;
  if (round != nullptr) {
    HoldsState(job, scope, slot);  // It computed a gradient with the state.
    const RoundScope in = ScopeOf(job, scope, begin.lane);
    if (why.empty()) {
      if (!repeated) worker.ranks = begin.ranks;
      lane->optimizers.Note(begin, job.lanes.Room(scope.config, scope.memory), scope.memory);
      OnBegin(*round, in, slot, begin);
      if (Lanes::NeedsMemory(scope.config, *lane)) {
        SendTo(job, scope, slot, HeldUp{begin.lane, begin.round, DescribeShortage(job, scope)});
      }
      if (begin.sample_epoch.has_value()) ChargeSamples(job, scope, *lane);
    } else {
      // The worker is present, but the round cannot count its contribution.
      OnWithdraw(*round, in, slot, absl::StrCat("its begin ", why));
    }
    AdvanceLane(job, scope, begin.lane);
  }
  job.NoteHeldUp();
}

}  // namespace

void NoteUnread(Job& job, const JobScope& scope, Slot slot) {
  OnContact(job, scope, slot);
  job.workers[slot].unread_at = scope.now;
}

void NoteUnread(Job& job, const JobScope& scope, const WaitingHello& hello) {
  const std::optional<Slot> slot = job.workers.Find(hello.worker);
  if (!slot.has_value()) return;
  Worker& worker = job.workers[*slot];
  if (worker.nonce != hello.nonce || worker.state == WorkerState::kLost) return;
  worker.unread_at = scope.now;
  if (worker.connected()) {
    worker.last_message = scope.now;  // Its earlier session has not ended here yet.
  } else {
    worker.lost_at = std::max(worker.lost_at, scope.now + scope.config.closed_lease);
  }
}

void OnMessage(Job& job, const JobScope& scope, Slot slot, const ToAggregator& message) {
  Worker& worker = job.workers[slot];
  OnContact(job, scope, slot);
  // It was sent before the worker knew that the lane is gone.
  if (job.lanes.IsGone(LaneOf(message))) return;

  // Runs `take` on the open round of a lane if the worker belongs to it. A worker that is behind
  // receives the verdicts that it missed instead.
  const auto in_round = [&](LaneIndex index, RoundNumber number, bool open, auto&& take) {
    Lane* lane = FindLane(job, scope, slot, index);
    if (lane == nullptr) return;
    Round* round = RoundFor(job, scope, slot, *lane, index, number, open);
    if (round == nullptr) return;
    take(*round, ScopeOf(job, scope, index));
    AdvanceLane(job, scope, index);
  };
  // A list may not name more chunks than the lane has. The lane's memory charge then also bounds
  // the work that one message can cause.
  const auto valid = [&](LaneIndex index, const std::vector<ChunkRange>& ranges) {
    uint64_t chunks = 0;
    for (const ChunkRange& range : ranges) {
      if (!job.lanes.Has(index) || !job.lanes[index].layout.Contains(range)) return false;
      chunks += range.count;
    }
    return ranges.empty() || chunks <= job.lanes[index].layout.chunks();
  };
  const auto refuse_ranges = [&](LaneIndex lane, RoundNumber round) {
    RejectMessage(job, scope, slot, ErrorCode::kInvalidArgument,
                  absl::StrCat("Job ", job.name, ": worker ", worker.id,
                               " named chunks that do not exist; update its client library."),
                  lane, round);
  };

  std::visit(
      Overloaded{
          [&](const Hello&) {
            RejectMessage(job, scope, slot, ErrorCode::kInvalidArgument,
                          "A session takes one hello; open another session.");
          },
          [&](const Ready& ready) { OnReady(job, scope, slot, ready); },
          [&](const Heartbeat& heartbeat) {
            worker.progress = heartbeat.progress;
            OnWaits(job, scope, slot, heartbeat.waits);
          },
          [&](const Register& request) { OnRegister(job, scope, slot, request); },
          [&](const LayoutSeen& seen) {
            Lane* lane = FindLane(job, scope, slot, seen.lane);
            if (lane == nullptr || seen.version > lane->layout.version()) return;
            // Its own registration may have been refused before another one added the lane.
            NoteRegistered(job, scope, slot, seen.lane);
            const uint32_t before = worker.LayoutSeen(seen.lane);
            if (seen.version <= before) return;
            worker.SeeLayout(seen.lane, seen.version);
            if (lane->round.has_value() && lane->round->Has(slot)) {
              OnLayoutSeen(*lane->round, ScopeOf(job, scope, seen.lane), slot, before);
            }
          },
          [&](const Begin& begin) { OnBegin(job, scope, slot, begin); },
          [&](const Skip& skip) {
            for (const TensorIndex tensor : skip.tensors) {
              if (job.lanes.Has(skip.lane) && tensor < job.lanes[skip.lane].layout.version())
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
              HoldsState(job, scope, slot);
              OnWithdraw(round, in, slot, withdraw.reason, withdraw.without_results);
            });
            job.NoteHeldUp();
          },
          [&](const Staged& staged) {
            in_round(staged.lane, staged.round, false, [&](Round& round, const RoundScope& in) {
              OnStaged(round, in, slot, staged);
            });
          },
          [&](const ResultAck& ack) {
            if (!job.lanes.Has(ack.lane) || !valid(ack.lane, ack.ranges)) {
              return refuse_ranges(ack.lane, ack.round);
            }
            Lane& lane = job.lanes[ack.lane];
            if (!lane.round.has_value() || lane.round->number != ack.round ||
                !lane.round->Has(slot)) {
              return;  // The round already has its verdict.
            }
            scope.actions.push_back(
                ResultsTaken{*worker.session, job.id, ack.lane, ack.round, ack.ballot, ack.ranges});
            OnResultAck(*lane.round, ScopeOf(job, scope, ack.lane), slot, ack);
            AdvanceLane(job, scope, ack.lane);
          },
          [&](const Need& need) {
            if (!valid(need.lane, need.ranges)) return refuse_ranges(need.lane, need.round);
            in_round(need.lane, need.round, false,
                     [&](Round& round, const RoundScope& in) { OnNeed(round, in, slot, need); });
          },
          [&](const Busy& busy) {
            worker.busy = busy.expected > absl::ZeroDuration() ? busy.reason : "";
            worker.busy_until = scope.now + busy.expected;
            AddNote(job, scope, NoteKind::kWorkerBusy, worker.id,
                    worker.busy.empty() ? "It is no longer busy." : worker.busy);
          },
          [&](const Abandon&) {
            Lose(job, scope, slot, NoteKind::kWorkerLost, "gave up its incarnation (abandon)",
                 Error{ErrorCode::kEvicted,
                       absl::StrCat("Worker ", worker.id, " of job ", job.name,
                                    " abandoned its rounds. Rejoin with state.")});
          },
          [&](const Finished&) {
            if (worker.finishing) return;
            worker.finishing = true;
            AddNote(job, scope, NoteKind::kWorkerFinished, worker.id, "It has run out of data.");
            LeaveOutOfCalls(job, scope, slot);
            // It takes part in no later round, and in an open round only if it has begun it.
            ForRoundsOf(job, scope, slot, [&](Round& round, const RoundScope& in) {
              if (round.phase() == RoundPhase::kPrepared) {
                OnState(round, in, slot);
              } else if (!round.HasBegun(slot)) {
                OnFinished(round, in, slot);
              }
            });
            ReturnAllSamples(job, scope, slot);
            job.changed = true;
          },
          [&](const Leave& leave) {
            Lose(job, scope, slot, NoteKind::kWorkerLeft, "left",
                 Error{ErrorCode::kOk,
                       absl::StrCat("Worker ", worker.id, " left job ", job.name, ".")});
            job.forget_when_idle = leave.forget;
          },
          [&](const Announce& announce) {
            job.blobs.Announce(BlobScopeOf(job, scope), slot, announce);
          },
          [&](const Get& get) {
            LeaveOutOfCalls(job, scope, slot);  // It may be waiting for a state to load.
            job.blobs.Get(BlobScopeOf(job, scope), slot, get);
            job.NoteHeldUp();
          },
          [&](const LeaseSamples& ask) { OnLeaseSamples(job, scope, slot, ask); },
          [&](const ReturnSamples& back) { OnReturnSamples(job, scope, slot, back); },
          [&](const ReportBatch& report) { OnReportBatch(job, scope, slot, report); },
          [&](const LetGo& let_go) { OnLetGo(job, scope, slot, let_go); },
          [&](const ShardUnreachable& unreachable) {
            OnShardUnreachable(job, scope, slot, unreachable);
          },
      },
      message);
}

void OnFrame(Job& job, const JobScope& scope, Slot slot, const FrameReceived& frame) {
  OnContact(job, scope, slot);
  Lane* lane = FindLane(job, scope, slot, frame.lane);
  if (lane == nullptr) {
    // There is no memory for the lane. If its begin finds some, the frame must come again.
    const bool waits = job.lanes.Has(frame.lane) && frame.kind == FrameKind::kContribution;
    std::vector<ChunkRange> refused(frame.ranges.begin(), frame.ranges.end());
    if (waits) SendTo(job, scope, slot, Credit{frame.lane, frame.round, 0, {}, std::move(refused)});
    return;
  }
  const bool well_formed = lane->layout.ContainsFrame(frame.ranges) &&
                           frame.digests.size() == CountChunks(frame.ranges) &&
                           frame.bytes == lane->layout.RangeBytes(frame.ranges) &&
                           frame.bytes <= scope.config.frame_bytes &&
                           frame.ranges.size() <= job.workers[slot].frame_tensors;
  if (!well_formed) {
    const ChunkRange first = frame.ranges.empty() ? ChunkRange{} : frame.ranges.front();
    RejectMessage(
        job, scope, slot, ErrorCode::kInvalidArgument,
        absl::StrCat("Job ", job.name, ", lane ", lane->name, ": a frame of worker ",
                     job.workers[slot].id, " does not fit the layout: ", frame.bytes, " bytes for ",
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
      OnSupply(*lane->round, ScopeOf(job, scope, frame.lane), slot, frame);
    }
    return;
  }
  const bool old_generation = scope.config.rules.fence_by_generation && lane->round.has_value() &&
                              lane->round->ballot.attempt > 1;
  if (frame.round < lane->next || old_generation) {
    // The round has its verdict and cannot use the bytes, so the client may release them.
    scope.actions.push_back(Note{NoteKind::kFrameStale, job.name, job.workers[slot].id, lane->name,
                                 frame.round, "A frame arrived for a round that has a verdict."});
    SendTo(job, scope, slot,
           Credit{frame.lane,
                  frame.round,
                  lane->memory.window,
                  {frame.ranges.begin(), frame.ranges.end()},
                  {}});
    return;
  }
  Round* round = RoundFor(job, scope, slot, *lane, frame.lane, frame.round, true);
  if (round == nullptr) return;
  OnFrame(*round, ScopeOf(job, scope, frame.lane), slot, frame);
  AdvanceLane(job, scope, frame.lane);
}

void OnBlob(Job& job, const JobScope& scope, Slot slot, const BlobReceived& received) {
  OnContact(job, scope, slot);
  job.blobs.Received(BlobScopeOf(job, scope), slot, received);
}

void LoseSession(Job& job, const JobScope& scope, std::optional<Slot> slot,
                 const SessionLost& lost) {
  job.evidence.held().LoseSession(lost.session);
  if (job.Idle()) job.idle_since = scope.now;
  if (!slot.has_value()) return;
  Worker& worker = job.workers[*slot];
  worker.session.reset();
  job.blobs.ForgetRequests(BlobScopeOf(job, scope), *slot);
  // A kernel closes all connections of a process only when it exits, and a live client reconnects
  // at once, so a short lease is enough. But after a network outage, delayed messages can arrive
  // together with the end of the connections; such a worker lives, so it keeps the full lease.
  const bool recent = scope.now - worker.last_message <= scope.config.silence() &&
                      scope.now - worker.silent_until >= scope.config.lease;
  const absl::Time by_silence = worker.last_message + scope.config.lease;
  // A client that sends what none sends is told so over a network that works. Whether it comes back
  // at once or never does, the others do not wait for it.
  const bool hurries = (lost.closed_by_peer && recent) || lost.malformed;
  worker.lost_at =
      hurries ? std::min(by_silence, scope.now + scope.config.closed_lease) : by_silence;
  AddNote(job, scope, NoteKind::kWorkerDisconnected, worker.id,
          !lost.ended.empty()   ? absl::StrCat("The aggregator ended its session. ", lost.ended)
          : lost.closed_by_peer ? "It closed its connections."
                                : "Its connection broke.");
}

}  // namespace basin::aggregator
