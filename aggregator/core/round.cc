// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/round.h"

#include <algorithm>
#include <utility>

#include "aggregator/core/round_scope.h"

namespace basin::aggregator {

Round::Round(RoundNumber number, Ballot ballot, std::vector<RoundMember> members,
             const Layout& layout, const Shares& shares, absl::Time now)
    : number(number), ballot(ballot), value_ballot(ballot), roster(std::move(members)) {
  attempt.Grow(layout);
  held.Grow(layout.chunks());
  const ByShard bytes = BytesFrom(layout, shares, 0);
  for (RoundMember& member : roster) {
    member.StartClock(now);
    member.Grow(layout, bytes);
  }
}

bool Round::Settled() const {
  return phase() == RoundPhase::kPrepared && AnyoneAlive() &&
         (roster.unstaged() == 0 || roster.there() == 0);
}

bool Round::Orphaned() const {
  return adopted.has_value() && phase() == RoundPhase::kPrepared && roster.there() > 0 &&
         ValueIsLost();
}

bool Round::ValueIsLost() const {
  if (value.outcome != Outcome::kCommitted) return false;
  if (adopted.has_value()) {
    return std::none_of(roster.begin(), roster.end(),
                        [](const RoundMember& member) { return member.alive() && member.holds; });
  }
  return supplies.SomethingIsLost(roster);
}

Contributor Round::CountedNode() const {
  for (const Contributor& contributor : value.contributors) {
    if (contributor.is_partial()) return contributor;
  }
  if (phase() == RoundPhase::kPrepared) return {};
  for (const RoundMember& member : roster) {
    if (!member.contribution.begun()) continue;
    const uint32_t trainers = member.contribution.begin().trainers();
    if (trainers > 1) return {member.id, member.incarnation, 1, std::nullopt, trainers};
  }
  return {};
}

uint32_t Round::WithoutCredit() const {
  return static_cast<uint32_t>(std::count_if(roster.begin(), roster.end(), FlowControl::LacksRoom));
}

uint64_t Round::parked_bytes() const {
  uint64_t bytes = 0;
  for (const RoundMember& member : roster) bytes += member.contribution.parked().total();
  return bytes;
}

bool Round::Apply(const RoundScope& scope, RoundInput input) {
  const bool opens = phase() == RoundPhase::kIdle;
  if (!machine.Apply(input)) return false;
  if (opens && begun()) opened = scope.now;
  return true;
}

}  // namespace basin::aggregator
