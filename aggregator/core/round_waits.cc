// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Which members a round waits for, for what and since when; which are late, and which are given up.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/core/lane.h"
#include "aggregator/core/names.h"
#include "aggregator/core/round.h"

namespace basin::aggregator {
namespace {

// HeldUp names no more late workers than this.
constexpr size_t kNamedLate = 3;

}  // namespace

Awaited Round::Awaits(const Layout& layout, const RoundMember& member) const {
  using What = Awaited::What;
  const auto awaits = [&](What what, TensorIndex tensor = 0) {
    return Awaited{what, tensor, AwaitedSince(member)};
  };
  if (!member.receives()) return {};
  if (phase() == RoundPhase::kPrepared) {
    if (member.staged()) return {};
    if (member.presence.state() == Presence::kUndecided) return awaits(What::kBeginCall);
    return awaits(member.sent_prepared() ? What::kStage : What::kState);
  }
  if (Owes(member) && !AwaitsContribution(member)) return awaits(What::kResults);
  if (!member.contribution.incomplete()) return {};
  if (!member.contribution.begun()) return awaits(What::kBegin);
  for (TensorIndex tensor = 0; tensor < layout.version(); ++tensor) {
    if (member.contribution.Skips(tensor)) continue;
    for (uint32_t flat = layout.FirstChunk(tensor); flat < layout.FirstChunk(tensor + 1); ++flat) {
      if (!member.contribution.Has(flat)) return awaits(What::kTensor, tensor);
    }
  }
  return awaits(What::kCommit);
}

std::string Round::WaitsFor(const Layout& layout, const RoundMember& member) const {
  const Awaited awaited = Awaits(layout, member);
  const auto text = [&](const std::string& what) {
    return absl::StrCat("worker ", member.id, ": ", what);
  };
  switch (awaited.what) {
    case Awaited::What::kNothing:
      return "";
    case Awaited::What::kBegin:
      return text("to begin the round");
    case Awaited::What::kBeginCall:
      return text("to begin the call");
    case Awaited::What::kState:
      return text("to load the state and begin");
    case Awaited::What::kTensor:
      return text(absl::StrCat("tensor ", layout.tensors()[awaited.tensor].name));
    case Awaited::What::kCommit:
      return text("to commit");
    case Awaited::What::kResults:
      return text("to take its results");
    case Awaited::What::kStage:
      return text("to stage the result");
  }
  return "";
}

std::string Round::WaitsFor(const Layout& layout) const {
  for (const RoundMember& member : roster_) {
    if (member.waits() && phase() != RoundPhase::kPrepared && !Owes(member)) continue;
    if (std::string what = WaitsFor(layout, member); !what.empty()) return what;
  }
  return "";
}

// Returns "it waits for others in round 7 of lane call/loss; " for a member that has not begun this
// round but has contributed to that one. If the others wait for this round, the workers may make
// their calls in different orders and wait for each other forever. That is not certain: its trainer
// may begin this round before it waits for the other one.
std::string Round::WaitsElsewhere(const RoundScope& scope, const RoundMember& member) const {
  if (phase() == RoundPhase::kPrepared) return "";
  if (member.contribution.state() != ContributionState::kAwaited) return "";
  for (const Lane& lane : scope.lanes) {
    if (!lane.round.has_value() || &*lane.round == this || !lane.round->Has(member.slot)) continue;
    if (lane.round->phase() == RoundPhase::kPrepared) continue;
    const Round& round = *lane.round;
    const RoundMember& there = round.roster_.At(member.slot);
    if (!there.contribution.effective()) continue;
    return absl::StrCat("it waits for others in round ", round.number_, " of lane ", lane.name,
                        "; ");
  }
  return "";
}

// Describes a late member to operators and to the members that wait.
std::string Round::DescribeLate(const RoundScope& scope, const RoundMember& member) const {
  const Worker& worker = scope.workers[member.slot];
  return absl::StrCat(
      WaitsFor(scope.layout, member), " (", WaitsElsewhere(scope, member),
      worker.misfit.empty() ? "" : absl::StrCat(worker.misfit, "; "),
      worker.busy.empty() ? "" : absl::StrCat("busy: ", worker.busy, "; "), "last seen ",
      absl::FormatDuration(absl::Trunc(scope.now - worker.last_heard, absl::Milliseconds(1))),
      " ago)");
}

void Round::TellThoseWhoWait(const RoundScope& scope, const std::vector<std::string>& late) const {
  SendAll all{{}, HeldUp{scope.lane, number_, ""}};
  for (const RoundMember& member : roster_) {
    const Worker& worker = scope.workers[member.slot];
    const bool waits = phase() == RoundPhase::kPrepared ? member.staged() : member.waits();
    if (waits && !member.named_late && worker.connected()) all.sessions.push_back(*worker.session);
  }
  if (all.sessions.empty()) return;
  std::get<HeldUp>(all.message).text = NamesOf(late, kNamedLate);
  scope.actions.push_back(std::move(all));
}

bool Round::Owes(const RoundMember& member) const {
  if (phase() == RoundPhase::kPrepared) return !member.staged() && member.sent_prepared();
  return held_.full() && member.reception.owed() > 0;
}

// Returns whether others may wait for what the member still has to send.
bool Round::AwaitsContribution(const RoundMember& member) const {
  return phase() != RoundPhase::kPrepared && member.contribution.counts() && !member.waits();
}

// Returns since when the others wait for the member; InfiniteFuture if they do not. Their wait has
// no limit of its own, because a trainer computes or a link is slow. A member that takes results
// slowly is late even if it takes some of them: only one that keeps up (see Reception) is not.
absl::Time Round::AwaitedSince(const RoundMember& member) const {
  if (phase() == RoundPhase::kPrepared) {
    return member.staged() || !member.receives() ? absl::InfiniteFuture()
                                                 : member.reception.behind_since();
  }
  const absl::Time sends = AwaitsContribution(member)
                               ? std::max(flow_.wait_since(), member.room.free_since)
                               : absl::InfiniteFuture();
  const absl::Time takes = Owes(member)
                               ? std::max(member.reception.behind_since(), held_.full_since())
                               : absl::InfiniteFuture();
  return std::min(sends, takes);
}

// Returns when a member that takes nothing is given up. REQUIRES: Owes(member).
absl::Time Round::LeaseOf(const Config& config, const RoundMember& member) const {
  const bool prepared = phase() == RoundPhase::kPrepared;
  return (prepared ? member.reception.progress()
                   : std::max(member.reception.progress(), held_.full_since())) +
         config.lease;
}

void Round::CheckDeadlines(const RoundScope& scope,
                           std::vector<std::pair<Slot, std::string>>& overdue) {
  std::vector<std::string> late;
  for (RoundMember& member : roster_) {
    if (!member.alive()) continue;
    if (Owes(member) && scope.now >= LeaseOf(scope.config, member)) {
      overdue.emplace_back(member.slot,
                           phase() == RoundPhase::kPrepared
                               ? "did not stage the result in time"
                               : "did not receive the results that the others wait for");
      continue;
    }
    if (scope.now >= AwaitedSince(member) + scope.config.late_warning && !member.named_late) {
      member.named_late = true;
      late.push_back(DescribeLate(scope, member));
      AddNote(scope, NoteKind::kWorkerLate, member.id,
              absl::StrCat("Round ", number_, " waits for ", late.back(), "."));
    }
    if (scope.late_policy == LatePolicy::kEvict &&
        scope.now >= EvictionOf(scope.config, scope.workers, member)) {
      overdue.emplace_back(member.slot, "is late, and round.late_policy is evict");
    }
  }
  if (!late.empty()) TellThoseWhoWait(scope, late);
}

// Returns when a late member is given up: not before the time until which it reported to be busy.
absl::Time Round::EvictionOf(const Config& config, const Workers& workers,
                             const RoundMember& member) const {
  const Worker& worker = workers[member.slot];
  const absl::Time late = AwaitedSince(member) + config.evict_late_after;
  return worker.busy.empty() ? late : std::max(late, worker.busy_until);
}

absl::Time Round::NextDeadline(const Config& config, LatePolicy late_policy,
                               const Workers& workers) const {
  absl::Time next = absl::InfiniteFuture();
  for (const RoundMember& member : roster_) {
    if (!member.alive()) continue;
    if (Owes(member)) next = std::min(next, LeaseOf(config, member));
    if (!member.named_late) next = std::min(next, AwaitedSince(member) + config.late_warning);
    if (late_policy == LatePolicy::kEvict) {
      next = std::min(next, EvictionOf(config, workers, member));
    }
  }
  return next;
}

}  // namespace basin::aggregator
