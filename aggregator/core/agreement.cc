// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/agreement.h"

#include <map>
#include <string>
#include <string_view>

#include "aggregator/core/spec.h"

namespace basin::aggregator {

const RoundMember& Agreement::Make(const Roster& roster, const std::optional<RoundSpec>& last) {
  std::vector<const RoundSpec*> specs;
  std::vector<const RoundMember*> theirs;
  for (const RoundMember& member : roster) {
    if (!member.contribution.counts()) continue;
    specs.push_back(&member.contribution.begin().spec);
    theirs.push_back(&member);
  }
  const size_t chosen = ChooseSpec(specs, last);
  spec_ = *specs[chosen];
  made_ = true;
  return *theirs[chosen];
}

const RoundMember* Agreement::Reference(const Roster& roster, Compared value_of) {
  std::map<uint64_t, size_t> have;
  for (const RoundMember& member : roster) {
    if (const auto value = (member.contribution.*value_of)()) ++have[*value];
  }
  const RoundMember* reference = nullptr;
  size_t most = 0;
  for (const RoundMember& member : roster) {
    const auto value = (member.contribution.*value_of)();
    if (!value.has_value() || have[*value] <= most) continue;
    reference = &member;
    most = have[*value];
  }
  return reference;
}

std::optional<std::pair<const RoundMember*, const RoundMember*>> Agreement::DifferentCalls(
    const Roster& roster) {
  std::map<std::string_view, size_t> votes;
  for (const RoundMember& member : roster) {
    if (member.contribution.counts()) ++votes[member.contribution.begin().call];
  }
  if (votes.size() < 2) return std::nullopt;
  const RoundMember* most = nullptr;
  for (const RoundMember& member : roster) {
    if (!member.contribution.counts()) continue;
    const std::string& call = member.contribution.begin().call;
    if (most == nullptr || votes[call] > votes[most->contribution.begin().call]) most = &member;
  }
  for (const RoundMember& member : roster) {
    if (!member.contribution.counts()) continue;
    if (member.contribution.begin().call != most->contribution.begin().call) {
      return std::pair(most, &member);
    }
  }
  return std::nullopt;
}

uint64_t Agreement::WeightOf(const RoundMember& member) const {
  return basin::WeightOf(spec_, member.contribution.begin().counts);
}

uint64_t Agreement::Divisor(const Roster& roster) const {
  if (spec_.op == ReduceOp::kAverage) return roster.trainers();
  if (spec_.op != ReduceOp::kWeightedAverage) return 1;
  uint64_t weight = 0;
  for (const RoundMember& member : roster) {
    if (member.contribution.counts()) weight += WeightOf(member);
  }
  return weight;
}

uint64_t Agreement::DivisorOf(const Roster& roster, TensorIndex tensor, uint32_t skips,
                              uint64_t divisor) const {
  if (skips == roster.contributors()) return 0;
  if (skips == 0 || spec_.denominator == Denominator::kAll) return divisor;
  const bool average = spec_.op == ReduceOp::kAverage;
  if (!average && spec_.op != ReduceOp::kWeightedAverage) return divisor;
  // Usually no member needs to be looked at, because each is one trainer.
  if (average && roster.trainers() == roster.contributors()) return divisor - skips;
  uint64_t present = divisor;
  for (const RoundMember& member : roster) {
    const Contribution& contribution = member.contribution;
    if (!contribution.counts() || !contribution.Skips(tensor)) continue;
    present -= average ? contribution.begin().trainers() : WeightOf(member);
  }
  return present;
}

}  // namespace basin::aggregator
