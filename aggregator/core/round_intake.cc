// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A round receives begins, frames, skips, commits and withdrawals from its members, and tracks how
// much room each of them has.

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/round.h"
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

}  // namespace

uint32_t Round::WithoutCredit() const {
  return static_cast<uint32_t>(
      std::count_if(roster_.begin(), roster_.end(), FlowControl::LacksRoom));
}

// The member has more or less to send than before, so its room may now be too small, or enough. A
// member that counts as unblocked must know that it has room for its next frame.
void Round::ReviewRoom(const RoundScope& scope, RoundMember& member) {
  UpdateBlocked(scope, member);
  const std::optional<uint64_t> window = FlowControl::News(scope.memory, member, pull_mode());
  if (!window.has_value()) return;
  member.room.told = *window;
  SendTo(scope, member, Credit{scope.lane, number_, *window, {}, {}});
}

void Round::MemoryGrew(const RoundScope& scope) {
  if (phase() == RoundPhase::kPrepared) return;
  PlanAgain();
  for (RoundMember& member : roster_) {
    if (!member.alive()) continue;
    UpdateBlocked(scope, member);
    member.room.told = FlowControl::Window(scope.memory, member);
    // All have been told of the whole window.
    if (member.room.told == scope.memory.window) continue;
    SendTo(scope, member, Credit{scope.lane, number_, member.room.told, {}, {}});
  }
  Advance(scope);
}

void Round::OnBegin(const RoundScope& scope, Slot slot, const Begin& begin) {
  RoundMember& member = roster_.At(slot);
  if (phase() == RoundPhase::kIdle) {
    Apply(scope, RoundInput::kOpen);
    AddNote(
        scope, NoteKind::kRoundOpened, member.id,
        absl::StrCat("Round ", number_, " opened with ", CountOf(roster_.size(), "member"), "."));
  }
  OnPart(scope, member);
  // A member can only take a value that is fixed.
  if (phase() == RoundPhase::kPrepared) return;
  // It has withdrawn, or repeats its begin on a new session.
  if (member.contribution.state() != ContributionState::kAwaited) return;
  member.contribution.OnBegin(begin);
  roster_.Apply(member, ContributionInput::kBegin);
  // Its client ignored the chunks that were requested before its begin.
  member.asked.ClearAll();
  PlanAgain();
  for (uint32_t flat = 0; flat < attempt_.chunks(); ++flat) {
    if (!member.contribution.Knows(flat)) continue;
    if (RefuseTensor(scope, member, scope.layout.TensorOf(flat))) return;
  }
  Advance(scope);
}

// Refuses a contribution that pushes a tensor that its own spec cannot reduce. Returns whether it
// does.
bool Round::RefuseTensor(const RoundScope& scope, RoundMember& member, TensorIndex index) {
  if (!member.contribution.begun()) return false;
  const TensorSpec& tensor = scope.layout.tensors()[index];
  const std::string why = WhyNotReducible(member.contribution.begin().spec, tensor.dtype);
  if (why.empty()) return false;
  const bool restart =
      Refuse(scope, member, ErrorCode::kInvalidArgument,
             absl::StrCat("Job ", scope.job_name, ", lane ", scope.lane_name, ", round ", number_,
                          ": worker ", member.id, " pushed tensor ", tensor.name, ": ", why,
                          ". It is not counted in this round."));
  AfterRemoval(scope, restart,
               absl::StrCat("worker ", member.id, " pushed a tensor that cannot be reduced"));
  return true;
}

// Collects what happens to the chunks of one frame.
struct Round::Intake {
  Credit credit;
  ChunkRanges kept;
  uint32_t duplicates = 0;
  bool refused = false;                // It has a tensor that its worker skips.
  std::optional<TensorIndex> changed;  // A tensor with other bytes than before.
};

void Round::OnFrame(const RoundScope& scope, Slot slot, const FrameReceived& frame) {
  RoundMember& member = roster_.At(slot);
  OnPart(scope, member);
  for (const ChunkRange& range : frame.ranges) {
    if (phase() != RoundPhase::kPrepared && RefuseTensor(scope, member, range.tensor)) break;
  }
  Intake intake;
  Credit& credit = intake.credit;
  credit.lane = scope.lane;
  credit.round = number_;
  const bool of_use = phase() != RoundPhase::kPrepared && member.contribution.counts();
  if (of_use) {
    const Digest* digests = frame.digests.data();
    for (const ChunkRange& range : frame.ranges) {
      OnRange(scope, member, range, digests, intake);
      digests += range.count;
    }
  } else {
    credit.acked.assign(frame.ranges.begin(), frame.ranges.end());
  }
  if (!of_use || intake.refused) {
    AddNote(scope, of_use ? NoteKind::kFrameRefused : NoteKind::kFrameStale, member.id,
            "A frame arrived that its round no longer needs.");
  }
  if (!intake.kept.empty()) {
    scope.actions.push_back(
        KeepChunks{scope.job, scope.lane, number_, member.incarnation, std::move(intake.kept)});
  }
  credit.window = member.room.told = FlowControl::Window(scope.memory, member);
  if (intake.duplicates > 0) {
    AddNote(scope, NoteKind::kFrameDuplicate, member.id,
            absl::StrCat(intake.duplicates, " chunks arrived again, and were counted once."));
  }
  if (!credit.refused.empty()) {
    AddNote(scope, NoteKind::kFrameRefused, member.id, "Chunks beyond the window arrived.");
  }
  // A worker whose whole contribution is here sends no more, until a message tells it to.
  const bool can_wait =
      credit.refused.empty() && member.contribution.committed() && member.contribution.Complete();
  SendTo(scope, member, std::move(credit), can_wait);
  if (intake.changed.has_value()) {
    Reject(
        scope, member, ErrorCode::kContributionChanged,
        absl::StrCat("Job ", scope.job_name, ", round ", number_, ": worker ", member.id,
                     " sent other bytes for tensor ", scope.layout.tensors()[*intake.changed].name,
                     " than before. The bytes that it sent first are used; do not modify a "
                     "gradient between its push and the end of the round."));
  }
  if (!of_use) return;
  UpdateBlocked(scope, member);
  CheckEffective(scope, member);
  Advance(scope);
}

// Takes the chunks of one tensor. REQUIRES: the contribution counts, and the round is not prepared.
void Round::OnRange(const RoundScope& scope, RoundMember& member, const ChunkRange& range,
                    const Digest* digests, Intake& intake) {
  Contribution& contribution = member.contribution;
  if (contribution.Skips(range.tensor) ||
      (contribution.committed() && !contribution.Commits(range.tensor))) {
    intake.refused = true;
    intake.credit.acked.push_back(range);
    Reject(scope, member, ErrorCode::kInvalidArgument,
           absl::StrCat("Job ", scope.job_name, ", round ", number_, ": worker ", member.id,
                        " pushed tensor ", scope.layout.tensors()[range.tensor].name,
                        " after it had skipped it. The skip holds for this round."));
    return;
  }
  const uint32_t base = scope.layout.FirstChunk(range.tensor);
  for (uint32_t i = 0; i < range.count; ++i) {
    const uint32_t chunk = range.first + i;
    const uint32_t flat = base + chunk;
    if (contribution.Knows(flat) && contribution.DigestOf(flat) != digests[i]) {
      intake.changed = range.tensor;
      AppendChunk(intake.credit.acked, range.tensor, chunk);
    } else if (contribution.Has(flat)) {
      ++intake.duplicates;
      AppendChunk(intake.credit.acked, range.tensor, chunk);
    } else if (const uint64_t size = ChunkSize(scope.layout.TensorSize(range.tensor), chunk);
               contribution.parked() + size > scope.memory.window ||
               (pull_mode() && !member.asked.Test(flat))) {
      AppendChunk(intake.credit.refused, range.tensor, chunk);
    } else {
      contribution.OnChunk(flat, size, digests[i]);
      attempt_.Arrived(flat);
      AppendChunk(intake.kept, range.tensor, chunk);
      AppendChunk(intake.credit.acked, range.tensor, chunk);
      CheckReady(range.tensor, flat);
    }
  }
}

void Round::OnSkip(const RoundScope& scope, Slot slot, const Skip& skip) {
  RoundMember& member = roster_.At(slot);
  // The skip is too late, or repeats one of an earlier session.
  if (phase() == RoundPhase::kPrepared || member.contribution.committed()) return;
  OnPart(scope, member);
  for (const TensorIndex tensor : skip.tensors) {
    if (member.contribution.KnowsAny(scope.layout, tensor)) {
      Reject(scope, member, ErrorCode::kInvalidArgument,
             absl::StrCat("Job ", scope.job_name, ", round ", number_, ": worker ", member.id,
                          " skips tensor ", scope.layout.tensors()[tensor].name,
                          " after it had pushed it. The push holds for this round."));
      continue;
    }
    MarkSkipped(scope, member, tensor);
  }
  ReviewRoom(scope, member);
  Advance(scope);
}

void Round::MarkSkipped(const RoundScope& scope, RoundMember& member, TensorIndex tensor) {
  if (!member.contribution.OnSkip(scope.layout, tensor)) return;
  PlanAgain();
  if (!member.contribution.counts()) return;
  attempt_.Skipped(tensor);
  for (uint32_t flat = scope.layout.FirstChunk(tensor); flat < scope.layout.FirstChunk(tensor + 1);
       ++flat) {
    CheckReady(tensor, flat);
  }
}

// Marks every tensor that the commit omits, including those that its worker did not know yet.
void Round::SkipWhatIsNotCommitted(const RoundScope& scope, RoundMember& member) {
  for (TensorIndex tensor = 0; tensor < scope.layout.version(); ++tensor) {
    if (!member.contribution.Commits(tensor)) MarkSkipped(scope, member, tensor);
  }
}

void Round::OnCommit(const RoundScope& scope, Slot slot, const Commit& commit) {
  RoundMember& member = roster_.At(slot);
  // The commit is too late, or repeats one of an earlier session.
  if (phase() == RoundPhase::kPrepared || member.contribution.committed()) return;
  if (!member.contribution.counts()) return;
  const std::string wrong = member.contribution.WhatIsWrongWith(scope.layout, commit);
  if (!wrong.empty()) {
    const bool restart =
        Refuse(scope, member, ErrorCode::kInvalidArgument,
               absl::StrCat("Job ", scope.job_name, ", round ", number_, ": the commit of worker ",
                            member.id, " ", wrong, ". It is not counted in this round."));
    AfterRemoval(scope, restart, absl::StrCat("the commit of worker ", member.id, " was refused"));
    return;
  }
  member.contribution.OnCommit(commit);
  roster_.Apply(member, ContributionInput::kCommit);
  SkipWhatIsNotCommitted(scope, member);
  ReviewRoom(scope, member);
  CheckEffective(scope, member);
  Advance(scope);
}

void Round::CheckEffective(const RoundScope& scope, RoundMember& member) {
  if (member.contribution.state() != ContributionState::kCommitted) return;
  if (!member.contribution.Complete()) return;
  if (member.contribution.digest() == member.contribution.commit().digest) {
    roster_.Apply(member, ContributionInput::kComplete);
    member.contribution.NoteArrival(scope.now);
    straggler_ = Straggler{member.id, straggler_.until, scope.now};
    UpdateBlocked(scope, member);
    return;
  }
  const std::string text =
      absl::StrCat("Job ", scope.job_name, ", round ", number_, ": the contribution of worker ",
                   member.id, " has digest ", member.contribution.digest(), ", but its commit has ",
                   member.contribution.commit().digest);
  // An empty commit has nothing to fetch again.
  if (member.contribution.refetched() || member.contribution.commit().chunks == 0) {
    const bool restart = Refuse(
        scope, member, ErrorCode::kDataCorrupt,
        absl::StrCat(
            text, member.contribution.refetched() ? ", for the second time" : "",
            ". It is not counted in this round; check the memory and network of that worker."));
    AfterRemoval(scope, restart,
                 absl::StrCat("the contribution of worker ", member.id, " is corrupt"));
    return;
  }
  // The first time, all bytes are fetched again, because the sum does not show which are wrong.
  AddNote(scope, NoteKind::kContributionRejected, member.id,
          absl::StrCat(text, "; it is fetched again."));
  Restart(scope, absl::StrCat("the digest of worker ", member.id, " did not match"), &member);
}

void Round::OnWithdraw(const RoundScope& scope, Slot slot, const std::string& reason,
                       bool without_results) {
  RoundMember& member = roster_.At(slot);
  // The member takes part in the call: it stages what the others reduce.
  if (member.presence.state() == Presence::kUndecided) OnPart(scope, member);
  if (!member.contribution.committed()) {
    without_results ? SendNoResults(scope, member) : SendResults(scope, member);
  }
  if (!member.contribution.counts()) {
    Advance(scope);  // There may be more room for results.
    return;
  }
  if (member.contribution.committed()) {
    Reject(scope, member, ErrorCode::kFailedPrecondition,
           absl::StrCat("Job ", scope.job_name, ", round ", number_, ": worker ", member.id,
                        " withdrew after its commit. The commit holds."));
    return;
  }
  // The member joined after the value was fixed, or repeats a withdrawal that an adopted value
  // includes.
  if (phase() == RoundPhase::kPrepared) return;
  if (phase() == RoundPhase::kIdle) Apply(scope, RoundInput::kOpen);
  // It happens in each round of a node that reduces its gradients itself, to all ranks but one.
  const bool carried = reason.empty();
  const std::string why = carried ? "another worker of its node contributes its gradients" : reason;
  AddNote(scope, carried ? NoteKind::kContributionCarried : NoteKind::kContributionWithdrawn,
          member.id, why);
  const bool restart = RemoveContribution(scope, member, ContributionInput::kWithdraw);
  AfterRemoval(scope, restart, absl::StrCat("worker ", member.id, " withdrew: ", why));
}

void Round::OnFinished(const RoundScope& scope, Slot slot) {
  RoundMember& member = roster_.At(slot);
  if (!member.contribution.counts()) return;
  if (phase() == RoundPhase::kIdle) Apply(scope, RoundInput::kOpen);
  const bool restart = RemoveContribution(scope, member, ContributionInput::kWithdraw);
  AfterRemoval(scope, restart, absl::StrCat("worker ", member.id, " has finished"));
}

}  // namespace basin::aggregator
