// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a round begins and grows, and what it sends to a member on a new session. The other files of
// Round: round_intake.cc has what arrives, round_members.cc who contributes, round_attempt.cc what
// is reduced, round_pull.cc pull mode, round_settle.cc how the round is settled, and round_waits.cc
// which members it waits for.

#include "aggregator/core/round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/lane.h"
#include "aggregator/core/names.h"

namespace basin::aggregator {
Round::Round(RoundNumber number, Ballot ballot, std::vector<RoundMember> members,
             const Layout& layout, absl::Time now)
    : number_(number), ballot_(ballot), value_ballot_(ballot), roster_(std::move(members)) {
  attempt_.Grow(layout);
  held_.Grow(layout.chunks());
  for (RoundMember& member : roster_) {
    member.StartClock(now);
    member.Grow(layout);
  }
}

bool Round::Settled() const {
  return phase() == RoundPhase::kPrepared && AnyoneAlive() &&
         (roster_.unstaged() == 0 || roster_.there() == 0);
}

void Round::GrowLayout(const RoundScope& scope) {
  PlanAgain();
  attempt_.Grow(scope.layout);
  held_.Grow(scope.layout.chunks());
  for (RoundMember& member : roster_) {
    member.Grow(scope.layout);
    if (phase() == RoundPhase::kPrepared) continue;
    if (member.contribution.committed()) SkipWhatIsNotCommitted(scope, member);
    ReviewRoom(scope, member);
  }
}

OpenRound Round::Describe(const RoundScope& scope, Slot slot) const {
  const RoundMember& member = roster_.At(slot);
  OpenRound open;
  open.lane = scope.lane;
  open.round = number_;
  open.phase = phase();
  open.ballot = ballot_;
  open.window = FlowControl::Window(scope.memory, member);
  if (phase() != RoundPhase::kPrepared && member.contribution.have().count() > 0) {
    RangeBuilder have(scope.layout);
    for (uint32_t flat = 0; flat < member.contribution.have().size(); ++flat) {
      if (member.contribution.Has(flat)) have.Add(flat);
    }
    open.have = have.Take();
  }
  return open;
}

void Round::Resume(const RoundScope& scope, Slot slot, const LaneHistory* history) {
  RoundMember& member = roster_.At(slot);
  member.room.told = FlowControl::Window(scope.memory, member);
  member.reception.NoteProgress(scope.now);
  if (history != nullptr && history->last_verdict + 1 == number_ &&
      history->held_ballot == value_ballot_) {
    uint64_t left = scope.layout.chunks();  // A worker holds no chunk twice.
    for (const ChunkRange& range : history->held) {
      if (!scope.layout.Contains(range)) continue;
      if (range.count > left) break;
      left -= range.count;
      const uint32_t base = scope.layout.FirstChunk(range.tensor) + range.first;
      for (uint32_t i = 0; i < range.count; ++i) Acknowledge(scope, member, base + i);
    }
  }
  if (member.refusal.has_value()) {
    SendTo(scope, member, Rejected{*member.refusal, scope.lane, number_});
  }
  PublishMissing(scope, member);
  supplies_.ForgetSupplier(slot);
  if (phase() == RoundPhase::kPrepared) {
    if (member.staged()) member.reception.StartClock(scope.now);
    roster_.Apply(member, StagingInput::kPrepare);
    TellPrepared(scope, member);
  }
  if (pull_mode()) {
    member.asked.ClearAll();  // The requests on the old session may be lost.
    PlanPull(scope);
  }
  PumpReduce(scope);
}

uint64_t Round::parked_bytes() const {
  uint64_t bytes = 0;
  for (const RoundMember& member : roster_) bytes += member.contribution.parked();
  return bytes;
}

Note& Round::AddNote(const RoundScope& scope, NoteKind kind, const WorkerId& worker,
                     const std::string& text) const {
  return std::get<Note>(scope.actions.emplace_back(
      Note{kind, scope.job_name, worker, scope.lane_name, number_, text}));
}

void Round::SendTo(const RoundScope& scope, const RoundMember& member, ToWorker message,
                   bool can_wait) const {
  const Worker& worker = scope.workers[member.slot];
  if (!member.alive() || !worker.connected()) return;
  scope.actions.push_back(Send{*worker.session, std::move(message), can_wait});
}

void Round::Reject(const RoundScope& scope, const RoundMember& member, ErrorCode code,
                   const std::string& text) const {
  AddNote(scope, NoteKind::kContributionRejected, member.id,
          absl::StrCat(ErrorCodeName(code), ": ", text));
  SendTo(scope, member, Rejected{Error{code, text}, scope.lane, number_});
}

}  // namespace basin::aggregator
