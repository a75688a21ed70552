// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The reductions of a round: the spec that its contributors agree on, its attempts, and which
// chunks are whole.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/round.h"
#include "aggregator/core/spec.h"

namespace basin::aggregator {

// Chooses the spec once every contributor has begun, and refuses those that began with another one.
void Round::Compare(const RoundScope& scope) {
  if (agreement_.made() || scope.paused || phase() != RoundPhase::kCollect) return;
  if (roster_.contributors() == 0 || roster_.begun() < roster_.contributors()) return;
  const WorkerId& reference = agreement_.Make(roster_, scope.last_spec).id;
  const RoundSpec& spec = agreement_.spec();
  for (RoundMember& member : roster_) {
    if (!member.contribution.counts() || member.contribution.begin().spec == spec) continue;
    Refuse(scope, member, ErrorCode::kMismatch,
           absl::StrCat("Job ", scope.job_name, ", lane ", scope.lane_name, ", round ", number_,
                        ": worker ", member.id, " began with ",
                        DescribeDifference(member.contribution.begin().spec, spec), " of worker ",
                        reference,
                        ". It is not counted in this round; make the workers agree and continue, a "
                        "restart is not needed."));
  }
  CompareSteps(scope);
  StartAttemptNow(scope);
  Rescan(scope);
}

// Refuses those that are at another step: averages of different steps would train another model.
void Round::CompareSteps(const RoundScope& scope) {
  const RoundMember* reference = Agreement::StepReference(roster_);
  if (reference == nullptr) return;
  const uint64_t step = reference->contribution.begin().step_label;
  const WorkerId id = reference->id;
  for (RoundMember& member : roster_) {
    if (!member.contribution.compares_step() || member.contribution.begin().step_label == step)
      continue;
    Refuse(
        scope, member, ErrorCode::kMismatch,
        absl::StrCat("Job ", scope.job_name, ", lane ", scope.lane_name, ", round ", number_,
                     ": worker ", member.id, " is at step ", member.contribution.begin().step_label,
                     ", but worker ", id, " is at step ", step,
                     ": one of them has skipped a step, or made a backward or a step that the "
                     "others have not made. It is not counted in this round. Let all workers "
                     "make the same backwards and steps, also after an error, and start this "
                     "one again: it gets the state of the others."));
  }
}

void Round::StartAttemptNow(const RoundScope& scope) {
  StartAttempt start{
      scope.job, scope.lane, number_, ballot_, Resolve(agreement_.spec(), roster_.trainers()), {}};
  for (const RoundMember& member : roster_) {
    if (!member.contribution.counts()) continue;
    start.contributors.push_back({member.id, member.incarnation, agreement_.WeightOf(member),
                                  std::nullopt, member.contribution.begin().trainers()});
  }
  scope.actions.push_back(std::move(start));
}

// Begins the next attempt. Every chunk that was or is being reduced is pushed and reduced again;
// the other parked chunks stay, except those of `refetched`. A lost contributor that would have to
// push a chunk again is dropped.
void Round::Restart(const RoundScope& scope, const std::string& reason,
                    const RoundMember* refetched) {
  if (!Apply(scope, RoundInput::kRestart)) return;
  ++ballot_.attempt;
  value_ballot_ = ballot_;
  PlanAgain();
  const std::vector<uint32_t> redo = attempt_.Started();
  std::vector<std::vector<ChunkRange>> again;
  for (RoundMember& member : roster_) {
    again.push_back(TakeBack(scope, member, redo, &member == refetched));
  }
  attempt_.StartAgain();
  held_.Clear();
  held_.NoteRoom();
  for (RoundMember& member : roster_) {
    if (member.alive() || !member.contribution.incomplete()) continue;
    dropped_.push_back(member.id);
    AddNote(scope, NoteKind::kContributionDropped, member.id,
            "It was complete, but its worker has left, and the new attempt needs its bytes again.")
        .cause = NoteCause::kNeededAgain;
    RemoveContribution(scope, member, ContributionInput::kDrop);
  }
  attempt_.ClearArrived();
  for (const RoundMember& member : roster_) {
    if (!member.contribution.counts()) continue;
    for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) {
      if (member.contribution.Has(flat)) attempt_.Arrived(flat);
    }
  }
  AddNote(scope, NoteKind::kAttemptRestarted, "",
          absl::StrCat("Round ", number_, " is reduced again in attempt ", ToString(ballot_), ": ",
                       reason, "."));
  auto pushed_again = again.begin();
  for (RoundMember& member : roster_) {
    std::vector<ChunkRange>& ranges = *pushed_again++;
    member.asked.ClearAll();  // In pull mode, the front is chosen again.
    member.named_late = false;
    UpdateBlocked(scope, member);
    if (!member.alive()) continue;
    member.room.told = FlowControl::Window(scope.memory, member);
    SendTo(scope, member,
           AttemptRestarted{scope.lane, number_, ballot_, reason, std::move(ranges),
                            member.room.told});
  }
  StartAttemptNow(scope);  // Even before all have begun, to invalidate the old ballot's reductions.
  Rescan(scope);
  Advance(scope);
}

// Clears and returns the member's chunks that must be pushed again: those of `redo`, or all chunks
// if `all`.
std::vector<ChunkRange> Round::TakeBack(const RoundScope& scope, RoundMember& member,
                                        const std::vector<uint32_t>& redo, bool all) {
  RangeBuilder ranges(scope.layout);
  RangeBuilder parked(scope.layout);
  const auto take = [&](uint32_t flat) {
    const bool is_parked = !attempt_.IsReduced(flat);
    if (!member.contribution.TakeBack(flat, scope.layout.SizeOf(flat), is_parked)) return;
    ranges.Add(flat);
    member.asked.Clear(flat);
    if (attempt_.IsOpen(flat)) parked.Add(flat);
  };
  if (all) {
    for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) take(flat);
    member.contribution.Refetch();
  } else {
    for (const uint32_t flat : redo) take(flat);
  }
  member.reception.ForgetAll();
  if (std::vector<ChunkRange> discarded = parked.Take(); !discarded.empty()) {
    scope.actions.push_back(
        DiscardChunks{scope.job, scope.lane, number_, member.incarnation, std::move(discarded)});
  }
  std::vector<ChunkRange> taken = ranges.Take();
  if (!taken.empty() && member.contribution.effective()) {
    roster_.Apply(member, ContributionInput::kTakeBack);
  }
  return taken;
}

// Returns whether the chunk can be reduced.
bool Round::IsWhole(TensorIndex tensor, uint32_t flat) const {
  return agreement_.made() && attempt_.IsWhole(tensor, flat, roster_.contributors());
}

void Round::CheckReady(TensorIndex tensor, uint32_t flat) {
  if (IsWhole(tensor, flat)) attempt_.Queue(flat);
}

void Round::Rescan(const RoundScope& scope) {
  attempt_.ClearQueue();
  if (!agreement_.made()) return;
  for (TensorIndex tensor = 0; tensor < scope.layout.version(); ++tensor) {
    for (uint32_t flat = scope.layout.FirstChunk(tensor);
         flat < scope.layout.FirstChunk(tensor + 1); ++flat) {
      CheckReady(tensor, flat);
    }
  }
}

void Round::PumpReduce(const RoundScope& scope) {
  if (phase() != RoundPhase::kCollect) return;
  // Tensors that the same contributors skip have the same divisor.
  const auto alike = [this](TensorIndex a, TensorIndex b) {
    return attempt_.Skips(a) == attempt_.Skips(b) &&
           (attempt_.Skips(a) == 0 || roster_.SkippersOf(a) == roster_.SkippersOf(b));
  };
  while (attempt_.AnyReady()) {
    const uint64_t room = held_.Room(scope.memory.result_window);
    ChunkRanges ranges = attempt_.Next(scope.layout, std::min(scope.config.frame_bytes, room),
                                       scope.config.frame_tensors, alike);
    const uint64_t bytes = scope.layout.RangeBytes(ranges);
    if (bytes > room && held_.bytes() > 0) {
      held_.NoteFull(scope.now);
      return;
    }
    const TensorIndex tensor = ranges.front().tensor;
    attempt_.Start(CountChunks(ranges));
    held_.Start(bytes);
    // The divisor is 0 if the weights sum to zero. The value then has no result.
    const uint32_t skips = attempt_.Skips(tensor);
    const uint64_t divisor =
        agreement_.DivisorOf(roster_, tensor, skips, agreement_.Divisor(roster_));
    scope.actions.push_back(Reduce{
        scope.job, scope.lane, number_, ballot_, std::move(ranges), std::max<uint64_t>(1, divisor),
        skips == 0 ? std::vector<uint32_t>{} : roster_.SkippersOf(tensor)});
  }
  held_.NoteRoom();
}

void Round::OnReduceDone(const RoundScope& scope, const ReduceDone& done) {
  if (!(done.ballot == ballot_) || phase() != RoundPhase::kCollect) return;  // An older attempt.
  if (done.failure.has_value()) {
    PrepareAborted(scope, AbortCause::kReduction,
                   absl::StrCat("tensor ", scope.layout.tensors()[done.failed].name,
                                " cannot be reduced: ", *done.failure,
                                "; correct this before a retry, or it fails again"));
    return;
  }
  if (!attempt_.Finish(scope.layout, done)) return;
  std::vector<uint32_t> reduced;  // Flat chunks.
  for (const ChunkRange& range : done.ranges) {
    const uint32_t base = scope.layout.FirstChunk(range.tensor) + range.first;
    for (uint32_t i = 0; i < range.count; ++i) reduced.push_back(base + i);
  }
  for (const uint32_t flat : reduced) held_.Hold(flat, roster_.receivers());
  PlanAgain();
  Publish(scope, done.ranges);
  for (RoundMember& member : roster_) {
    if (member.is_sent_results()) {
      member.reception.Owe(static_cast<uint32_t>(reduced.size()), scope.now);
    }
    if (member.contribution.parked() == 0) continue;
    for (const uint32_t flat : reduced) {
      member.contribution.NoteReduced(flat, scope.layout.SizeOf(flat));
    }
    ReviewRoom(scope, member);
  }
  Advance(scope);
}

void Round::Advance(const RoundScope& scope) {
  if (phase() != RoundPhase::kCollect) return;
  Compare(scope);
  PumpReduce(scope);
  if (pull_mode()) {
    if (pull_ == PullMode::kPlanAgain) PlanPull(scope);
  } else if (Stuck()) {
    EnterPull(scope);
  }
  TryPrepare(scope);
}

}  // namespace basin::aggregator
