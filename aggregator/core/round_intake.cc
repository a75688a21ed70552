// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_intake.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/round_attempt.h"
#include "aggregator/core/round_late.h"
#include "aggregator/core/round_members.h"
#include "aggregator/core/round_results.h"
#include "aggregator/core/round_waits.h"
#include "aggregator/core/spec.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

// Appends a chunk, and joins it to its neighbour.
template <typename Ranges>
void AppendChunk(Ranges& ranges, TensorIndex tensor, uint32_t chunk) {
  if (!ranges.empty() && ranges.back().tensor == tensor &&
      ranges.back().first + ranges.back().count == chunk) {
    ++ranges.back().count;
  } else {
    ranges.push_back({tensor, chunk, 1});
  }
}

// Refuses a contribution that pushes a tensor that its own spec cannot reduce. Returns whether it
// does.
bool RefuseTensor(Round& round, const RoundScope& scope, RoundMember& member, TensorIndex index) {
  if (!member.contribution.begun()) return false;
  const TensorSpec& tensor = scope.lane.layout.tensors()[index];
  const std::string why = WhyNotReducible(member.contribution.begin().spec, tensor.dtype);
  if (why.empty()) return false;
  const bool restart =
      Refuse(round, scope, member, ErrorCode::kInvalidArgument,
             absl::StrCat("Job ", scope.job.name, ", lane ", scope.lane.name, ", round ",
                          round.number, ": worker ", member.id, " pushed tensor ", tensor.name,
                          ": ", why, ". It is not counted in this round."));
  AfterRemoval(round, scope, restart,
               absl::StrCat("worker ", member.id, " pushed a tensor that cannot be reduced"));
  return true;
}

// Why the begin cannot name its samples, as the end of a sentence; empty if it can.
std::string WhyNotLeased(const Round& round, const RoundScope& scope, const RoundMember& member,
                         const Begin& begin) {
  if (!begin.sample_epoch.has_value()) return "";
  uint64_t begun = 0;
  std::vector<Incarnation> workers{member.incarnation};
  const std::vector<WorkerId>& others = begin.reduced_with;
  for (const RoundMember& other : round.members()) {
    if (other.contribution.begun()) begun += other.contribution.begin().samples.size();
    if (other.alive() && std::binary_search(others.begin(), others.end(), other.id)) {
      workers.push_back(other.incarnation);
    }
  }
  return scope.lane.ledger.WhyNotBegin(workers, *begin.sample_epoch, begin.samples, begun);
}

// Collects what happens to the chunks of one frame.
struct Intake {
  std::vector<ChunkRange> acked;
  std::vector<ChunkRange> refused;
  ChunkRanges kept;
  uint32_t duplicates = 0;
  bool skipped = false;                // It has a tensor that its worker skips.
  bool misplaced = false;              // It has chunks that another shard holds.
  std::optional<TensorIndex> changed;  // A tensor with other bytes than before.
};

// Takes chunks of one tensor at the shard that holds them. REQUIRES: the contribution counts, and
// the round is not prepared.
void OnRange(Round& round, const RoundScope& scope, RoundMember& member, ShardId shard,
             const ChunkRange& range, const Digest* digests, Intake& intake) {
  Contribution& contribution = member.contribution;
  if (contribution.Skips(range.tensor) ||
      (contribution.committed() && !contribution.Commits(range.tensor))) {
    intake.skipped = true;
    intake.acked.push_back(range);
    Reject(round, scope, member, ErrorCode::kInvalidArgument,
           absl::StrCat("Job ", scope.job.name, ", round ", round.number, ": worker ", member.id,
                        " pushed tensor ", scope.lane.layout.tensors()[range.tensor].name,
                        " after it had skipped it. The skip holds for this round."));
    return;
  }
  const uint32_t base = scope.lane.layout.FirstChunk(range.tensor);
  for (uint32_t i = 0; i < range.count; ++i) {
    const uint32_t chunk = range.first + i;
    const uint32_t flat = base + chunk;
    if (contribution.Knows(flat) && contribution.DigestOf(flat) != digests[i]) {
      intake.changed = range.tensor;
      AppendChunk(intake.acked, range.tensor, chunk);
    } else if (contribution.Has(flat)) {
      ++intake.duplicates;
      AppendChunk(intake.acked, range.tensor, chunk);
    } else if (const uint64_t size = ChunkSize(scope.lane.layout.TensorSize(range.tensor), chunk);
               contribution.parked().At(shard) + size > scope.lane.memory.window ||
               (round.pull_mode() && !member.asked.Test(flat))) {
      AppendChunk(intake.refused, range.tensor, chunk);
    } else {
      contribution.OnChunk(flat, size, digests[i], shard);
      round.attempt.Arrived(flat);
      AppendChunk(intake.kept, range.tensor, chunk);
      AppendChunk(intake.acked, range.tensor, chunk);
      CheckReady(round, range.tensor, flat);
    }
  }
}

void MarkSkipped(Round& round, const RoundScope& scope, RoundMember& member, TensorIndex tensor) {
  if (!member.contribution.OnSkip(scope.lane.layout, scope.lane.shares, tensor)) return;
  round.PlanAgain();
  if (!member.contribution.counts()) return;
  round.attempt.Skipped(tensor);
  for (const uint32_t flat : scope.lane.layout.Chunks(tensor)) {
    CheckReady(round, tensor, flat);
  }
}

// If one contributor is left, notes what it owes, for observers.
void NoteWhatTheLastOwes(Round& round, const RoundScope& scope) {
  if (round.roster.effective() + 1 != round.roster.contributors()) return;
  for (const RoundMember& member : round.roster) {
    if (!member.contribution.incomplete()) continue;
    round.last_owes = Awaits(round, scope.lane.layout, member);
  }
}

void CheckEffective(Round& round, const RoundScope& scope, RoundMember& member) {
  if (member.contribution.state() != ContributionState::kCommitted) return;
  if (!member.contribution.Complete()) return;
  if (member.contribution.digest() == member.contribution.commit().digest) {
    const bool again = member.contribution.was_complete();
    round.roster.Apply(member, ContributionInput::kComplete);
    member.contribution.NoteArrival(scope.now);
    if (!again) NoteLateness(round, scope.now);
    round.straggler = Straggler{member.id, round.straggler.until, scope.now};
    UpdateBlocked(round, scope, member);
    NoteWhatTheLastOwes(round, scope);
    return;
  }
  const std::string text = absl::StrCat("Job ", scope.job.name, ", round ", round.number,
                                        ": the contribution of worker ", member.id, " has digest ",
                                        member.contribution.digest(), ", but its commit has ",
                                        member.contribution.commit().digest);
  // An empty commit has nothing to fetch again.
  if (member.contribution.refetched() || member.contribution.commit().chunks == 0) {
    const bool restart = Refuse(
        round, scope, member, ErrorCode::kDataCorrupt,
        absl::StrCat(
            text, member.contribution.refetched() ? ", for the second time" : "",
            ". It is not counted in this round; check the memory and network of that worker."));
    AfterRemoval(round, scope, restart,
                 absl::StrCat("the contribution of worker ", member.id, " is corrupt"));
    return;
  }
  // The first time, all bytes are fetched again, because the sum does not show which are wrong.
  AddNote(round, scope, NoteKind::kContributionRejected, member.id,
          absl::StrCat(text, "; it is fetched again."));
  Restart(round, scope, absl::StrCat("the digest of worker ", member.id, " did not match"),
          &member);
}

}  // namespace

void UpdateBlocked(Round& round, const RoundScope& scope, RoundMember& member) {
  round.flow.Review(scope.lane.memory, scope.now, round.roster, member);
}

Credit CreditFor(const Round& round, const RoundScope& scope, RoundMember& member, ShardId shard) {
  Credit credit;
  credit.lane = scope.index;
  credit.round = round.number;
  if (scope.lane.shares.single()) {
    shard = scope.lane.shares.First();  // Frames of another one may still be on their way.
  } else {
    credit.shard = shard;
  }
  credit.window = FlowControl::Window(scope.lane.memory, member, shard);
  member.room.sent.Set(shard, credit.window);
  return credit;
}

void ReviewRoom(Round& round, const RoundScope& scope, RoundMember& member, ShardId shard) {
  UpdateBlocked(round, scope, member);
  if (!FlowControl::News(scope.lane.memory, member, shard, round.pull_mode()).has_value()) return;
  SendTo(scope, member, CreditFor(round, scope, member, shard));
}

void ReviewRoom(Round& round, const RoundScope& scope, RoundMember& member) {
  UpdateBlocked(round, scope, member);
  for (const auto& [shard, missing] : member.contribution.missing()) {
    ReviewRoom(round, scope, member, shard);
  }
}

void SendWindows(const Round& round, const RoundScope& scope, RoundMember& member) {
  const uint64_t least = FlowControl::Least(scope.lane.memory, member, scope.lane.shares);
  for (const ShardId shard : scope.lane.shares.Left()) {
    Credit credit = CreditFor(round, scope, member, shard);
    if (credit.window > least) SendTo(scope, member, std::move(credit));
  }
}

void MemoryGrew(Round& round, const RoundScope& scope) {
  if (round.phase() == RoundPhase::kPrepared) return;
  round.PlanAgain();
  for (RoundMember& member : round.roster) {
    if (!member.alive()) continue;
    UpdateBlocked(round, scope, member);
    for (const ShardId shard : scope.lane.shares.Left()) {
      Credit credit = CreditFor(round, scope, member, shard);
      // All have been sent the whole window.
      if (credit.window < scope.lane.memory.window) SendTo(scope, member, std::move(credit));
    }
  }
  Advance(round, scope);
}

void GrowLayout(Round& round, const RoundScope& scope) {
  round.PlanAgain();
  const ByShard bytes = BytesFrom(scope.lane.layout, scope.lane.shares, round.attempt.tensors());
  round.attempt.Grow(scope.lane.layout);
  round.held.Grow(scope.lane.layout.chunks());
  for (RoundMember& member : round.roster) {
    member.Grow(scope.lane.layout, bytes);
    if (round.phase() == RoundPhase::kPrepared) continue;
    if (member.contribution.committed()) SkipWhatIsNotCommitted(round, scope, member);
    ReviewRoom(round, scope, member);
  }
}

void SkipWhatIsNotCommitted(Round& round, const RoundScope& scope, RoundMember& member) {
  for (TensorIndex tensor = 0; tensor < scope.lane.layout.version(); ++tensor) {
    if (!member.contribution.Commits(tensor)) MarkSkipped(round, scope, member, tensor);
  }
}

void OnBegin(Round& round, const RoundScope& scope, Slot slot, const Begin& begin) {
  RoundMember& member = round.roster.At(slot);
  if (round.phase() == RoundPhase::kIdle) {
    round.Apply(scope, RoundInput::kOpen);
    AddNote(round, scope, NoteKind::kRoundOpened, member.id,
            absl::StrCat("Round ", round.number, " opened with ",
                         CountOf(round.roster.size(), "member"), "."));
  }
  OnPart(round, scope, member);
  // A member can only take a value that is fixed.
  if (round.phase() == RoundPhase::kPrepared) return;
  // It has withdrawn, or repeats its begin on a new session.
  if (member.contribution.state() != ContributionState::kAwaited) return;
  if (const std::string why = WhyNotLeased(round, scope, member, begin); !why.empty()) {
    const bool restart =
        Refuse(round, scope, member, ErrorCode::kInvalidArgument,
               absl::StrCat("Job ", scope.job.name, ", lane ", scope.lane.name, ", round ",
                            round.number, ": the begin of worker ", member.id, " ", why,
                            ". It is not counted in this round."));
    AfterRemoval(round, scope, restart,
                 absl::StrCat("the begin of worker ", member.id, " was refused"));
    return;
  }
  member.contribution.OnBegin(begin);
  round.roster.Apply(member, ContributionInput::kBegin);
  // Its client ignored the chunks that were requested before its begin.
  member.asked.ClearAll();
  round.PlanAgain();
  for (uint32_t flat = 0; flat < round.attempt.chunks(); ++flat) {
    if (!member.contribution.Knows(flat)) continue;
    if (RefuseTensor(round, scope, member, scope.lane.layout.TensorOf(flat))) return;
  }
  Advance(round, scope);
}

void OnFrame(Round& round, const RoundScope& scope, Slot slot, const FrameReceived& frame) {
  RoundMember& member = round.roster.At(slot);
  OnPart(round, scope, member);
  for (const ChunkRange& range : frame.ranges) {
    if (round.phase() != RoundPhase::kPrepared && RefuseTensor(round, scope, member, range.tensor))
      break;
  }
  Intake intake;
  const bool of_use = round.phase() != RoundPhase::kPrepared && member.contribution.counts();
  if (of_use) {
    const Digest* digests = frame.digests.data();
    for (const ChunkRange& range : frame.ranges) {
      scope.lane.shares.Split(scope.lane.layout, range, [&](ShardId shard, const ChunkRange& part) {
        if (shard == frame.shard) {
          OnRange(round, scope, member, shard, part, digests, intake);
        } else {
          // It was on its way when the placement changed, and may have come to the right one since.
          const uint32_t base = scope.lane.layout.FirstChunk(part.tensor);
          for (uint32_t chunk = part.first; chunk < part.first + part.count; ++chunk) {
            const bool here = member.contribution.Has(base + chunk);
            intake.misplaced |= !here;
            AppendChunk(here ? intake.acked : intake.refused, part.tensor, chunk);
          }
        }
        digests += part.count;
      });
    }
  } else {
    intake.acked.assign(frame.ranges.begin(), frame.ranges.end());
  }
  if (!of_use || intake.skipped) {
    AddNote(round, scope, of_use ? NoteKind::kFrameRefused : NoteKind::kFrameStale, member.id,
            "A frame arrived that its round no longer needs.");
  }
  if (!intake.kept.empty()) {
    scope.actions.push_back(KeepChunks{scope.job.id, scope.index, round.number, member.incarnation,
                                       std::move(intake.kept), frame.shard});
  }
  Credit credit = CreditFor(round, scope, member, frame.shard);
  credit.acked = std::move(intake.acked);
  credit.refused = std::move(intake.refused);
  if (intake.duplicates > 0) {
    AddNote(round, scope, NoteKind::kFrameDuplicate, member.id,
            absl::StrCat(intake.duplicates, " chunks arrived again, and were counted once."));
  }
  if (!credit.refused.empty()) {
    AddNote(round, scope, NoteKind::kFrameRefused, member.id,
            intake.misplaced ? "Chunks arrived at a shard that does not hold them."
                             : "Chunks beyond the window arrived.");
  }
  // A worker whose whole contribution is here sends no more, until a message asks it to.
  const bool can_wait =
      credit.refused.empty() && member.contribution.committed() && member.contribution.Complete();
  SendTo(scope, member, std::move(credit), can_wait);
  if (intake.changed.has_value()) {
    Reject(round, scope, member, ErrorCode::kContributionChanged,
           absl::StrCat("Job ", scope.job.name, ", round ", round.number, ": worker ", member.id,
                        " sent other bytes for tensor ",
                        scope.lane.layout.tensors()[*intake.changed].name,
                        " than before. The bytes that it sent first are used; do not modify a "
                        "gradient between its push and the end of the round."));
  }
  if (!of_use) return;
  UpdateBlocked(round, scope, member);
  CheckEffective(round, scope, member);
  Advance(round, scope);
}

void OnSkip(Round& round, const RoundScope& scope, Slot slot, const Skip& skip) {
  RoundMember& member = round.roster.At(slot);
  // The skip is too late, or repeats one of an earlier session.
  if (round.phase() == RoundPhase::kPrepared || member.contribution.committed()) return;
  OnPart(round, scope, member);
  for (const TensorIndex tensor : skip.tensors) {
    if (member.contribution.KnowsAny(scope.lane.layout, tensor)) {
      Reject(round, scope, member, ErrorCode::kInvalidArgument,
             absl::StrCat("Job ", scope.job.name, ", round ", round.number, ": worker ", member.id,
                          " skips tensor ", scope.lane.layout.tensors()[tensor].name,
                          " after it had pushed it. The push holds for this round."));
      continue;
    }
    MarkSkipped(round, scope, member, tensor);
  }
  ReviewRoom(round, scope, member);
  Advance(round, scope);
}

void OnCommit(Round& round, const RoundScope& scope, Slot slot, const Commit& commit) {
  RoundMember& member = round.roster.At(slot);
  // The commit is too late, or repeats one of an earlier session.
  if (round.phase() == RoundPhase::kPrepared || member.contribution.committed()) return;
  if (!member.contribution.counts()) return;
  const std::string wrong = member.contribution.WhatIsWrongWith(scope.lane.layout, commit);
  if (!wrong.empty()) {
    const bool restart = Refuse(
        round, scope, member, ErrorCode::kInvalidArgument,
        absl::StrCat("Job ", scope.job.name, ", round ", round.number, ": the commit of worker ",
                     member.id, " ", wrong, ". It is not counted in this round."));
    AfterRemoval(round, scope, restart,
                 absl::StrCat("the commit of worker ", member.id, " was refused"));
    return;
  }
  member.contribution.OnCommit(commit);
  round.roster.Apply(member, ContributionInput::kCommit);
  SkipWhatIsNotCommitted(round, scope, member);
  ReviewRoom(round, scope, member);
  CheckEffective(round, scope, member);
  Advance(round, scope);
}

void OnWithdraw(Round& round, const RoundScope& scope, Slot slot, const std::string& reason,
                bool without_results) {
  RoundMember& member = round.roster.At(slot);
  // The member takes part in the call: it stages what the others reduce.
  if (member.presence.state() == Presence::kUndecided) OnPart(round, scope, member);
  if (!member.contribution.committed()) {
    without_results ? SendNoResults(round, scope, member) : SendResults(round, scope, member);
  }
  if (!member.contribution.counts()) {
    Advance(round, scope);  // There may be more room for results.
    return;
  }
  if (member.contribution.committed()) {
    Reject(round, scope, member, ErrorCode::kFailedPrecondition,
           absl::StrCat("Job ", scope.job.name, ", round ", round.number, ": worker ", member.id,
                        " withdrew after its commit. The commit holds."));
    return;
  }
  // The member joined after the value was fixed, or repeats a withdrawal that an adopted value
  // includes.
  if (round.phase() == RoundPhase::kPrepared) return;
  if (round.phase() == RoundPhase::kIdle) round.Apply(scope, RoundInput::kOpen);
  // It happens in each round of a node that reduces its gradients itself, to all ranks but one.
  const bool carried = member.carried = reason.empty();
  const std::string why = carried ? "another worker of its node contributes its gradients" : reason;
  AddNote(round, scope, carried ? NoteKind::kContributionCarried : NoteKind::kContributionWithdrawn,
          member.id, why);
  const bool restart = RemoveContribution(round, scope, member, ContributionInput::kWithdraw);
  AfterRemoval(round, scope, restart, absl::StrCat("worker ", member.id, " withdrew: ", why));
}

void OnFinished(Round& round, const RoundScope& scope, Slot slot) {
  RoundMember& member = round.roster.At(slot);
  if (!member.contribution.counts()) return;
  if (round.phase() == RoundPhase::kIdle) round.Apply(scope, RoundInput::kOpen);
  const bool restart = RemoveContribution(round, scope, member, ContributionInput::kWithdraw);
  AfterRemoval(round, scope, restart, absl::StrCat("worker ", member.id, " has finished"));
}

}  // namespace basin::aggregator
