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

// Agrees on what is computed once everyone has said what it wants: the lane's last committed spec
// if anyone asks for it, else the most common, ties going to the lowest worker id.
void Round::Compare(const RoundScope& scope) {
  if (compared_ || scope.paused || phase_ != RoundPhase::kCollect) return;
  if (contributors_ == 0 || begun_ < contributors_) return;
  const RoundMember* reference = nullptr;
  uint32_t best = 0;
  for (const RoundMember& candidate : members_) {
    if (candidate.standing != Standing::kContributor) continue;
    if (reference != nullptr && candidate.begin.spec == reference->begin.spec) continue;
    uint32_t votes = 0;
    for (const RoundMember& member : members_) {
      votes +=
          member.standing == Standing::kContributor && member.begin.spec == candidate.begin.spec;
    }
    if (scope.last_spec.has_value() && candidate.begin.spec == *scope.last_spec) {
      votes = contributors_ + 1;
    }
    if (votes > best) {
      best = votes;
      reference = &candidate;
    }
    if (votes == contributors_) break;  // Unanimous, the usual case.
  }
  if (reference == nullptr) return;
  spec_ = reference->begin.spec;
  compared_ = true;
  for (RoundMember& member : members_) {
    if (member.standing != Standing::kContributor || member.begin.spec == spec_) continue;
    Refuse(scope, member, ErrorCode::kMismatch,
           absl::StrCat("Job ", scope.job_name, ", lane ", scope.lane_name, ", round ", number_,
                        ": worker ", member.id, " began with ",
                        DescribeDifference(member.begin.spec, spec_), " of worker ", reference->id,
                        ". It is not counted in this round; make the workers agree and continue, a "
                        "restart is not needed."));
  }
  StartAttemptNow(scope);
  Rescan(scope);
}

void Round::StartAttemptNow(const RoundScope& scope) {
  StartAttempt start{scope.job, scope.lane, number_, ballot_, Resolve(spec_, contributors_), {}};
  for (const RoundMember& member : members_) {
    if (member.standing != Standing::kContributor) continue;
    start.contributors.push_back(
        {member.id, member.incarnation, WeightOf(spec_, member.begin.counts)});
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
  std::vector<uint32_t> redo;
  for (uint32_t flat = 0; flat < chunks_.size(); ++flat) {
    if (chunks_[flat] != ChunkState::kOpen) redo.push_back(flat);
  }
  std::vector<std::vector<ChunkRange>> again(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    again[i] = TakeBack(scope, members_[i], redo, &members_[i] == refetched);
  }
  for (const uint32_t flat : redo) {
    chunks_[flat] = ChunkState::kOpen;
    unacked_[flat] = 0;
    norms_[flat] = ChunkNorm{};  // Those who are left may all have skipped it.
  }
  ready_.clear();
  reducing_ = 0;
  results_out_ = 0;
  full_since_ = absl::InfiniteFuture();
  overflow_ = false;
  nonfinite_.reset();
  for (RoundMember& member : members_) {
    if (!member.gone || member.effective || member.standing != Standing::kContributor) continue;
    dropped_.push_back(member.id);
    Say(scope, NoteKind::kContributionDropped, member.id,
        "It was effective and left; a later attempt would need its bytes again.");
    RemoveContribution(scope, member, Standing::kDropped);
  }
  std::fill(arrived_.begin(), arrived_.end(), 0);
  for (const RoundMember& member : members_) {
    if (member.standing != Standing::kContributor) continue;
    for (uint32_t flat = 0; flat < member.have.size(); ++flat) {
      arrived_[flat] += member.have.Test(flat);
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
    if (!member.have.Clear(flat)) return;
    member.digest -= member.digests[flat];
    member.missing += scope.layout.SizeOf(flat);
    ranges.Add(flat);
    if (member.asked.size() > flat) member.asked.Clear(flat);
    if (chunks_[flat] != ChunkState::kReduced) member.parked -= scope.layout.SizeOf(flat);
    if (chunks_[flat] == ChunkState::kOpen) parked.Add(flat);
  };
  if (all) {
    for (uint32_t flat = 0; flat < member.have.size(); ++flat) take(flat);
    member.known.ClearAll();
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
  if (!taken.empty() && member.effective) {
    member.effective = false;
    --effective_;
  }
  return taken;
}

// Whether everyone who contributes to the chunk has pushed it, so that it can be reduced.
bool Round::IsWhole(TensorIndex tensor, uint32_t flat) const {
  if (!compared_ || chunks_[flat] != ChunkState::kOpen) return false;
  const uint32_t needed = contributors_ - skip_counts_[tensor];
  return needed > 0 && arrived_[flat] == needed;
}

void Round::CheckReady(TensorIndex tensor, uint32_t flat) {
  if (IsWhole(tensor, flat)) ready_.push_back(flat);
}

void Round::Rescan(const RoundScope& scope) {
  ready_.clear();
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
  const uint32_t skips = skip_counts_[tensor];
  if (skips == contributors_) return 0;
  if (spec_.op == ReduceOp::kAverage) return present ? contributors_ - skips : contributors_;
  if (spec_.op != ReduceOp::kWeightedAverage) return 1;
  uint64_t weight = 0;
  for (const RoundMember& member : members_) {
    if (member.standing != Standing::kContributor) continue;
    if (present && member.skipped.Test(tensor)) continue;
    weight += WeightOf(spec_, member.begin.counts);
  }
  return weight;
}

void Round::PumpReduce(const RoundScope& scope) {
  if (phase_ != RoundPhase::kCollect) return;
  const uint32_t frame_chunks =
      static_cast<uint32_t>(std::max<uint64_t>(1, scope.config.frame_bytes / kChunkBytes));
  while (!ready_.empty()) {
    const TensorIndex tensor = scope.layout.TensorOf(ready_.front());
    const uint32_t base = scope.layout.FirstChunk(tensor);
    ChunkRange range{tensor, ready_.front() - base, 1};
    while (range.count < frame_chunks && range.count < ready_.size() &&
           ready_[range.count] == ready_.front() + range.count &&
           range.first + range.count < scope.layout.TensorChunks(tensor)) {
      ++range.count;
    }
    while (range.count > 1 &&
           results_out_ + scope.layout.RangeBytes(range) > scope.memory.result_window) {
      --range.count;
    }
    const uint64_t bytes = scope.layout.RangeBytes(range);
    if (results_out_ + bytes > scope.memory.result_window && results_out_ > 0) {
      full_since_ = std::min(full_since_, scope.now);
      return;
    }
    Reduce reduce{scope.job, scope.lane, number_, ballot_, range, DivisorOf(tensor), {}};
    if (skip_counts_[tensor] > 0) {
      uint32_t position = 0;
      for (const RoundMember& member : members_) {
        if (member.standing != Standing::kContributor) continue;
        if (member.skipped.Test(tensor)) reduce.skipped.push_back(position);
        ++position;
      }
    }
    for (uint32_t i = 0; i < range.count; ++i) {
      chunks_[ready_.front()] = ChunkState::kReducing;
      ready_.pop_front();
    }
    reducing_ += range.count;
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
  const uint32_t base = scope.layout.FirstChunk(done.range.tensor) + done.range.first;
  for (uint32_t i = 0; i < done.range.count; ++i) {
    const uint32_t flat = base + i;
    if (chunks_[flat] != ChunkState::kReducing) return;
    chunks_[flat] = ChunkState::kReduced;
    result_digests_[flat] = done.digests[i];
    // By chunk, so that the norm does not depend on which chunks were reduced together.
    norms_[flat] = i < done.facts.squared_norms.size() ? done.facts.squared_norms[i] : ChunkNorm{};
    unacked_[flat] = receivers_;
    --reducing_;
  }
  replan_ = true;
  overflow_ |= done.facts.overflow;
  if (done.facts.nonfinite.has_value()) {
    const NonFinite& found = *done.facts.nonfinite;
    const auto order = [](const NonFinite& n) { return std::tie(n.tensor, n.worker, n.element); };
    if (!nonfinite_.has_value() || order(found) < order(*nonfinite_)) nonfinite_ = found;
  }
  Publish(scope, done.range);
  for (RoundMember& member : members_) {
    if (Receives(member)) {
      if (member.owed == 0) {
        member.progress = member.behind_since = scope.now;
        member.behind = done.range.count;
      }
      member.owed += done.range.count;
    }
    if (member.parked == 0) continue;
    for (uint32_t i = 0; i < done.range.count; ++i) {
      if (member.have.Test(base + i)) member.parked -= scope.layout.SizeOf(base + i);
    }
    UpdateBlocked(scope, member);
    if (!member.gone) TellWindow(scope, member);
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
