// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_attempt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "aggregator/core/round_intake.h"
#include "aggregator/core/round_late.h"
#include "aggregator/core/round_members.h"
#include "aggregator/core/round_results.h"
#include "aggregator/core/round_settle.h"
#include "aggregator/core/round_shards.h"
#include "aggregator/core/spec.h"

namespace basin::aggregator {
namespace {

// Refuses those that are at another step: averages of different steps would train another model.
void CompareSteps(Round& round, const RoundScope& scope) {
  const RoundMember* reference = Agreement::Reference(round.roster, &Contribution::compared_step);
  if (reference == nullptr) return;
  const uint64_t step = *reference->contribution.compared_step();
  const WorkerId id = reference->id;
  for (RoundMember& member : round.roster) {
    const uint64_t mine = member.contribution.compared_step().value_or(step);
    if (mine == step) continue;
    Refuse(round, scope, member, ErrorCode::kMismatch,
           absl::StrCat("Job ", scope.job.name, ", lane ", scope.lane.name, ", round ",
                        round.number, ": worker ", member.id, " is at step ", mine, ", but worker ",
                        id, " is at step ", step,
                        ": one of them has skipped a step, or made a backward or a step that the "
                        "others have not made. It is not counted in this round. Let all workers "
                        "make the same backwards and steps, also after an error, and start this "
                        "one again: it gets the state of the others."));
  }
}

// Refuses those whose optimizers have other numbers: they would make other steps of the same
// average, and the models would drift apart without a sign.
void CompareOptimizers(Round& round, const RoundScope& scope) {
  const RoundMember* reference =
      Agreement::Reference(round.roster, &Contribution::compared_optimizer);
  round.agreement.SetOptimizer(
      reference == nullptr ? 0 : *reference->contribution.compared_optimizer());
  if (reference == nullptr) return;
  const uint64_t hash = round.agreement.optimizer();
  const WorkerId id = reference->id;
  for (RoundMember& member : round.roster) {
    const uint64_t mine = member.contribution.compared_optimizer().value_or(hash);
    if (mine == hash) continue;
    Refuse(round, scope, member, ErrorCode::kMismatch,
           absl::StrCat(
               "Job ", scope.job.name, ", lane ", scope.lane.name, ", round ", round.number,
               ": the optimizers differ: ",
               scope.lane.optimizers.Difference(member.id, mine, id, hash), ". Worker ", member.id,
               " is not counted in this round. Create the optimizer with the same arguments "
               "on all workers, step schedulers in the same steps, and share a checkpoint "
               "that only one worker has loaded. If they are meant to differ, do not compare "
               "them (check_optimizer=False in Python)."));
  }
}

// How the lanes of calls without a name begin; the client has the rest.
constexpr char kUnnamedCalls[] = "call/unnamed/";

// Ends the round if the contributors make different calls: a result over those that agree would
// belong to another place in the program of one of them. Returns whether they do.
bool EndDifferentCalls(Round& round, const RoundScope& scope) {
  const auto different = Agreement::DifferentCalls(round.roster);
  if (!different.has_value() || scope.config.rules.reduces_different_calls) return false;
  const auto called = [](const RoundMember& member) {
    const std::string& call = member.contribution.begin().call;
    return absl::StrCat("worker ", member.id, " calls ", call.empty() ? "something else" : call);
  };
  const char* const way_out =
      absl::StartsWith(scope.lane.name, kUnnamedCalls)
          ? ". Calls without a name are matched by their order in the program of each worker: make "
            "the same calls in the same order on all workers, or give each call a name"
          : ". Calls of one name are matched: make the same call on all workers, or give different "
            "calls different names";
  PrepareAborted(
      round, scope, AbortCause::kMismatch,
      absl::StrCat(called(*different->first), ", but ", called(*different->second), way_out));
  return true;
}

// Chooses the spec once every contributor has begun, and refuses those that began with another one.
void Compare(Round& round, const RoundScope& scope) {
  if (round.agreement.made() || scope.paused || round.phase() != RoundPhase::kCollect) return;
  if (round.roster.contributors() == 0 || round.roster.begun() < round.roster.contributors())
    return;
  if (EndDifferentCalls(round, scope)) return;
  const WorkerId& reference = round.agreement.Make(round.roster, scope.lane.last_spec).id;
  const RoundSpec& spec = round.agreement.spec();
  for (RoundMember& member : round.roster) {
    if (!member.contribution.counts() || member.contribution.begin().spec == spec) continue;
    Refuse(round, scope, member, ErrorCode::kMismatch,
           absl::StrCat("Job ", scope.job.name, ", lane ", scope.lane.name, ", round ",
                        round.number, ": worker ", member.id, " began with ",
                        DescribeDifference(member.contribution.begin().spec, spec), " of worker ",
                        reference,
                        ". It is not counted in this round; make the workers agree and continue, a "
                        "restart is not needed."));
  }
  CompareSteps(round, scope);
  CompareOptimizers(round, scope);
  StartAttemptNow(round, scope);
  Rescan(round, scope);
}

// Clears and returns the member's chunks that must be pushed again: those of `redo`, or all chunks
// if `all`.
std::vector<ChunkRange> TakeBack(Round& round, const RoundScope& scope, RoundMember& member,
                                 const std::vector<uint32_t>& redo, bool all) {
  RangeBuilder ranges(scope.lane.layout);
  RangeBuilder parked(scope.lane.layout);
  const auto take = [&](uint32_t flat) {
    const bool is_parked = !round.attempt.IsReduced(flat);
    const ShardId shard = scope.lane.shares.Of(scope.lane.layout, flat);
    if (!member.contribution.TakeBack(flat, scope.lane.layout.SizeOf(flat), shard, is_parked)) {
      return;
    }
    ranges.Add(flat);
    member.asked.Clear(flat);
    if (round.attempt.IsOpen(flat)) parked.Add(flat);
  };
  if (all) {
    for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) take(flat);
    member.contribution.Refetch();
  } else {
    for (const uint32_t flat : redo) take(flat);
  }
  member.reception.ForgetAll();
  DiscardParked(round, scope, member.incarnation, parked.Take());
  std::vector<ChunkRange> taken = ranges.Take();
  if (!taken.empty() && member.contribution.effective()) {
    round.roster.Apply(member, ContributionInput::kTakeBack);
  }
  return taken;
}

}  // namespace

void StartAttemptNow(const Round& round, const RoundScope& scope) {
  StartAttempt start{scope.job.id,
                     scope.index,
                     round.number,
                     round.ballot,
                     Resolve(round.agreement.spec(), round.roster.trainers()),
                     {}};
  for (const RoundMember& member : round.roster) {
    if (!member.contribution.counts()) continue;
    start.contributors.push_back({member.id, member.incarnation, round.agreement.WeightOf(member),
                                  std::nullopt, member.contribution.begin().trainers()});
    start.contributors.back().deferred = member.contribution.begin().deferred;
  }
  scope.actions.push_back(std::move(start));
}

void Restart(Round& round, const RoundScope& scope, const std::string& reason,
             const RoundMember* refetched) {
  if (!round.Apply(scope, RoundInput::kRestart)) return;
  ++round.ballot.attempt;
  round.value_ballot = round.ballot;
  round.PlanAgain();
  const std::vector<uint32_t> redo = round.attempt.Started();
  std::vector<std::vector<ChunkRange>> again;
  for (RoundMember& member : round.roster) {
    again.push_back(TakeBack(round, scope, member, redo, &member == refetched));
  }
  round.attempt.StartAgain();
  round.held.Clear();
  round.held.NoteRoom();
  for (RoundMember& member : round.roster) {
    if (member.alive() || !member.contribution.incomplete()) continue;
    round.dropped.push_back(member.id);
    AddNote(round, scope, NoteKind::kContributionDropped, member.id,
            "It was complete, but its worker is lost, and the new attempt needs its bytes again.")
        .cause = NoteCause::kNeededAgain;
    RemoveContribution(round, scope, member, ContributionInput::kDrop);
  }
  round.attempt.ClearArrived();
  for (const RoundMember& member : round.roster) {
    if (!member.contribution.counts()) continue;
    for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) {
      if (member.contribution.Has(flat)) round.attempt.Arrived(flat);
    }
  }
  AddNote(round, scope, NoteKind::kAttemptRestarted, "",
          absl::StrCat("Round ", round.number, " is reduced again in attempt ",
                       ToString(round.ballot), ": ", reason, "."));
  auto pushed_again = again.begin();
  for (RoundMember& member : round.roster) {
    std::vector<ChunkRange>& ranges = *pushed_again++;
    member.asked.ClearAll();  // In pull mode, the front is chosen again.
    member.named_late = false;
    UpdateBlocked(round, scope, member);
    if (!member.alive()) continue;
    SendTo(scope, member,
           AttemptRestarted{scope.index, round.number, round.ballot, reason, std::move(ranges),
                            FlowControl::Least(scope.lane.memory, member, scope.lane.shares)});
    SendWindows(round, scope, member);
  }
  // Even before all have begun, to invalidate the old ballot's reductions.
  StartAttemptNow(round, scope);
  Rescan(round, scope);
  Advance(round, scope);
}

bool IsWhole(const Round& round, TensorIndex tensor, uint32_t flat) {
  return round.agreement.made() && round.attempt.IsWhole(tensor, flat, round.roster.contributors());
}

void CheckReady(Round& round, TensorIndex tensor, uint32_t flat) {
  if (IsWhole(round, tensor, flat)) round.attempt.Queue(flat);
}

void Rescan(Round& round, const RoundScope& scope) {
  round.attempt.ClearQueue();
  if (!round.agreement.made()) return;
  for (TensorIndex tensor = 0; tensor < scope.lane.layout.version(); ++tensor) {
    for (const uint32_t flat : scope.lane.layout.Chunks(tensor)) {
      CheckReady(round, tensor, flat);
    }
  }
}

void PumpReduce(Round& round, const RoundScope& scope) {
  if (round.phase() != RoundPhase::kCollect) return;
  // Tensors that the same contributors skip have the same divisor.
  const auto alike = [&](TensorIndex a, TensorIndex b) {
    return round.attempt.Skips(a) == round.attempt.Skips(b) &&
           (round.attempt.Skips(a) == 0 ||
            round.roster.SkippersOf(a) == round.roster.SkippersOf(b));
  };
  while (round.attempt.AnyReady()) {
    const uint64_t room = round.held.Room(scope.lane.memory.result_window);
    ChunkRanges ranges = round.attempt.Next(scope.lane.layout, scope.lane.shares,
                                            std::min(scope.config.frame_bytes, room),
                                            scope.config.frame_tensors, alike);
    const uint64_t bytes = scope.lane.layout.RangeBytes(ranges);
    if (bytes > room && round.held.bytes() > 0) {
      round.held.NoteFull(scope.now);
      return;
    }
    const TensorIndex tensor = ranges.front().tensor;
    const ShardId shard = scope.lane.shares.Head(scope.lane.layout, ranges.front()).first;
    round.attempt.Start(CountChunks(ranges));
    round.held.Start(bytes);
    // The divisor is 0 if the weights sum to zero. The value then has no result.
    const uint32_t skips = round.attempt.Skips(tensor);
    const uint64_t divisor = round.agreement.DivisorOf(round.roster, tensor, skips,
                                                       round.agreement.Divisor(round.roster));
    scope.actions.push_back(
        Reduce{scope.job.id, scope.index, round.number, round.ballot, std::move(ranges),
               std::max<uint64_t>(1, divisor),
               skips == 0 ? std::vector<uint32_t>{} : round.roster.SkippersOf(tensor), shard});
  }
  round.held.NoteRoom();
}

void OnReduceDone(Round& round, const RoundScope& scope, const ReduceDone& done) {
  // It may be of an older attempt.
  if (!(done.ballot == round.ballot) || round.phase() != RoundPhase::kCollect) return;
  // Or of a shard that does not hold the chunks any more.
  for (const ChunkRange& range : done.ranges) {
    if (!scope.lane.layout.Contains(range)) return;
    if (scope.lane.shares.Head(scope.lane.layout, range).first != done.shard) return;
  }
  if (done.failure.has_value()) {
    PrepareAborted(round, scope, AbortCause::kReduction,
                   absl::StrCat("tensor ", scope.lane.layout.tensors()[done.failed].name,
                                " cannot be reduced: ", *done.failure,
                                "; correct this before a retry, or it fails again"));
    return;
  }
  if (!round.attempt.Finish(scope.lane.layout, done)) return;
  std::vector<uint32_t> reduced;  // Flat chunks.
  for (const ChunkRange& range : done.ranges) {
    for (const uint32_t flat : scope.lane.layout.Chunks(range)) reduced.push_back(flat);
  }
  for (const uint32_t flat : reduced) round.held.Hold(flat, round.roster.receivers());
  round.PlanAgain();
  if (round.attempt.AnyRedone()) {
    PublishRedone(round, scope, reduced, done.shard);
    Advance(round, scope);
    return;
  }
  PublishResults(round, scope, done.ranges);
  for (RoundMember& member : round.roster) {
    if (member.is_sent_results()) {
      member.reception.Owe(static_cast<uint32_t>(reduced.size()), scope.now);
    }
    if (member.contribution.parked().empty()) continue;
    for (const uint32_t flat : reduced) {
      member.contribution.NoteReduced(flat, scope.lane.layout.SizeOf(flat), done.shard);
    }
    ReviewRoom(round, scope, member, done.shard);
  }
  Advance(round, scope);
}

void Advance(Round& round, const RoundScope& scope) {
  if (round.phase() != RoundPhase::kCollect) return;
  Compare(round, scope);
  PumpReduce(round, scope);
  AdvancePull(round, scope);
  TryPrepare(round, scope);
  ReviewGrace(round, scope);
}

}  // namespace basin::aggregator
