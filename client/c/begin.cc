// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/c/begin.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "client/c/worker.h"
#include "client/transport/optimizer_numbers.h"

namespace basin::c {
namespace {

std::optional<uint64_t> CountOrUnknown(int64_t count) {
  return count < 0 ? std::nullopt : std::optional<uint64_t>(count);
}

}  // namespace

absl::StatusOr<client::BeginRound> RoundOf(const basin_round_spec* given) {
  if (given == nullptr) {
    return absl::InvalidArgumentError(
        "The specification of the round is null. Begin with BASIN_ROUND_SPEC_INIT and set op.");
  }
  // An older caller's structure ends earlier.
  basin_round_spec in = BASIN_ROUND_SPEC_INIT;
  std::memcpy(&in, given, std::min(given->size, sizeof(in)));
  const auto op = EnumOf<ReduceOp>("The op of the round", in.op, BASIN_PRODUCT);
  if (!op.ok()) return op.status();
  const auto weight_by =
      EnumOf<WeightBy>("The weight of the round", in.weight, BASIN_BY_MICRO_BATCHES);
  if (!weight_by.ok()) return weight_by.status();
  client::BeginRound begin;
  begin.spec.op = *op;
  begin.spec.prescale = in.prescale;
  begin.spec.postscale = in.postscale;
  begin.spec.predivide = in.predivide;
  begin.spec.auto_predivide = in.auto_predivide != 0;
  begin.spec.kind = in.contributes_sum != 0 ? ContributionKind::kSum : ContributionKind::kMean;
  begin.spec.weight_by = *weight_by;
  begin.spec.denominator = in.divide_by_present != 0 ? Denominator::kPresent : Denominator::kAll;
  begin.spec.loss_scale = in.loss_scale;
  begin.spec.layout = in.layout;
  begin.counts = {CountOrUnknown(in.samples), CountOrUnknown(in.tokens),
                  CountOrUnknown(in.micro_batches)};
  begin.step_label = in.step;
  begin.compares_step = in.compares_step != 0;
  begin.represents = in.carries;
  client::SetOptimizer(begin, Text(in.optimizer));
  begin.deferred = in.deferred;
  const auto local = EnumOf<LocalReduction>("The local reduction of the round", in.local_reduction,
                                            BASIN_LOCAL_FAST);
  if (!local.ok()) return local.status();
  begin.local_reduction = *local;
  if (in.reduced_with == nullptr && in.reduced_with_count > 0) {
    return absl::InvalidArgumentError(
        "The workers that the contribution was reduced with are null. Pass their ids.");
  }
  for (uint32_t i = 0; i < in.reduced_with_count; ++i) {
    begin.reduced_with.emplace_back(Text(in.reduced_with[i]));
  }
  auto samples = RangesOf(in.sample_ranges, in.sample_range_count);
  if (!samples.ok()) return samples.status();
  begin.samples = *std::move(samples);
  if (!begin.samples.empty()) begin.sample_epoch = in.sample_epoch;
  begin.call = Text(in.call);
  return begin;
}

}  // namespace basin::c
