// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a round reduces: the spec that its members agree on, its attempts, and which chunks are
// whole.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/round.h"
#include "aggregator/core/spec.h"

namespace basin::aggregator {

// Agrees on what is computed once every contributor has begun.
void Round::Compare(const RoundScope& scope) {
  if (compared_ || scope.paused || phase_ != RoundPhase::kCollect) return;
  if (contributors_ == 0 || begun_ < contributors_) return;
  std::vector<const RoundSpec*> specs;
  std::vector<const RoundMember*> theirs;
  for (const RoundMember& member : members_) {
    if (!member.contribution.counts()) continue;
    specs.push_back(&member.contribution.begin().spec);
    theirs.push_back(&member);
  }
  const size_t chosen = ChooseSpec(specs, scope.last_spec);
  const WorkerId& reference = theirs[chosen]->id;
  spec_ = *specs[chosen];
  compared_ = true;
  for (RoundMember& member : members_) {
    if (!member.contribution.counts() || member.contribution.begin().spec == spec_) continue;
    Refuse(scope, member, ErrorCode::kMismatch,
           absl::StrCat("Job ", scope.job_name, ", lane ", scope.lane_name, ", round ", number_,
                        ": worker ", member.id, " began with ",
                        DescribeDifference(member.contribution.begin().spec, spec_), " of worker ",
                        reference,
                        ". It is not counted in this round; make the workers agree and continue, a "
                        "restart is not needed."));
  }
  StartAttemptNow(scope);
  Rescan(scope);
}

void Round::StartAttemptNow(const RoundScope& scope) {
  StartAttempt start{scope.job, scope.lane, number_, ballot_, Resolve(spec_, contributors_), {}};
  for (const RoundMember& member : members_) {
    if (!member.contribution.counts()) continue;
    start.contributors.push_back(
        {member.id, member.incarnation, WeightOf(spec_, member.contribution.begin().counts)});
  }
  scope.actions.push_back(std::move(start));
}

// The next attempt. Every chunk that was reduced, or is being reduced, is done again; what is
// parked stays, except what `refetched` sent. A departed contributor whose bytes for a chunk that
// is done again are gone is dropped.
void Round::Restart(const RoundScope& scope, const std::string& reason,
                    const RoundMember* refetched) {
  ++ballot_.attempt;
  value_ballot_ = ballot_;
  replan_ = true;
  const std::vector<uint32_t> redo = attempt_.Started();
  std::vector<std::vector<ChunkRange>> again(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    again[i] = TakeBack(scope, members_[i], redo, &members_[i] == refetched);
  }
  attempt_.StartAgain();
  for (const uint32_t flat : redo) unacked_[flat] = 0;
  results_out_ = 0;
  full_since_ = absl::InfiniteFuture();
  for (RoundMember& member : members_) {
    if (!member.gone || !member.contribution.incomplete()) continue;
    dropped_.push_back(member.id);
    Say(scope, NoteKind::kContributionDropped, member.id,
        "It was effective and left; a later attempt would need its bytes again.");
    RemoveContribution(scope, member, ContributionState::kDropped);
  }
  attempt_.ClearArrived();
  for (const RoundMember& member : members_) {
    if (!member.contribution.counts()) continue;
    for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) {
      if (member.contribution.Has(flat)) attempt_.Arrived(flat);
    }
  }
  Say(scope, NoteKind::kAttemptRestarted, "",
      absl::StrCat("Round ", number_, " is reduced again in attempt ", ToString(ballot_), ": ",
                   reason, "."));
  for (size_t i = 0; i < members_.size(); ++i) {
    RoundMember& member = members_[i];
    member.asked.ClearAll();  // In pull mode the front is chosen anew.
    member.named_late = false;
    UpdateBlocked(scope, member);
    if (member.gone) continue;
    member.told_window = WindowOf(scope, member);
    SendTo(scope, member,
           AttemptRestarted{scope.lane, number_, ballot_, reason, std::move(again[i]),
                            member.told_window});
  }
  StartAttemptNow(scope);  // Also before all have begun: it voids what the old ballot reduced.
  Rescan(scope);
  Advance(scope);
}

// Clears what must be pushed again: the chunks of `redo`, and with `all` everything. Returns it.
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
    member.contribution.ForgetDigests();
  } else {
    for (const uint32_t flat : redo) take(flat);
  }
  member.acked.ClearAll();
  member.owed = member.behind = 0;
  if (std::vector<ChunkRange> discarded = parked.Take(); !discarded.empty()) {
    scope.actions.push_back(
        DiscardChunks{scope.job, scope.lane, number_, member.incarnation, std::move(discarded)});
  }
  std::vector<ChunkRange> taken = ranges.Take();
  if (!taken.empty() && member.contribution.effective()) {
    SetState(member, ContributionState::kCommitted);
  }
  return taken;
}

// Whether the chunk can be reduced.
bool Round::IsWhole(TensorIndex tensor, uint32_t flat) const {
  return compared_ && attempt_.IsWhole(tensor, flat, contributors_);
}

void Round::CheckReady(TensorIndex tensor, uint32_t flat) {
  if (IsWhole(tensor, flat)) attempt_.Queue(flat);
}

void Round::Rescan(const RoundScope& scope) {
  attempt_.ClearQueue();
  if (!compared_) return;
  for (TensorIndex tensor = 0; tensor < scope.layout.version(); ++tensor) {
    for (uint32_t flat = scope.layout.FirstChunk(tensor);
         flat < scope.layout.FirstChunk(tensor + 1); ++flat) {
      CheckReady(tensor, flat);
    }
  }
}

uint64_t Round::DivisorOf(TensorIndex tensor) const {
  const bool present = spec_.denominator == Denominator::kPresent;
  const uint32_t skips = attempt_.Skips(tensor);
  if (skips == contributors_) return 0;
  if (spec_.op == ReduceOp::kAverage) return present ? contributors_ - skips : contributors_;
  if (spec_.op != ReduceOp::kWeightedAverage) return 1;
  uint64_t weight = 0;
  for (const RoundMember& member : members_) {
    if (!member.contribution.counts()) continue;
    if (present && member.contribution.Skips(tensor)) continue;
    weight += WeightOf(spec_, member.contribution.begin().counts);
  }
  return weight;
}

void Round::PumpReduce(const RoundScope& scope) {
  if (phase_ != RoundPhase::kCollect) return;
  const uint32_t frame_chunks =
      static_cast<uint32_t>(std::max<uint64_t>(1, scope.config.frame_bytes / kChunkBytes));
  while (attempt_.AnyReady()) {
    ChunkRange range = attempt_.Next(scope.layout, frame_chunks);
    while (range.count > 1 &&
           results_out_ + scope.layout.RangeBytes(range) > scope.memory.result_window) {
      --range.count;
    }
    const uint64_t bytes = scope.layout.RangeBytes(range);
    if (results_out_ + bytes > scope.memory.result_window && results_out_ > 0) {
      full_since_ = std::min(full_since_, scope.now);
      return;
    }
    Reduce reduce{scope.job, scope.lane, number_, ballot_, range, DivisorOf(range.tensor), {}};
    if (attempt_.Skips(range.tensor) > 0) {
      uint32_t position = 0;
      for (const RoundMember& member : members_) {
        if (!member.contribution.counts()) continue;
        if (member.contribution.Skips(range.tensor)) reduce.skipped.push_back(position);
        ++position;
      }
    }
    attempt_.Start(range.count);
    results_out_ += bytes;
    if (reduce.divisor == 0) reduce.divisor = 1;  // Weights sum to zero: the value says EMPTY.
    scope.actions.push_back(std::move(reduce));
  }
  full_since_ = absl::InfiniteFuture();
}

void Round::TakeReduceDone(const RoundScope& scope, const ReduceDone& done) {
  if (!(done.ballot == ballot_) || phase_ != RoundPhase::kCollect) return;  // An older attempt.
  if (done.failure.has_value()) {
    PrepareAborted(scope, absl::StrCat("tensor ", scope.layout.tensors()[done.range.tensor].name,
                                       " cannot be reduced: ", *done.failure,
                                       "; correct this before a retry, or it fails again"));
    return;
  }
  if (!attempt_.Finish(scope.layout, done)) return;
  const uint32_t base = scope.layout.FirstChunk(done.range.tensor) + done.range.first;
  for (uint32_t i = 0; i < done.range.count; ++i) unacked_[base + i] = receivers_;
  replan_ = true;
  Publish(scope, done.range);
  for (RoundMember& member : members_) {
    if (Receives(member)) {
      if (member.owed == 0) {
        member.progress = member.behind_since = scope.now;
        member.behind = done.range.count;
      }
      member.owed += done.range.count;
    }
    if (member.contribution.parked() == 0) continue;
    for (uint32_t i = 0; i < done.range.count; ++i) {
      member.contribution.NoteReduced(base + i, scope.layout.SizeOf(base + i));
    }
    ReviewRoom(scope, member);
  }
  Advance(scope);
}

void Round::Advance(const RoundScope& scope) {
  if (phase_ != RoundPhase::kCollect) return;
  Compare(scope);
  PumpReduce(scope);
  if (pull_) {
    if (replan_) PlanPull(scope);
  } else if (Stuck()) {
    EnterPull(scope);
  }
  TryPrepare(scope);
}

}  // namespace basin::aggregator
