// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/goodput.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {
namespace {

// Workers that were waited for. A job of more workers remembers those that cost most.
constexpr size_t kWaitedFor = 256;

// Pauses and losses since the last verdict. The oldest of more are forgotten, and their time
// counts as that of the round.
constexpr size_t kSpans = 64;

absl::Duration Overlap(absl::Time from, absl::Time to, absl::Time other_from, absl::Time other_to) {
  return std::max(std::min(to, other_to) - std::max(from, other_from), absl::ZeroDuration());
}

}  // namespace

const char* TimeUseName(TimeUse use) {
  switch (use) {
    case TimeUse::kWorked:
      return "worked";
    case TimeUse::kWaiting:
      return "waiting";
    case TimeUse::kDetecting:
      return "detecting";
    case TimeUse::kCatchingUp:
      return "catching_up";
    case TimeUse::kDiscarded:
      return "discarded";
    case TimeUse::kPaused:
      return "paused";
    case TimeUse::kSettling:
      return "settling";
    case TimeUse::kPending:
      return "pending";
  }
  return "unknown";
}

std::optional<double> Goodput::Ratio() const {
  absl::Duration all;
  for (const absl::Duration total : totals_) all += total;
  if (all == absl::ZeroDuration()) return std::nullopt;
  return absl::FDivDuration(Total(TimeUse::kWorked), all);
}

Lateness Goodput::LatenessOf(Slot slot) const {
  return slot < members_.size() ? members_[slot].lateness : Lateness{};
}

GoodputView Goodput::AsOf(absl::Time now, const std::vector<LostMember>& silent,
                          const std::vector<RoundTimes>& open) const {
  Goodput then = *this;
  for (const LostMember& lost : silent) then.Lose(lost, now);
  for (const RoundTimes& round : open) then.End(round);
  then.LeaveAll(now);
  // Before the verdict, nobody knows which of the two it is.
  for (const TimeUse use : {TimeUse::kWorked, TimeUse::kDiscarded}) {
    then.Of(TimeUse::kPending) += then.Total(use) - Total(use);
    then.Of(use) = Total(use);
  }
  GoodputView view;
  for (const TimeUse use : kTimeUses) {
    view.uses.push_back({use, Total(use), then.Total(use) - Total(use)});
  }
  if (Ratio().has_value()) view.ratio = then.Ratio();
  view.waited_for = std::move(then.waited_for_);
  return view;
}

void Goodput::Join(Slot slot, absl::Time now, bool catches_up) {
  // Its earlier life may have been lost while its last round was open. That round counts the new
  // life instead.
  Leave(slot, now);
  if (members_.size() <= slot) members_.resize(slot + 1);
  members_[slot] = Member{true, catches_up, now, absl::InfiniteFuture(), {}};
}

void Goodput::Leave(Slot slot, absl::Time now) {
  if (slot >= members_.size() || !members_[slot].present) return;
  const Member member = std::exchange(members_[slot], Member{});
  Count(member, member.catches_up ? TimeUse::kCatchingUp : TimeUse::kDiscarded, member.since, now);
}

void Goodput::Lose(const LostMember& lost, absl::Time now) {
  if (lost.slot >= members_.size() || !members_[lost.slot].present) return;
  Member& member = members_[lost.slot];
  const absl::Time silent_since = std::max(member.since, std::min(lost.silent_since, now));
  Count(member, TimeUse::kDetecting, silent_since, now);
  member.until = silent_since;
  if (!lost.contributed) Leave(lost.slot, silent_since);
  if (!lost.delayed) return;
  if (silences_.size() == kSpans) silences_.erase(silences_.begin());
  silences_.push_back({{silent_since, now}, lost.id, lost.owed});
}

void Goodput::LeaveAll(absl::Time now) {
  for (Slot slot = 0; slot < members_.size(); ++slot) Leave(slot, now);
  holds_.clear();
  silences_.clear();
  held_since_ = absl::InfiniteFuture();
}

void Goodput::Hold(absl::Time now) { held_since_ = HeldSince(now); }

void Goodput::Resume(absl::Time now) {
  const absl::Time since = std::exchange(held_since_, absl::InfiniteFuture());
  if (since >= now) return;
  if (holds_.size() == kSpans) holds_.erase(holds_.begin());
  holds_.push_back({since, now});
}

void Goodput::End(const RoundTimes& round) {
  absl::Time first = absl::InfiniteFuture();
  for (const RoundTimes::Part& part : round.parts) {
    if (part.counted) first = std::min(first, part.arrived);
  }
  for (const RoundTimes::Part& part : round.parts) {
    if (part.slot >= members_.size()) continue;
    Member& member = members_[part.slot];
    // The part may be that of an earlier life of the member.
    if (!member.present || part.alive != (member.until == absl::InfiniteFuture())) continue;
    if (part.counted) {
      Count(member, member.catches_up ? TimeUse::kCatchingUp : TimeUse::kWorked, member.since,
            part.arrived);
      CountAfterArrival(member, part.arrived, round);
      ++member.lateness.rounds;
      member.lateness.total += part.arrived - first;
      member.catches_up = false;
    } else {
      Count(member, member.catches_up ? TimeUse::kCatchingUp : TimeUse::kDiscarded, member.since,
            round.verdict);
    }
    if (part.alive) {
      member.since = round.verdict;
    } else {
      member = Member{};
    }
  }
  ForgetOldSpans();
}

absl::Duration Goodput::Count(const Member& member, TimeUse use, absl::Time from, absl::Time to) {
  from = std::max(from, member.since);
  to = std::min(to, member.until);
  if (to <= from) return absl::ZeroDuration();
  absl::Duration held = Overlap(from, to, held_since_, absl::InfiniteFuture());
  for (const Span& hold : holds_) held += Overlap(from, to, hold.from, hold.to);
  const absl::Duration used = to - from - held;
  Of(TimeUse::kPaused) += held;
  Of(use) += used;
  return used;
}

void Goodput::CountWait(const Member& member, const WorkerId& worker, absl::Time from,
                        absl::Time to) {
  const absl::Duration waited = Count(member, TimeUse::kWaiting, from, to);
  if (waited == absl::ZeroDuration() || worker.empty()) return;
  waited_for_[worker] += waited;
  if (waited_for_.size() <= kWaitedFor) return;
  waited_for_.erase(
      std::min_element(waited_for_.begin(), waited_for_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; }));
}

// While the round waited for a member that was lost later, it waited for that one until it fell
// silent. The rest of the wait was for the last contribution.
void Goodput::CountAfterArrival(const Member& member, absl::Time arrived, const RoundTimes& round) {
  absl::Time at = arrived;
  const auto count_until = [&](absl::Time to, const WorkerId& worker) {
    CountWait(member, worker, at, std::min(to, round.last_at));
    Count(member, TimeUse::kSettling, std::max(at, round.last_at), to);
    at = std::max(at, to);
  };
  for (const Silence& silence : silences_) {
    count_until(silence.span.from, silence.owed ? silence.worker : round.last);
    Count(member, TimeUse::kDetecting, at, silence.span.to);
    at = std::max(at, silence.span.to);
  }
  count_until(round.verdict, round.last);
}

void Goodput::ForgetOldSpans() {
  if (holds_.empty() && silences_.empty()) return;
  absl::Time needed = absl::InfiniteFuture();
  for (const Member& member : members_) {
    if (member.present) needed = std::min(needed, member.since);
  }
  holds_.erase(std::remove_if(holds_.begin(), holds_.end(),
                              [&](const Span& hold) { return hold.to <= needed; }),
               holds_.end());
  silences_.erase(std::remove_if(silences_.begin(), silences_.end(),
                                 [&](const Silence& silence) { return silence.span.to <= needed; }),
                  silences_.end());
}

}  // namespace basin::aggregator
