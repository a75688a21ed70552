// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a round is made of, who is in it, and its deadlines. What it takes in is in
// round_intake.cc, who contributes in round_members.cc, what is reduced in round_attempt.cc, pull
// mode in round_pull.cc, how it is settled in round_settle.cc.

#include "aggregator/core/round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/lane.h"
#include "aggregator/core/names.h"

namespace basin::aggregator {
namespace {

// A message to everybody names no more late workers than this.
constexpr size_t kNamedLate = 3;

}  // namespace

Round::Round(RoundNumber number, Ballot ballot, std::vector<RoundMember> members,
             const Layout& layout, absl::Time now)
    : number_(number), ballot_(ballot), value_ballot_(ballot), members_(std::move(members)) {
  attempt_.Grow(layout);
  unacked_.resize(layout.chunks());
  for (RoundMember& member : members_) {
    member.progress = member.behind_since = member.free_since = now;
    member.Grow(layout);
  }
  IndexMembers();
  CountMembers();
}

void Round::IndexMembers() {
  index_.clear();
  for (size_t i = 0; i < members_.size(); ++i) {
    const Slot slot = members_[i].slot;
    if (slot >= index_.size()) index_.resize(slot + 1, -1);
    // A worker that was lost and has come back is here twice.
    if (!members_[i].gone) index_[slot] = static_cast<int32_t>(i);
  }
}

void Round::CountMembers() {
  contributors_ = begun_ = effective_ = alive_ = receivers_ = there_ = awaited_ = 0;
  unblocked_ = waiting_ = 0;
  for (const RoundMember& member : members_) {
    contributors_ += member.contribution.counts();
    begun_ += member.contribution.begun();
    effective_ += member.contribution.effective();
    alive_ += !member.gone;
    receivers_ += Receives(member);
    there_ += !member.gone && member.presence.state() == Presence::kThere;
    awaited_ += Receives(member) && !member.staged();
    unblocked_ += !member.blocked;
    waiting_ += member.waits;
  }
}

// The only way to change the state of a contribution: keeps the counts right.
bool Round::ApplyTo(RoundMember& member, ContributionInput input) {
  Contribution& contribution = member.contribution;
  contributors_ -= contribution.counts();
  begun_ -= contribution.begun();
  effective_ -= contribution.effective();
  const bool taken = contribution.Apply(input);
  contributors_ += contribution.counts();
  begun_ += contribution.begun();
  effective_ += contribution.effective();
  return taken;
}

bool Round::ApplyTo(RoundMember& member, StagingInput input) {
  awaited_ -= Receives(member) && !member.staged();
  const bool taken = member.staging.Apply(input);
  awaited_ += Receives(member) && !member.staged();
  return taken;
}

int Round::IndexOf(Slot slot) const {
  if (slot >= index_.size() || index_[slot] < 0) return -1;
  return members_[static_cast<size_t>(index_[slot])].gone ? -1 : index_[slot];
}

bool Round::Settled() const {
  return phase() == RoundPhase::kPrepared && AnyoneAlive() && (awaited_ == 0 || there_ == 0);
}

void Round::GrowLayout(const RoundScope& scope) {
  replan_ = true;
  attempt_.Grow(scope.layout);
  unacked_.resize(scope.layout.chunks());
  for (RoundMember& member : members_) {
    member.Grow(scope.layout);
    if (phase() == RoundPhase::kPrepared) continue;
    if (member.contribution.committed()) SkipWhatIsNotCommitted(scope, member);
    ReviewRoom(scope, member);
  }
}

OpenRound Round::Describe(const RoundScope& scope, Slot slot) const {
  const RoundMember& member = members_[static_cast<size_t>(IndexOf(slot))];
  OpenRound open;
  open.lane = scope.lane;
  open.round = number_;
  open.phase = phase();
  open.ballot = ballot_;
  open.window = WindowOf(scope, member);
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
  RoundMember& member = At(slot);
  member.told_window = WindowOf(scope, member);
  member.progress = scope.now;
  if (history != nullptr && history->last_verdict + 1 == number_ &&
      history->held_ballot == value_ballot_) {
    uint64_t left = scope.layout.chunks();  // Nobody holds more, or holds a chunk twice.
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
  if (supplier_ == slot) supplier_.reset();  // What it was asked for may not have been heard.
  if (phase() == RoundPhase::kPrepared) {
    if (member.staged()) member.behind_since = scope.now;
    ApplyTo(member, StagingInput::kPrepare);
    TellPrepared(scope, member);
  }
  if (pull_) {
    member.asked.ClearAll();  // What was asked on the old session may not have been heard.
    PlanPull(scope);
  }
  PumpReduce(scope);
}

Awaited Round::Awaits(const Layout& layout, const RoundMember& member) const {
  using What = Awaited::What;
  const auto awaits = [&](What what, TensorIndex tensor = 0) {
    return Awaited{what, tensor, AwaitedSince(member)};
  };
  if (!Receives(member)) return {};
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
  for (const RoundMember& member : members_) {
    if (member.waits && phase() != RoundPhase::kPrepared && !Owes(member)) continue;
    if (std::string what = WaitsFor(layout, member); !what.empty()) return what;
  }
  return "";
}

// "it waits for others in round 7 of lane call/loss; ": what a member that has not begun this round
// does instead, where it has contributed all it can to another one. When those others wait for this
// round, the workers make their calls in different orders, and wait for each other for ever. That
// is not certain here: a trainer may begin this round before it waits for the other.
std::string Round::WaitsElsewhere(const RoundScope& scope, const RoundMember& member) const {
  if (phase() == RoundPhase::kPrepared) return "";
  if (member.contribution.state() != ContributionState::kAwaited) return "";
  for (const Lane& lane : scope.lanes) {
    if (!lane.round.has_value() || &*lane.round == this || !lane.round->Has(member.slot)) continue;
    if (lane.round->phase() == RoundPhase::kPrepared) continue;
    const Round& round = *lane.round;
    const RoundMember& there = round.members_[static_cast<size_t>(round.IndexOf(member.slot))];
    if (!there.contribution.effective()) continue;
    return absl::StrCat("it waits for others in round ", round.number_, " of lane ", lane.name,
                        "; ");
  }
  return "";
}

// What is said of a member that is late, to operators and to those who wait.
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
  for (const RoundMember& member : members_) {
    const Worker& worker = scope.workers[member.slot];
    const bool waits = phase() == RoundPhase::kPrepared ? member.staged() : member.waits;
    if (waits && !member.named_late && worker.connected()) all.sessions.push_back(*worker.session);
  }
  if (all.sessions.empty()) return;
  std::get<HeldUp>(all.message).text = NamesOf(late, kNamedLate);
  scope.actions.push_back(std::move(all));
}

bool Round::Owes(const RoundMember& member) const {
  if (phase() == RoundPhase::kPrepared) return !member.staged() && member.sent_prepared();
  return full_since_ != absl::InfiniteFuture() && member.owed > 0;
}

// Whether others wait for what the member still has to send.
bool Round::AwaitsContribution(const RoundMember& member) const {
  return phase() != RoundPhase::kPrepared && member.contribution.counts() && !member.waits;
}

// Since when the others wait for the member; InfiniteFuture when they do not. It may take as long
// as it takes: a trainer computes, or a link is slow. `behind_since` is when the value was
// prepared; while the round collects, a moment since which the member has not taken everything that
// was held for it then. Taking a little of it changes nothing: only who keeps up is not late.
absl::Time Round::AwaitedSince(const RoundMember& member) const {
  if (phase() == RoundPhase::kPrepared) {
    return member.staged() || !Receives(member) ? absl::InfiniteFuture() : member.behind_since;
  }
  const absl::Time sends = AwaitsContribution(member) ? std::max(wait_since_, member.free_since)
                                                      : absl::InfiniteFuture();
  const absl::Time takes =
      Owes(member) ? std::max(member.behind_since, full_since_) : absl::InfiniteFuture();
  return std::min(sends, takes);
}

// When a member that takes nothing is given up. REQUIRES: Owes(member).
absl::Time Round::LeaseOf(const Config& config, const RoundMember& member) const {
  const bool prepared = phase() == RoundPhase::kPrepared;
  return (prepared ? member.progress : std::max(member.progress, full_since_)) + config.lease;
}

void Round::CheckDeadlines(const RoundScope& scope,
                           std::vector<std::pair<Slot, std::string>>& overdue) {
  std::vector<std::string> late;
  for (RoundMember& member : members_) {
    if (member.gone) continue;
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

// When a late member is given up: not before the time for which it has said that it is busy.
absl::Time Round::EvictionOf(const Config& config, const Workers& workers,
                             const RoundMember& member) const {
  const Worker& worker = workers[member.slot];
  const absl::Time late = AwaitedSince(member) + config.evict_late_after;
  return worker.busy.empty() ? late : std::max(late, worker.busy_until);
}

absl::Time Round::NextDeadline(const Config& config, LatePolicy late_policy,
                               const Workers& workers) const {
  absl::Time next = absl::InfiniteFuture();
  for (const RoundMember& member : members_) {
    if (member.gone) continue;
    if (Owes(member)) next = std::min(next, LeaseOf(config, member));
    if (!member.named_late) next = std::min(next, AwaitedSince(member) + config.late_warning);
    if (late_policy == LatePolicy::kEvict) {
      next = std::min(next, EvictionOf(config, workers, member));
    }
  }
  return next;
}

uint64_t Round::parked_bytes() const {
  uint64_t bytes = 0;
  for (const RoundMember& member : members_) bytes += member.contribution.parked();
  return bytes;
}

void Round::AddNote(const RoundScope& scope, NoteKind kind, const WorkerId& worker,
                    const std::string& text) const {
  scope.actions.push_back(Note{kind, scope.job_name, worker, scope.lane_name, number_, text});
}

void Round::SendTo(const RoundScope& scope, const RoundMember& member, ToWorker message) const {
  const Worker& worker = scope.workers[member.slot];
  if (member.gone || !worker.connected()) return;
  scope.actions.push_back(Send{*worker.session, std::move(message)});
}

void Round::Reject(const RoundScope& scope, const RoundMember& member, ErrorCode code,
                   const std::string& text) const {
  AddNote(scope, NoteKind::kContributionRejected, member.id,
          absl::StrCat(ErrorCodeName(code), ": ", text));
  SendTo(scope, member, Rejected{Error{code, text}, scope.lane, number_});
}

}  // namespace basin::aggregator
