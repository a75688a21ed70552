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
  if (compared_ || scope.paused || phase() != RoundPhase::kCollect) return;
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
  if (!Apply(scope, RoundInput::kRestart)) return;
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
    AddNote(scope, NoteKind::kContributionDropped, member.id,
            "It was complete, but its worker has left, and the new attempt needs its bytes again.");
    RemoveContribution(scope, member, ContributionInput::kDrop);
  }
  attempt_.ClearArrived();
  for (const RoundMember& member : members_) {
    if (!member.contribution.counts()) continue;
    for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) {
      if (member.contribution.Has(flat)) attempt_.Arrived(flat);
    }
  }
  AddNote(scope, NoteKind::kAttemptRestarted, "",
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
    ApplyTo(member, ContributionInput::kTakeBack);
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

uint64_t Round::RoundDivisor() const {
  if (spec_.op == ReduceOp::kAverage) return contributors_;
  if (spec_.op != ReduceOp::kWeightedAverage) return 1;
  uint64_t weight = 0;
  for (const RoundMember& member : members_) {
    if (!member.contribution.counts()) continue;
    weight += WeightOf(spec_, member.contribution.begin().counts);
  }
  return weight;
}

uint64_t Round::DivisorOf(TensorIndex tensor, uint64_t round_divisor) const {
  const uint32_t skips = attempt_.Skips(tensor);
  if (skips == contributors_) return 0;
  if (skips == 0 || spec_.denominator == Denominator::kAll) return round_divisor;
  if (spec_.op == ReduceOp::kAverage) return round_divisor - skips;
  if (spec_.op != ReduceOp::kWeightedAverage) return round_divisor;
  uint64_t weight = round_divisor;
  for (const RoundMember& member : members_) {
    if (!member.contribution.counts() || !member.contribution.Skips(tensor)) continue;
    weight -= WeightOf(spec_, member.contribution.begin().counts);
  }
  return weight;
}

std::vector<uint32_t> Round::SkippersOf(TensorIndex tensor) const {
  std::vector<uint32_t> skippers;
  if (attempt_.Skips(tensor) == 0) return skippers;
  uint32_t position = 0;
  for (const RoundMember& member : members_) {
    if (!member.contribution.counts()) continue;
    if (member.contribution.Skips(tensor)) skippers.push_back(position);
    ++position;
  }
  return skippers;
}

void Round::PumpReduce(const RoundScope& scope) {
  if (phase() != RoundPhase::kCollect) return;
  // Tensors that everyone, or everyone but the same workers, has pushed have the same divisor.
  const auto alike = [this](TensorIndex a, TensorIndex b) {
    return attempt_.Skips(a) == attempt_.Skips(b) &&
           (attempt_.Skips(a) == 0 || SkippersOf(a) == SkippersOf(b));
  };
  while (attempt_.AnyReady()) {
    const uint64_t room =
        scope.memory.result_window > results_out_ ? scope.memory.result_window - results_out_ : 0;
    ChunkRanges ranges = attempt_.Next(scope.layout, std::min(scope.config.frame_bytes, room),
                                       scope.config.frame_tensors, alike);
    const uint64_t bytes = scope.layout.RangeBytes(ranges);
    if (bytes > room && results_out_ > 0) {
      full_since_ = std::min(full_since_, scope.now);
      return;
    }
    const TensorIndex tensor = ranges.front().tensor;
    attempt_.Start(CountChunks(ranges));
    results_out_ += bytes;
    // Weights that sum to zero: the value says EMPTY.
    const uint64_t divisor = std::max<uint64_t>(1, DivisorOf(tensor, RoundDivisor()));
    scope.actions.push_back(Reduce{scope.job, scope.lane, number_, ballot_, std::move(ranges),
                                   divisor, SkippersOf(tensor)});
  }
  full_since_ = absl::InfiniteFuture();
}

void Round::OnReduceDone(const RoundScope& scope, const ReduceDone& done) {
  if (!(done.ballot == ballot_) || phase() != RoundPhase::kCollect) return;  // An older attempt.
  if (done.failure.has_value()) {
    PrepareAborted(scope, absl::StrCat("tensor ", scope.layout.tensors()[done.failed].name,
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
  for (const uint32_t flat : reduced) unacked_[flat] = receivers_;
  replan_ = true;
  Publish(scope, done.ranges);
  for (RoundMember& member : members_) {
    if (Receives(member)) {
      const auto count = static_cast<uint32_t>(reduced.size());
      if (member.owed == 0) {
        member.progress = member.behind_since = scope.now;
        member.behind = count;
      }
      member.owed += count;
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
  if (pull_) {
    if (replan_) PlanPull(scope);
  } else if (Stuck()) {
    EnterPull(scope);
  }
  TryPrepare(scope);
}

}  // namespace basin::aggregator
