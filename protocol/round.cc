// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/round.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace basin {

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCommitted:
      return "COMMITTED";
    case Outcome::kAborted:
      return "ABORTED";
    case Outcome::kUnspecified:
      break;
  }
  return "UNSPECIFIED";
}

std::string WhyNotCounted(const Counts& counts) {
  const std::pair<const std::optional<uint64_t>&, const char*> all[] = {
      {counts.samples, "samples"},
      {counts.tokens, "tokens"},
      {counts.micro_batches, "micro-batches"},
  };
  for (const auto& [count, name] : all) {
    if (count.value_or(0) <= kMaxCount) continue;
    return absl::StrCat("counts ", *count, " ", name, ", more than 2^48, ", kMaxCount,
                        ", which is the limit; count in a coarser unit");
  }
  return "";
}

std::string WhyNotRanks(uint32_t ranks, uint32_t represents) {
  if (ranks >= 1 && ranks <= kMaxRanks) {
    if (represents <= kMaxRanks - ranks) return "";
    return absl::StrCat("has the gradients of ", represents, " trainers of other workers beside ",
                        ranks, "; a contribution is for 1 to ", kMaxRanks,
                        " trainers, those of a node: correct what it carries");
  }
  return absl::StrCat("stands for ", ranks, " trainers; a worker stands for 1 to ", kMaxRanks,
                      ", those of its own node: correct its ranks");
}

uint64_t DivisorOf(const RoundValue& value, TensorIndex tensor) {
  if (value.outcome != Outcome::kCommitted || tensor >= value.layout_version) return 0;
  for (const TensorDivisor& entry : value.tensor_divisors) {
    if (entry.tensor == tensor) return entry.divisor;
  }
  return value.divisor;
}

std::vector<uint64_t> DivisorsOf(const RoundValue& value) {
  if (value.outcome != Outcome::kCommitted) return std::vector<uint64_t>(value.layout_version);
  std::vector<uint64_t> divisors(value.layout_version, value.divisor);
  for (const TensorDivisor& entry : value.tensor_divisors) {
    if (entry.tensor < divisors.size()) divisors[entry.tensor] = entry.divisor;
  }
  return divisors;
}

uint32_t TrainersOf(const RoundValue& value) {
  uint32_t trainers = 0;
  for (const Contributor& contributor : value.contributors) trainers += contributor.ranks;
  return trainers;
}

std::string DescribeContributors(const RoundValue& value) {
  const size_t contributors = value.contributors.size();
  const uint32_t trainers = TrainersOf(value);
  std::string text = absl::StrCat(contributors, " contributors");
  if (trainers != contributors) absl::StrAppend(&text, " of ", trainers, " trainers");
  return text;
}

uint64_t SumOfWeights(const RoundValue& value) {
  uint64_t sum = 0;
  for (const Contributor& contributor : value.contributors) sum += contributor.weight;
  return sum;
}

uint64_t MixChain(uint64_t chain, uint64_t word) {
  uint64_t z = (chain ^ word) * 0x9e3779b97f4a7c15 + 0x632be59bd9b4e019;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::optional<uint64_t> CountFor(WeightBy by, const Counts& counts) {
  switch (by) {
    case WeightBy::kSamples:
      return counts.samples;
    case WeightBy::kTokens:
      return counts.tokens;
    case WeightBy::kMicroBatches:
      return counts.micro_batches;
    case WeightBy::kNone:
      break;
  }
  return std::nullopt;
}

uint64_t WeightOf(const RoundSpec& spec, const Counts& counts) {
  if (spec.op != ReduceOp::kWeightedAverage) return 1;
  return CountFor(spec.weight_by, counts).value_or(0);
}

namespace {

uint64_t MixSamples(uint64_t hash, const RoundSamples& samples) {
  const auto add = [&hash](uint64_t word) { hash = MixChain(hash, word); };
  add(samples.epoch.number);
  add(samples.epoch.samples);
  add(samples.epoch.order);
  if (samples.epoch.has_steps()) add(samples.epoch.global_batch);
  for (const std::vector<SampleRange>* ranges : {&samples.ranges, &samples.resumed}) {
    add(ranges->size());
    for (const SampleRange& range : *ranges) {
      add(range.begin);
      add(range.end);
    }
  }
  add(samples.committed);
  return hash;
}

}  // namespace

uint64_t DecisionOf(const RoundValue& value) {
  uint64_t hash = 0;
  const auto add = [&hash](uint64_t word) { hash = MixChain(hash, word); };
  const auto add_real = [&add](double real) {
    uint64_t word = 0;
    std::memcpy(&word, &real, sizeof word);
    add(word);
  };
  // Delimited by its length.
  const auto add_text = [&add](const std::string& text) {
    add(text.size());
    for (const char c : text) add(static_cast<uint8_t>(c));
  };
  const auto add_count = [&add](const std::optional<uint64_t>& count) {
    add(count.has_value() ? 1 : 0);
    add(count.value_or(0));
  };
  add(static_cast<uint64_t>(value.outcome));
  add(static_cast<uint64_t>(value.spec.op));
  add_real(value.spec.prescale);
  add_real(value.spec.postscale);
  add_real(value.spec.predivide);
  add(value.spec.auto_predivide ? 1 : 0);
  add(static_cast<uint64_t>(value.spec.kind));
  add(static_cast<uint64_t>(value.spec.weight_by));
  add(static_cast<uint64_t>(value.spec.denominator));
  add_real(value.spec.loss_scale);
  add(value.spec.layout);
  add(value.contributors.size());
  for (const Contributor& contributor : value.contributors) {
    add_text(contributor.worker);
    add(contributor.incarnation.term);
    add(contributor.incarnation.counter);
    add(contributor.weight);
    add(contributor.ranks);
    add(static_cast<uint64_t>(contributor.local_reduction));
    add(contributor.reduced_with.size());
    for (const WorkerId& other : contributor.reduced_with) add_text(other);
  }
  add(value.dropped.size());
  for (const WorkerId& worker : value.dropped) add_text(worker);
  add(value.divisor);
  add(value.tensor_divisors.size());
  for (const TensorDivisor& entry : value.tensor_divisors) {
    add(entry.tensor);
    add(entry.divisor);
  }
  add(value.layout_version);
  add(value.digest);
  add_count(value.facts.totals.samples);
  add_count(value.facts.totals.tokens);
  add_count(value.facts.totals.micro_batches);
  add(value.generation.term);
  add(value.generation.counter);
  add(value.contract_version);
  add(value.world_size);
  if (value.samples.has_value()) hash = MixSamples(hash, *value.samples);
  return hash == 0 ? 1 : hash;
}

std::string WhyNotAdded(const RoundSpec& spec, uint32_t deferred) {
  if (deferred == 0) return "";
  if (deferred > kMaxRanks) {
    return absl::StrCat("has gradients that ", deferred,
                        " trainers had computed for an earlier round; at most ", kMaxRanks,
                        " can be in one");
  }
  const bool is_sum = spec.op == ReduceOp::kSum || spec.op == ReduceOp::kAverage ||
                      spec.op == ReduceOp::kWeightedAverage;
  if (is_sum && spec.denominator != Denominator::kPresent) return "";
  return absl::StrCat("has gradients of an earlier round, which ", ReduceOpName(spec.op),
                      is_sum ? " by the workers that pushed a tensor" : "", " cannot add");
}

std::string WhyNotLate(const WorkerId& worker, const VerdictRecord* before) {
  const bool was_late = before != nullptr && before->value.late_carries &&
                        std::find(before->value.late.begin(), before->value.late.end(), worker) !=
                            before->value.late.end();
  if (was_late) return "";
  return "has gradients of the round before, whose verdict does not say that they were late and "
         "may be in this one";
}

uint64_t ExtendChain(uint64_t chain, RoundNumber round, const RoundValue& value) {
  chain = MixChain(chain, round);
  chain = MixChain(chain, static_cast<uint64_t>(value.outcome));
  chain = MixChain(chain, value.contributors.size());
  for (const Contributor& contributor : value.contributors) {
    chain = MixChain(chain, contributor.worker.size());
    for (const char c : contributor.worker) chain = MixChain(chain, static_cast<uint8_t>(c));
    chain = MixChain(chain, contributor.incarnation.term);
    chain = MixChain(chain, contributor.incarnation.counter);
    if (contributor.is_partial()) chain = MixChain(chain, contributor.ranks);
  }
  if (value.samples.has_value()) chain = MixSamples(chain, *value.samples);
  return MixChain(chain, value.digest);
}

}  // namespace basin
