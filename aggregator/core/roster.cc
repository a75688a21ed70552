// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/roster.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {

Roster::Roster(std::vector<RoundMember> members) : members_(std::move(members)) { Index(); }

void Roster::Tally::Add(const RoundMember& member) {
  contributors += member.contribution.counts();
  begun += member.contribution.begun();
  effective += member.contribution.effective();
  alive += member.alive();
  receivers += member.receives();
  there += member.there();
  unstaged += member.receives() && !member.staged();
  free += !member.room.blocked;
  waiting += member.waits();
}

void Roster::Tally::Remove(const RoundMember& member) {
  contributors -= member.contribution.counts();
  begun -= member.contribution.begun();
  effective -= member.contribution.effective();
  alive -= member.alive();
  receivers -= member.receives();
  there -= member.there();
  unstaged -= member.receives() && !member.staged();
  free -= !member.room.blocked;
  waiting -= member.waits();
}

void Roster::Index() {
  index_.clear();
  tally_ = Tally{};
  for (size_t i = 0; i < members_.size(); ++i) {
    const RoundMember& member = members_[i];
    tally_.Add(member);
    if (member.slot >= index_.size()) index_.resize(member.slot + 1, -1);
    if (member.alive()) index_[member.slot] = static_cast<int32_t>(i);
  }
}

bool Roster::Apply(RoundMember& member, ContributionInput input) {
  tally_.Remove(member);
  const bool taken = member.contribution.Apply(input);
  tally_.Add(member);
  return taken;
}

bool Roster::Apply(RoundMember& member, PresenceInput input) {
  tally_.Remove(member);
  const bool taken = member.presence.Apply(input);
  tally_.Add(member);
  if (taken && !member.alive()) index_[member.slot] = -1;
  return taken;
}

bool Roster::Apply(RoundMember& member, StagingInput input) {
  tally_.Remove(member);
  const bool taken = member.staging.Apply(input);
  tally_.Add(member);
  return taken;
}

void Roster::SetBlocked(RoundMember& member, bool blocked) {
  tally_.Remove(member);
  member.room.blocked = blocked;
  tally_.Add(member);
}

std::vector<uint32_t> Roster::SkippersOf(TensorIndex tensor) const {
  std::vector<uint32_t> skippers;
  uint32_t position = 0;
  for (const RoundMember& member : members_) {
    if (!member.contribution.counts()) continue;
    if (member.contribution.Skips(tensor)) skippers.push_back(position);
    ++position;
  }
  return skippers;
}

void Roster::Add(std::vector<RoundMember> joiners) {
  for (RoundMember& joiner : joiners) members_.push_back(std::move(joiner));
  std::sort(members_.begin(), members_.end(),
            [](const RoundMember& a, const RoundMember& b) { return a.id < b.id; });
  Index();
}

}  // namespace basin::aggregator
