// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a round collects: begin, frames, skips, commits, attempts, and what is reduced when.

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/core/round.h"
#include "aggregator/core/spec.h"
#include "proto/vocabulary/plural.h"

namespace basin::aggregator {
namespace {

// Appends a chunk to ranges of one tensor, joining neighbours.
template <typename Ranges>
void AppendChunk(Ranges& ranges, TensorIndex tensor, uint32_t chunk) {
  if (!ranges.empty() && ranges.back().first + ranges.back().count == chunk) {
    ++ranges.back().count;
  } else {
    ranges.push_back({tensor, chunk, 1});
  }
}

}  // namespace

uint64_t Round::WindowOf(const RoundScope& scope, const RoundMember& member) const {
  return scope.memory.window > member.parked ? scope.memory.window - member.parked : 0;
}

void Round::UpdateBlocked(const RoundScope& scope, RoundMember& member) {
  // A frame is never longer than what is missing, so this is enough for any.
  const uint64_t next = std::min(scope.memory.frame, member.missing);
  const bool blocked = member.gone || member.effective ||
                       member.standing != Standing::kContributor || WindowOf(scope, member) < next;
  if (blocked != member.blocked) {
    member.blocked = blocked;
    blocked ? --unblocked_ : ++unblocked_;
    if (!blocked) member.free_since = scope.now;
  }
  const bool waits = blocked && Receives(member);
  if (waits == member.waits) return;
  member.waits = waits;
  waits ? ++waiting_ : --waiting_;
  wait_since_ = waiting_ == 0 ? absl::InfiniteFuture() : std::min(wait_since_, scope.now);
}

uint32_t Round::WithoutCredit() const {
  return static_cast<uint32_t>(
      std::count_if(members_.begin(), members_.end(), [](const RoundMember& member) {
        return member.blocked && !member.gone && !member.effective && member.missing > 0 &&
               member.standing == Standing::kContributor;
      }));
}

void Round::TellWindow(const RoundScope& scope, RoundMember& member) {
  const uint64_t window = WindowOf(scope, member);
  // What lets the next frame go, as for UpdateBlocked: who counts as unblocked has been told so.
  const uint64_t next = std::min(scope.memory.frame, member.missing);
  if (member.told_window >= next) return;
  // What is pulled may be shorter than a frame, so in pull mode any growth counts.
  if (pull_ ? window <= member.told_window : window < next) return;
  member.told_window = window;
  SendTo(scope, member, Credit{scope.lane, number_, window, {}, {}});
}

void Round::MemoryGrew(const RoundScope& scope) {
  if (phase_ == RoundPhase::kPrepared) return;
  replan_ = true;
  for (RoundMember& member : members_) {
    if (member.gone) continue;
    UpdateBlocked(scope, member);
    member.told_window = WindowOf(scope, member);
    SendTo(scope, member, Credit{scope.lane, number_, member.told_window, {}, {}});
  }
  Advance(scope);
}

void Round::TakeBegin(const RoundScope& scope, Slot slot, const Begin& begin) {
  RoundMember& member = At(slot);
  if (phase_ == RoundPhase::kIdle) {
    SetPhase(RoundPhase::kCollect);
    Say(scope, NoteKind::kRoundOpened, member.id,
        absl::StrCat("Round ", number_, " opened with ", CountOf(members_.size(), "member"), "."));
  }
  TakePart(scope, member);
  // Repeated on a new session; or the value is fixed, and all it can do is take it.
  if (member.begun || phase_ == RoundPhase::kPrepared) return;
  member.begun = true;
  // What it was told to pull before it had begun meant nothing to it.
  member.asked.ClearAll();
  replan_ = true;
  member.begin = begin;
  member.begin.spec = AsBegun(begin.spec);
  begun_ += member.standing == Standing::kContributor;
  for (uint32_t flat = 0; flat < member.known.size(); ++flat) {
    if (!member.known.Test(flat)) continue;
    if (RefuseTensor(scope, member, scope.layout.TensorOf(flat))) return;
  }
  Advance(scope);
}

// The member makes this call: one that was away counts again while nothing is fixed. A frame says
// so as well as the begin, which it may precede.
void Round::TakePart(const RoundScope& scope, RoundMember& member) {
  const bool prepared = phase_ == RoundPhase::kPrepared;
  if (member.presence == Presence::kThere) return;
  if (member.presence == Presence::kUndecided) {
    member.presence = Presence::kThere;
    member.standing = Standing::kContributor;  // When prepared: should the round be run again.
    CountMembers();
    if (prepared) TellPrepared(scope, member);
    return;
  }
  if (prepared) return;  // Its client makes this call the next one, once it hears the verdict.
  member.presence = Presence::kThere;
  member.standing = Standing::kContributor;
  RemoveEarlierLives(scope, member);
  CountMembers();
  UpdateBlocked(scope, member);
  compared_ = false;
  Restart(scope, absl::StrCat("worker ", member.id, " joined and has begun the call"));
}

void Round::LeaveOut(const RoundScope& scope, Slot slot) {
  RoundMember& member = At(slot);
  if (member.presence != Presence::kUndecided) return;
  Say(scope, NoteKind::kContributionWithdrawn, member.id,
      "It joined while the call was open, but waits for another call or value.");
  // Before it is away: no result is held for it any more.
  for (uint32_t flat = 0; flat < member.acked.size(); ++flat) Acknowledge(scope, member, flat);
  member.owed = member.behind = 0;
  member.presence = Presence::kAway;
  const bool prepared = phase_ == RoundPhase::kPrepared;
  const bool restart = !prepared && RemoveContribution(scope, member, Standing::kWithdrawn);
  CountMembers();
  UpdateBlocked(scope, member);
  if (!prepared) {
    AfterRemoval(scope, restart, absl::StrCat("worker ", member.id, " does not make this call"));
  }
}

// Withdraws a contribution that pushes a tensor which its own spec cannot reduce.
bool Round::RefuseTensor(const RoundScope& scope, RoundMember& member, TensorIndex index) {
  if (!member.begun || member.standing != Standing::kContributor) return false;
  const TensorSpec& tensor = scope.layout.tensors()[index];
  const std::string why = WhyNotReducible(member.begin.spec, tensor.dtype);
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

void Round::TakeFrame(const RoundScope& scope, Slot slot, const FrameReceived& frame) {
  RoundMember& member = At(slot);
  const ChunkRange& range = frame.range;
  TakePart(scope, member);
  if (phase_ != RoundPhase::kPrepared) RefuseTensor(scope, member, range.tensor);
  Credit credit{scope.lane, number_, 0, {}, {}};
  const bool of_use = phase_ != RoundPhase::kPrepared && member.standing == Standing::kContributor;
  const bool contradicts =
      of_use && (member.skipped.Test(range.tensor) ||
                 (member.committed && !member.commit.present.Test(range.tensor)));
  absl::InlinedVector<ChunkRange, 4> kept;
  uint32_t duplicates = 0;
  bool changed = false;
  if (contradicts) {
    Reject(scope, member, ErrorCode::kInvalidArgument,
           absl::StrCat("Job ", scope.job_name, ", round ", number_, ": worker ", member.id,
                        " pushed tensor ", scope.layout.tensors()[range.tensor].name,
                        " after it had skipped it. The skip holds for this round."));
  }
  if (!of_use || contradicts) {
    credit.acked.push_back(range);
    Say(scope, of_use ? NoteKind::kFrameRefused : NoteKind::kFrameStale, member.id,
        "A frame arrived that its round no longer needs.");
  } else {
    const uint32_t base = scope.layout.FirstChunk(range.tensor);
    for (uint32_t i = 0; i < range.count; ++i) {
      const uint32_t chunk = range.first + i;
      const uint32_t flat = base + chunk;
      if (member.known.Test(flat) && member.digests[flat] != frame.digests[i]) {
        changed = true;
        AppendChunk(credit.acked, range.tensor, chunk);
      } else if (member.have.Test(flat)) {
        ++duplicates;
        AppendChunk(credit.acked, range.tensor, chunk);
      } else if (const uint64_t size = ChunkSize(scope.layout.TensorSize(range.tensor), chunk);
                 member.parked + size > scope.memory.window ||
                 (pull_ && !member.asked.Test(flat))) {
        AppendChunk(credit.refused, range.tensor, chunk);
      } else {
        member.have.Set(flat);
        member.known.Set(flat);
        member.digests[flat] = frame.digests[i];
        member.digest += frame.digests[i];
        member.parked += size;
        member.missing -= size;
        ++arrived_[flat];
        AppendChunk(kept, range.tensor, chunk);
        AppendChunk(credit.acked, range.tensor, chunk);
        CheckReady(range.tensor, flat);
      }
    }
  }
  for (const ChunkRange& run : kept) {
    scope.actions.push_back(KeepChunks{scope.job, scope.lane, number_, member.incarnation, run});
  }
  credit.window = member.told_window = WindowOf(scope, member);
  if (duplicates > 0) {
    Say(scope, NoteKind::kFrameDuplicate, member.id,
        absl::StrCat(duplicates, " chunks arrived again, and were counted once."));
  }
  if (!credit.refused.empty()) {
    Say(scope, NoteKind::kFrameRefused, member.id, "Chunks beyond the window arrived.");
  }
  SendTo(scope, member, std::move(credit));
  if (changed) {
    Reject(scope, member, ErrorCode::kContributionChanged,
           absl::StrCat("Job ", scope.job_name, ", round ", number_, ": worker ", member.id,
                        " sent other bytes for tensor ", scope.layout.tensors()[range.tensor].name,
                        " than before. The first bytes count; do not write to a gradient between "
                        "its push and the end of the round."));
  }
  if (!of_use) return;
  UpdateBlocked(scope, member);
  CheckEffective(scope, member);
  Advance(scope);
}

void Round::MarkSkipped(const RoundScope& scope, RoundMember& member, TensorIndex tensor) {
  if (!member.skipped.Set(tensor)) return;
  replan_ = true;
  member.missing -= scope.layout.TensorSize(tensor);
  UpdateBlocked(scope, member);
  TellWindow(scope, member);  // It may be enough now for what is left.
  if (member.standing != Standing::kContributor) return;
  ++skip_counts_[tensor];
  for (uint32_t flat = scope.layout.FirstChunk(tensor); flat < scope.layout.FirstChunk(tensor + 1);
       ++flat) {
    CheckReady(tensor, flat);
  }
}

void Round::TakeSkip(const RoundScope& scope, Slot slot, const Skip& skip) {
  RoundMember& member = At(slot);
  if (phase_ == RoundPhase::kPrepared || member.committed) return;  // Repeated on a new session.
  TakePart(scope, member);
  for (const TensorIndex tensor : skip.tensors) {
    bool pushed = false;
    for (uint32_t flat = scope.layout.FirstChunk(tensor);
         flat < scope.layout.FirstChunk(tensor + 1) && !pushed; ++flat) {
      pushed = member.known.Test(flat);
    }
    if (pushed) {
      Reject(scope, member, ErrorCode::kInvalidArgument,
             absl::StrCat("Job ", scope.job_name, ", round ", number_, ": worker ", member.id,
                          " skips tensor ", scope.layout.tensors()[tensor].name,
                          " after it had pushed it. The push holds for this round."));
      continue;
    }
    MarkSkipped(scope, member, tensor);
  }
  Advance(scope);
}

void Round::TakeCommit(const RoundScope& scope, Slot slot, const Commit& commit) {
  RoundMember& member = At(slot);
  if (phase_ == RoundPhase::kPrepared || member.committed) return;  // Repeated on a new session.
  if (member.standing != Standing::kContributor) return;            // Withdrawn meanwhile.
  std::string wrong;
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  for (TensorIndex tensor = 0; tensor < scope.layout.version(); ++tensor) {
    const bool present = tensor < commit.layout_version && commit.present.Test(tensor);
    if (present) {
      chunks += scope.layout.TensorChunks(tensor);
      bytes += scope.layout.TensorSize(tensor);
      if (member.skipped.Test(tensor)) wrong = "claims a tensor that it skipped";
      continue;
    }
    for (uint32_t flat = scope.layout.FirstChunk(tensor);
         flat < scope.layout.FirstChunk(tensor + 1); ++flat) {
      if (member.known.Test(flat)) wrong = "leaves out a tensor that it pushed";
    }
  }
  if (!member.begun) wrong = "comes without a begin";
  if (commit.layout_version > scope.layout.version()) wrong = "names a layout that does not exist";
  if (chunks != commit.chunks || bytes != commit.bytes) {
    wrong = absl::StrCat("claims ", commit.chunks, " chunks and ", commit.bytes,
                         " bytes, but its tensors have ", chunks, " and ", bytes);
  }
  if (!wrong.empty()) {
    const bool restart =
        Refuse(scope, member, ErrorCode::kInvalidArgument,
               absl::StrCat("Job ", scope.job_name, ", round ", number_, ": the commit of worker ",
                            member.id, " ", wrong, ". It is not counted in this round."));
    AfterRemoval(scope, restart, absl::StrCat("the commit of worker ", member.id, " was refused"));
    return;
  }
  member.committed = true;
  member.commit = commit;
  for (TensorIndex tensor = 0; tensor < scope.layout.version(); ++tensor) {
    if (tensor >= commit.layout_version || !commit.present.Test(tensor)) {
      MarkSkipped(scope, member, tensor);
    }
  }
  CheckEffective(scope, member);
  Advance(scope);
}

void Round::CheckEffective(const RoundScope& scope, RoundMember& member) {
  if (!member.committed || member.effective || member.standing != Standing::kContributor) return;
  if (member.have.count() != member.commit.chunks) return;
  if (member.digest == member.commit.digest) {
    member.effective = true;
    ++effective_;
    straggler_ = Straggler{member.id, straggler_.until, scope.now};
    UpdateBlocked(scope, member);
    return;
  }
  const std::string text = absl::StrCat(
      "Job ", scope.job_name, ", round ", number_, ": the contribution of worker ", member.id,
      " has digest ", member.digest, ", but its commit has ", member.commit.digest);
  // A commit of nothing leaves nothing to fetch again.
  if (member.refetched || member.commit.chunks == 0) {
    const bool restart = Refuse(
        scope, member, ErrorCode::kDataCorrupt,
        absl::StrCat(
            text, member.refetched ? ", for the second time" : "",
            ". It is not counted in this round; check the memory and network of that worker."));
    AfterRemoval(scope, restart,
                 absl::StrCat("the contribution of worker ", member.id, " is corrupt"));
    return;
  }
  // Once, the bytes are fetched again: all of them, because a sum does not tell which are wrong.
  member.refetched = true;
  Say(scope, NoteKind::kContributionRejected, member.id,
      absl::StrCat(text, "; it is fetched again."));
  Restart(scope, absl::StrCat("the digest of worker ", member.id, " did not match"), &member);
}

void Round::TakeWithdraw(const RoundScope& scope, Slot slot, const std::string& reason) {
  RoundMember& member = At(slot);
  if (member.standing != Standing::kContributor) return;
  if (member.committed) {
    Reject(scope, member, ErrorCode::kFailedPrecondition,
           absl::StrCat("Job ", scope.job_name, ", round ", number_, ": worker ", member.id,
                        " withdrew after its commit. The commit holds."));
    return;
  }
  // It is not counted if it has joined since, or repeats it for a value that was adopted.
  if (phase_ == RoundPhase::kPrepared) return;
  if (phase_ == RoundPhase::kIdle) SetPhase(RoundPhase::kCollect);
  Say(scope, NoteKind::kContributionWithdrawn, member.id, reason);
  const bool restart = RemoveContribution(scope, member, Standing::kWithdrawn);
  AfterRemoval(scope, restart, absl::StrCat("worker ", member.id, " withdrew: ", reason));
}

void Round::TakeFinished(const RoundScope& scope, Slot slot) {
  RoundMember& member = At(slot);
  if (member.standing != Standing::kContributor) return;
  if (phase_ == RoundPhase::kIdle) SetPhase(RoundPhase::kCollect);
  const bool restart = RemoveContribution(scope, member, Standing::kWithdrawn);
  AfterRemoval(scope, restart, absl::StrCat("worker ", member.id, " has finished"));
}

// Takes a contribution out for what its worker did, and tells it: also on a new session, should it
// not have heard. Returns as RemoveContribution does.
bool Round::Refuse(const RoundScope& scope, RoundMember& member, ErrorCode code,
                   const std::string& text) {
  Reject(scope, member, code, text);
  member.refusal = Error{code, text};
  return RemoveContribution(scope, member, Standing::kWithdrawn);
}

// Takes a contribution out. Returns whether chunks that it is part of have been reduced.
bool Round::RemoveContribution(const RoundScope& scope, RoundMember& member, Standing standing) {
  if (member.standing != Standing::kContributor) return false;
  member.standing = standing;
  replan_ = true;
  --contributors_;
  begun_ -= member.begun;
  if (member.effective) --effective_;
  member.effective = false;
  bool reduced = false;
  RangeBuilder parked(scope.layout);
  for (uint32_t flat = 0; flat < member.have.size(); ++flat) {
    if (!member.have.Test(flat)) continue;
    if (chunks_[flat] == ChunkState::kOpen) {
      --arrived_[flat];
      parked.Add(flat);
    } else {
      reduced = true;
    }
  }
  // A tensor it skipped counted it out of the set, but the divisor counted it in.
  for (TensorIndex tensor = 0; tensor < skip_counts_.size(); ++tensor) {
    if (!member.skipped.Test(tensor)) continue;
    --skip_counts_[tensor];
    for (uint32_t flat = scope.layout.FirstChunk(tensor);
         flat < scope.layout.FirstChunk(tensor + 1); ++flat) {
      reduced |= chunks_[flat] != ChunkState::kOpen;
    }
  }
  if (std::vector<ChunkRange> ranges = parked.Take(); !ranges.empty()) {
    scope.actions.push_back(
        DiscardChunks{scope.job, scope.lane, number_, member.incarnation, std::move(ranges)});
  }
  member.parked = 0;
  member.digest = 0;
  member.have.ClearAll();
  UpdateBlocked(scope, member);
  return reduced;
}

void Round::AfterRemoval(const RoundScope& scope, bool restart, const std::string& reason) {
  if (restart) {
    Restart(scope, reason);
    return;
  }
  if (compared_) StartAttemptNow(scope);
  Rescan(scope);
  Advance(scope);
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

void Round::Lose(const RoundScope& scope, Slot slot, const std::string& reason) {
  RoundMember& member = At(slot);
  // Before `gone` is set: nothing is owed to it any more.
  for (uint32_t flat = 0; flat < member.acked.size(); ++flat) Acknowledge(scope, member, flat);
  member.gone = true;
  CountMembers();
  UpdateBlocked(scope, member);
  // Nothing is waited for from it any more, so it is of no account how far it came.
  member.fetched = 0;
  member.progress = member.behind_since = member.free_since = absl::Time();
  for (auto it = wanted_.begin(); it != wanted_.end();) {
    it->second.by.erase(slot);
    it = it->second.by.empty() ? wanted_.erase(it) : std::next(it);
  }
  if (phase_ == RoundPhase::kPrepared) {
    AskSupply(scope);
    return;
  }
  if (scope.config.loss_policy == LossPolicy::kAbort && phase_ == RoundPhase::kCollect) {
    if (AnyoneAlive()) {
      PrepareAborted(scope, absl::StrCat("worker ", member.id, " was lost (", reason,
                                         ") and the job's loss policy is abort"));
    }
    return;
  }
  if (member.effective || member.standing != Standing::kContributor) {
    Advance(scope);
    return;
  }
  Say(scope, NoteKind::kContributionDropped, member.id,
      "It was lost before its contribution was effective.");
  const bool restart = RemoveContribution(scope, member, Standing::kDropped);
  AfterRemoval(scope, restart, absl::StrCat("worker ", member.id, " was lost: ", reason));
}

// A worker counts once in a round, also when it was lost and has come back.
void Round::RemoveEarlierLives(const RoundScope& scope, const RoundMember& member) {
  for (RoundMember& before : members_) {
    if (before.id != member.id || before.incarnation == member.incarnation) continue;
    if (before.standing != Standing::kContributor) continue;
    Say(scope, NoteKind::kContributionDropped, before.id,
        "It has returned, and can contribute again.");
    RemoveContribution(scope, before, Standing::kDropped);
  }
}

void Round::Admit(const RoundScope& scope, std::vector<RoundMember> joiners) {
  for (RoundMember& joiner : joiners) {
    joiner.progress = joiner.behind_since = joiner.free_since = scope.now;
    joiner.have.Resize(scope.layout.chunks());
    joiner.known.Resize(scope.layout.chunks());
    joiner.digests.resize(scope.layout.chunks());
    joiner.acked.Resize(scope.layout.chunks());
    joiner.asked.Resize(scope.layout.chunks());
    joiner.skipped.Resize(scope.layout.version());
    joiner.missing = scope.layout.bytes();
    if (phase_ == RoundPhase::kPrepared) {
      // Nothing is held for it: it asks for what it needs.
      for (uint32_t flat = 0; flat < chunks_.size(); ++flat) joiner.acked.Set(flat);
    } else {
      if (joiner.standing == Standing::kContributor) RemoveEarlierLives(scope, joiner);
    }
    members_.push_back(std::move(joiner));
  }
  std::sort(members_.begin(), members_.end(),
            [](const RoundMember& a, const RoundMember& b) { return a.id < b.id; });
  IndexMembers();
  CountMembers();
  if (phase_ == RoundPhase::kPrepared) {
    // The value is fixed; the joiners get its bytes from those who have them.
    ++ballot_.attempt;
    SendPrepared(scope);
    return;
  }
  compared_ = false;
  if (phase_ == RoundPhase::kCollect) Restart(scope, "workers joined while the job was paused");
}

void Round::Reform(const RoundScope& scope, std::vector<RoundMember> members) {
  for (RoundMember& member : members_) {
    const bool stays = std::any_of(members.begin(), members.end(), [&](const RoundMember& other) {
      return other.incarnation == member.incarnation;
    });
    if (stays || member.gone) continue;
    RemoveContribution(scope, member, Standing::kDropped);
    member.gone = true;
    UpdateBlocked(scope, member);
  }
  IndexMembers();
  CountMembers();
  std::vector<RoundMember> joiners;
  for (RoundMember& member : members) {
    if (!Has(member.slot)) joiners.push_back(std::move(member));
  }
  if (!joiners.empty()) Admit(scope, std::move(joiners));
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
