// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/agreement.h"

#include <map>
#include <string_view>

#include "aggregator/core/spec.h"

namespace basin::aggregator {
namespace {

// The first contributor with the value of most of those that give one; nullptr if none does.
template <typename Value, typename ValueOf>
const RoundMember* FirstOfMost(const Roster& roster, const ValueOf& value_of) {
  std::map<Value, size_t> have;
  for (const RoundMember& member : roster) {
    if (const std::optional<Value> value = value_of(member.contribution)) ++have[*value];
  }
  const RoundMember* first = nullptr;
  size_t most = 0;
  for (const RoundMember& member : roster) {
    const std::optional<Value> value = value_of(member.contribution);
    if (!value.has_value() || have[*value] <= most) continue;
    first = &member;
    most = have[*value];
  }
  return first;
}

}  // namespace

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
  return FirstOfMost<uint64_t>(
      roster, [&](const Contribution& contribution) { return (contribution.*value_of)(); });
}

std::optional<std::pair<const RoundMember*, const RoundMember*>> Agreement::DifferentCalls(
    const Roster& roster) {
  const auto call_of = [](const Contribution& contribution) {
    return contribution.counts() ? std::optional<std::string_view>(contribution.begin().call)
                                 : std::nullopt;
  };
  const RoundMember* reference = FirstOfMost<std::string_view>(roster, call_of);
  if (reference == nullptr) return std::nullopt;
  const std::optional<std::string_view> call = call_of(reference->contribution);
  for (const RoundMember& member : roster) {
    const std::optional<std::string_view> other = call_of(member.contribution);
    if (other.has_value() && other != call) return std::pair(reference, &member);
  }
  return std::nullopt;
}

uint64_t Agreement::WeightOf(const RoundMember& member) const {
  return basin::WeightOf(spec_, member.contribution.begin().counts);
}

uint64_t Agreement::Divisor(const Roster& roster) const {
  if (spec_.op == ReduceOp::kAverage) return roster.gradients();
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
  if (average && roster.gradients() == roster.contributors()) return divisor - skips;
  uint64_t present = divisor;
  for (const RoundMember& member : roster) {
    const Contribution& contribution = member.contribution;
    if (!contribution.counts() || !contribution.Skips(tensor)) continue;
    present -= average ? contribution.begin().gradients() : WeightOf(member);
  }
  return present;
}

}  // namespace basin::aggregator
