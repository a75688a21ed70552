// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/roster.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {

Roster::Roster(std::vector<RoundMember> members) : members_(std::move(members)) { Index(); }

void Roster::Tally::Count(const RoundMember& member, int32_t by) {
  const auto count = [by](uint32_t& total, bool counts) {
    if (counts) total += static_cast<uint32_t>(by);
  };
  count(contributors, member.contribution.counts());
  count(begun, member.contribution.begun());
  if (member.contribution.begun()) {
    trainers += static_cast<uint32_t>(by) * member.contribution.begin().trainers();
    gradients += static_cast<uint32_t>(by) * member.contribution.begin().gradients();
  }
  count(effective, member.contribution.effective());
  count(alive, member.alive());
  count(receivers, member.is_sent_results());
  count(there, member.there());
  count(unstaged, member.receives() && !member.staged());
  count(free, !member.room.blocked);
  count(waiting, member.waits());
}

template <typename Change>
auto Roster::Recount(RoundMember& member, Change change) {
  tally_.Count(member, -1);
  auto result = change();
  tally_.Count(member, 1);
  return result;
}

void Roster::Index() {
  index_.clear();
  tally_ = Tally{};
  for (size_t i = 0; i < members_.size(); ++i) {
    const RoundMember& member = members_[i];
    tally_.Count(member, 1);
    if (member.slot >= index_.size()) index_.resize(member.slot + 1, -1);
    if (member.alive()) index_[member.slot] = static_cast<int32_t>(i);
  }
}

bool Roster::Apply(RoundMember& member, ContributionInput input) {
  return Recount(member, [&] { return member.contribution.Apply(input); });
}

bool Roster::Apply(RoundMember& member, PresenceInput input) {
  const bool taken = Recount(member, [&] { return member.presence.Apply(input); });
  if (taken && !member.alive()) index_[member.slot] = -1;
  return taken;
}

bool Roster::Apply(RoundMember& member, StagingInput input) {
  return Recount(member, [&] { return member.staging.Apply(input); });
}

void Roster::SetWithoutResults(RoundMember& member, bool without) {
  Recount(member, [&] { return member.without_results = without; });
}

void Roster::SetBlocked(RoundMember& member, bool blocked) {
  Recount(member, [&] { return member.room.blocked = blocked; });
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
