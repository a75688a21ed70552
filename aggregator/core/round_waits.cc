// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round_waits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/core/names.h"

namespace basin::aggregator {
namespace {

// Returns whether others may wait for what the member still has to send.
bool AwaitsContribution(const Round& round, const RoundMember& member) {
  return round.phase() != RoundPhase::kPrepared && member.contribution.counts() && !member.waits();
}

// Returns whether the member has pushed or skipped all of the tensor.
bool IsComplete(const Layout& layout, const RoundMember& member, TensorIndex tensor) {
  if (member.contribution.Skips(tensor)) return true;
  for (const uint32_t flat : layout.Chunks(tensor)) {
    if (!member.contribution.Has(flat)) return false;
  }
  return true;
}

// Returns since when the others wait for the member; InfiniteFuture if they do not. Their wait has
// no limit of its own, because a trainer computes or a link is slow. A member that takes results
// slowly is late even if it takes some of them: only one that keeps up (see Reception) is not.
absl::Time AwaitedSince(const Round& round, const RoundMember& member) {
  if (round.phase() == RoundPhase::kPrepared) {
    return member.staged() || !member.receives() ? absl::InfiniteFuture()
                                                 : member.reception.behind_since();
  }
  const absl::Time sends = AwaitsContribution(round, member)
                               ? std::max(round.flow.wait_since(), member.room.free_since)
                               : absl::InfiniteFuture();
  const absl::Time takes = Owes(round, member)
                               ? std::max(member.reception.behind_since(), round.held.full_since())
                               : absl::InfiniteFuture();
  return std::min(sends, takes);
}

// Returns when a member that takes nothing is given up. REQUIRES: Owes(member).
absl::Time LeaseOf(const Round& round, const Config& config, const RoundMember& member) {
  const bool prepared = round.phase() == RoundPhase::kPrepared;
  return (prepared ? member.reception.progress()
                   : std::max(member.reception.progress(), round.held.full_since())) +
         config.lease;
}

// Returns when a late member is given up: not before the time until which it reported to be busy.
absl::Time EvictionOf(const Round& round, const Config& config, const Workers& workers,
                      const RoundMember& member) {
  const Worker& worker = workers[member.slot];
  const absl::Time late = AwaitedSince(round, member) + config.evict_late_after;
  return worker.busy.empty() ? late : std::max(late, worker.busy_until);
}

// Returns "it waits for others in round 7 of lane call/loss; " for a member that has not begun this
// round but has contributed to that one. If the others wait for this round, the workers may make
// their calls in different orders and wait for each other forever. That is not certain: its trainer
// may begin this round before it waits for the other one.
std::string WaitsElsewhere(const Round& round, const RoundScope& scope, const RoundMember& member) {
  if (round.phase() == RoundPhase::kPrepared) return "";
  if (member.contribution.state() != ContributionState::kAwaited) return "";
  for (const Lane& lane : scope.job.lanes) {
    if (!lane.round.has_value() || &*lane.round == &round || !lane.round->Has(member.slot))
      continue;
    if (lane.round->phase() == RoundPhase::kPrepared) continue;
    const RoundMember& there = lane.round->roster.At(member.slot);
    if (!there.contribution.effective()) continue;
    return absl::StrCat("it waits for others in round ", lane.round->number, " of lane ", lane.name,
                        "; ");
  }
  return "";
}

// Returns "it lacks 2 tensors: a, b; " for a member that pushes, and lacks more than the tensor
// that Awaits names.
std::string Lacks(const Round& round, const Layout& layout, const RoundMember& member) {
  if (Awaits(round, layout, member).what != Awaited::What::kTensor) return "";
  std::vector<std::string> tensors;
  for (TensorIndex tensor = 0; tensor < layout.version(); ++tensor) {
    if (!IsComplete(layout, member, tensor)) tensors.push_back(layout.tensors()[tensor].name);
  }
  if (tensors.size() == 1) return "";
  return absl::StrCat("it lacks ", tensors.size(), " tensors: ", NamesOf(tensors, kNamedLate),
                      "; ");
}

// Describes a late member to operators and to the members that wait.
std::string DescribeLate(const Round& round, const RoundScope& scope, const RoundMember& member) {
  const Worker& worker = scope.job.workers[member.slot];
  const auto ago = [&](absl::Time since) {
    return absl::FormatDuration(absl::Trunc(scope.now - since, absl::Milliseconds(1)));
  };
  return absl::StrCat(
      WaitsFor(round, scope.lane.layout, member), " (", WaitsElsewhere(round, scope, member),
      worker.misfit.empty() ? "" : absl::StrCat(worker.misfit, "; "),
      worker.unreachable.empty() ? "" : absl::StrCat(worker.unreachable.begin()->second.why, "; "),
      worker.busy.empty() ? "" : absl::StrCat("busy: ", worker.busy, "; "),
      Lacks(round, scope.lane.layout, member), "last seen ", ago(worker.last_message),
      " ago; waited for ", ago(AwaitedSince(round, member)), ")");
}

void SendHeldUp(const Round& round, const RoundScope& scope, const std::vector<std::string>& late) {
  SendAll all{{}, HeldUp{scope.index, round.number, ""}};
  for (const RoundMember& member : round.roster) {
    const Worker& worker = scope.job.workers[member.slot];
    const bool waits = round.phase() == RoundPhase::kPrepared ? member.staged() : member.waits();
    if (waits && !member.named_late && worker.connected()) all.sessions.push_back(*worker.session);
  }
  if (all.sessions.empty()) return;
  std::get<HeldUp>(all.message).text = NamesOf(late, kNamedLate);
  scope.actions.push_back(std::move(all));
}

}  // namespace

Awaited Awaits(const Round& round, const Layout& layout, const RoundMember& member) {
  using What = Awaited::What;
  const auto awaits = [&](What what, TensorIndex tensor = 0) {
    return Awaited{what, tensor, AwaitedSince(round, member)};
  };
  if (!member.receives()) return {};
  if (round.phase() == RoundPhase::kPrepared) {
    if (member.staged()) return {};
    if (member.presence.state() == Presence::kUndecided) return awaits(What::kBeginCall);
    return awaits(member.sent_prepared() ? What::kStage : What::kState);
  }
  if (Owes(round, member) && !AwaitsContribution(round, member)) return awaits(What::kResults);
  if (!member.contribution.incomplete()) return {};
  if (!member.contribution.begun()) return awaits(What::kBegin);
  for (TensorIndex tensor = 0; tensor < layout.version(); ++tensor) {
    if (!IsComplete(layout, member, tensor)) return awaits(What::kTensor, tensor);
  }
  return awaits(What::kCommit);
}

bool Owes(const Round& round, const RoundMember& member) {
  if (round.phase() == RoundPhase::kPrepared) return !member.staged() && member.sent_prepared();
  return round.held.full() && member.reception.owed() > 0;
}

std::string WaitsFor(const Round& round, const Layout& layout, const RoundMember& member) {
  const Awaited awaited = Awaits(round, layout, member);
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

std::string WaitsFor(const Round& round, const Layout& layout) {
  for (const RoundMember& member : round.roster) {
    if (member.waits() && round.phase() != RoundPhase::kPrepared && !Owes(round, member)) continue;
    if (std::string what = WaitsFor(round, layout, member); !what.empty()) return what;
  }
  return "";
}

std::vector<std::pair<Slot, std::string>> Overdue(Round& round, const RoundScope& scope) {
  std::vector<std::pair<Slot, std::string>> overdue;
  std::vector<std::string> late;
  for (RoundMember& member : round.roster) {
    if (!member.alive()) continue;
    if (Owes(round, member) && scope.now >= LeaseOf(round, scope.config, member)) {
      overdue.emplace_back(member.slot,
                           round.phase() == RoundPhase::kPrepared
                               ? "did not stage the result in time"
                               : "did not receive the results that the others wait for");
      continue;
    }
    if (scope.now >= AwaitedSince(round, member) + scope.config.late_warning &&
        !member.named_late) {
      member.named_late = true;
      late.push_back(DescribeLate(round, scope, member));
      AddNote(round, scope, NoteKind::kWorkerLate, member.id,
              absl::StrCat("Round ", round.number, " waits for ", late.back(), "."));
    }
    if (scope.job.late_policy == LatePolicy::kEvict &&
        scope.now >= EvictionOf(round, scope.config, scope.job.workers, member)) {
      overdue.emplace_back(member.slot, "is late, and round.late_policy is evict");
    }
  }
  if (!late.empty()) SendHeldUp(round, scope, late);
  return overdue;
}

absl::Time RoundDeadline(const Round& round, const Config& config, LatePolicy late_policy,
                         const Workers& workers) {
  absl::Time next =
      round.phase() == RoundPhase::kCollect ? round.leave_out_at : absl::InfiniteFuture();
  for (const RoundMember& member : round.roster) {
    if (!member.alive()) continue;
    if (Owes(round, member)) next = std::min(next, LeaseOf(round, config, member));
    if (!member.named_late)
      next = std::min(next, AwaitedSince(round, member) + config.late_warning);
    if (late_policy == LatePolicy::kEvict) {
      next = std::min(next, EvictionOf(round, config, workers, member));
    }
  }
  return next;
}

}  // namespace basin::aggregator
