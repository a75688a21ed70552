// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

bool IsScale(double value) { return std::isfinite(value) && value != 0; }

// The fewest digits that distinguish a number from every other one.
std::string Exactly(double number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), number).ptr};
}

}  // namespace

std::string WhyNotAllowed(const Begin& begin) {
  const RoundSpec& spec = begin.spec;
  const Counts& counts = begin.counts;
  if (spec.op == ReduceOp::kUnspecified) return "names no op; use SUM, AVERAGE or another";
  if (!IsScale(spec.prescale)) {
    return absl::StrCat("has prescale ", spec.prescale, "; it must be finite and not zero");
  }
  if (!IsScale(spec.postscale)) {
    return absl::StrCat("has postscale ", spec.postscale, "; it must be finite and not zero");
  }
  if (!IsScale(spec.predivide) || spec.predivide < 0) {
    return absl::StrCat("has predivide ", spec.predivide, "; it must be finite and positive");
  }
  if (!IsScale(spec.loss_scale) || spec.loss_scale < 0) {
    return absl::StrCat("has loss scale ", spec.loss_scale, "; it must be finite and positive");
  }
  if (spec.op == ReduceOp::kWeightedAverage) {
    if (spec.weight_by == WeightBy::kNone) {
      return "is a WEIGHTED_AVERAGE without a weight; use samples, tokens or micro-batches";
    }
    if (!CountFor(spec.weight_by, counts).has_value()) {
      return "is a WEIGHTED_AVERAGE without the count that is its weight; give the count, 0 if "
             "there was nothing";
    }
  } else if (spec.weight_by != WeightBy::kNone) {
    return absl::StrCat("gives weights to op ", ReduceOpName(spec.op),
                        "; only WEIGHTED_AVERAGE takes them");
  }
  if (std::string why = WhyNotCounted(counts); !why.empty()) return why;
  if (std::string why = WhyNotRanks(begin.ranks, begin.represents); !why.empty()) return why;
  const bool extremes =
      spec.op == ReduceOp::kMin || spec.op == ReduceOp::kMax || spec.op == ReduceOp::kProduct;
  if (extremes && (spec.predivide != 1 || spec.auto_predivide)) {
    return absl::StrCat("gives a predivide factor to op ", ReduceOpName(spec.op),
                        "; it has no meaning there");
  }
  // The scale belongs to each trainer's values, and these are combined already.
  if (extremes && begin.trainers() > 1 && spec.prescale != 1) {
    return absl::StrCat("has prescale ", spec.prescale, " for the ", ReduceOpName(spec.op), " of ",
                        begin.trainers(),
                        " trainers; scale the values of each trainer first, and use prescale 1");
  }
  return "";
}

std::string WhyNotReducible(const RoundSpec& spec, DType dtype) {
  if (dtype == DType::kF8E4M3FN || dtype == DType::kF8E5M2) {
    return absl::StrCat(DTypeName(dtype), " cannot be reduced; send it as f16 or bf16");
  }
  if (IsFloatingPoint(dtype)) return "";
  if (spec.op == ReduceOp::kAverage || spec.op == ReduceOp::kWeightedAverage) {
    return absl::StrCat("integers (", DTypeName(dtype), ") have no ", ReduceOpName(spec.op),
                        "; use SUM, or skip the tensor");
  }
  if (spec.prescale != 1 || spec.postscale != 1 || spec.predivide != 1 || spec.auto_predivide) {
    return absl::StrCat("integers (", DTypeName(dtype), ") take no scale");
  }
  return "";
}

double AutoPredivide(uint64_t trainers) {
  // 2^k and 2^(k+1) are equally near to sqrt(N) when sqrt(N) = 1.5 * 2^k, that is 4 N = 9 * 4^k.
  double power = 1;
  while (4.0 * static_cast<double>(trainers) > 9.0 * power * power) power *= 2;
  return power;
}

size_t ChooseSpec(const std::vector<const RoundSpec*>& specs,
                  const std::optional<RoundSpec>& last) {
  size_t chosen = 0;
  size_t best = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (last.has_value() && *specs[i] == *last) return i;
    if (i > 0 && *specs[i] == *specs[chosen]) continue;
    const size_t votes = static_cast<size_t>(std::count_if(
        specs.begin(), specs.end(), [&](const RoundSpec* other) { return *other == *specs[i]; }));
    if (votes > best) chosen = i, best = votes;
  }
  return chosen;
}

RoundSpec Resolve(RoundSpec spec, uint64_t trainers) {
  if (spec.auto_predivide) spec.predivide = AutoPredivide(trainers);
  return spec;
}

RoundSpec AsBegun(RoundSpec spec) {
  if (spec.auto_predivide) spec.predivide = 1;
  return spec;
}

const char* KindName(ContributionKind kind) {
  return kind == ContributionKind::kMean ? "MEAN" : "SUM";
}

const char* WeightByName(WeightBy by) {
  switch (by) {
    case WeightBy::kSamples:
      return "samples";
    case WeightBy::kTokens:
      return "tokens";
    case WeightBy::kMicroBatches:
      return "micro-batches";
    case WeightBy::kNone:
      break;
  }
  return "nothing";
}

const char* DenominatorName(Denominator denominator) {
  return denominator == Denominator::kAll ? "ALL" : "PRESENT";
}

std::string DescribeDifference(const RoundSpec& mine, const RoundSpec& reference) {
  const auto differ = [](const char* what, const auto& a, const auto& b) {
    return absl::StrCat(what, " ", a, " against ", b);
  };
  if (mine.op != reference.op) {
    return differ("op", ReduceOpName(mine.op), ReduceOpName(reference.op));
  }
  if (mine.prescale != reference.prescale) {
    return differ("prescale", Exactly(mine.prescale), Exactly(reference.prescale));
  }
  if (mine.postscale != reference.postscale) {
    return differ("postscale", Exactly(mine.postscale), Exactly(reference.postscale));
  }
  if (mine.predivide != reference.predivide || mine.auto_predivide != reference.auto_predivide) {
    const auto name = [](const RoundSpec& spec) {
      return spec.auto_predivide ? std::string("AUTO") : Exactly(spec.predivide);
    };
    return differ("predivide", name(mine), name(reference));
  }
  if (mine.loss_scale != reference.loss_scale) {
    return differ("loss scale", Exactly(mine.loss_scale), Exactly(reference.loss_scale));
  }
  if (mine.layout != reference.layout) {
    const bool same_tensors = mine.layout >> 32 != 0 && mine.layout >> 32 == reference.layout >> 32;
    return differ(same_tensors ? "numbers of the optimizer, or parameters" : "layout of tensors",
                  absl::StrCat(absl::Hex(mine.layout)), absl::StrCat(absl::Hex(reference.layout)));
  }
  if (mine.kind != reference.kind) {
    return differ("contribution kind", KindName(mine.kind), KindName(reference.kind));
  }
  if (mine.weight_by != reference.weight_by) {
    return differ("weights by", WeightByName(mine.weight_by), WeightByName(reference.weight_by));
  }
  return differ("denominator", DenominatorName(mine.denominator),
                DenominatorName(reference.denominator));
}

}  // namespace basin::aggregator
