// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/plan_shards.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "aggregator/admin/words.h"
#include "aggregator/ctl/table.h"
#include "aggregator/text/units.h"
#include "protocol/placement.h"
#include "protocol/plural.h"

namespace basin::aggregator {
namespace {

// From a contribution to its verdict: contribution, result, acknowledgement and verdict each cross
// the network once. With shards there are, between contribution and result, the report of the
// shard, the order to reduce, the report that it is done, and the order to send.
constexpr int kRoundTripsAlone = 2;
constexpr int kRoundTripsWithShards = 4;

}  // namespace

absl::Duration TimeOf(double bytes, double bits_per_second) {
  return absl::Seconds(bytes * 8 / bits_per_second);
}

absl::Duration NetworkTime(const PlannedJob& job, uint32_t processes) {
  const double bytes = static_cast<double>(job.model_bytes);
  return std::max(TimeOf(bytes, job.nic_bits),
                  TimeOf(bytes * job.workers / processes, job.holder_bits()));
}

uint32_t MostUsefulShards(const PlannedJob& job) {
  // The network of so many processes is that of all workers. What is above a whole number by less
  // than a millionth is a rounding.
  const double networks = job.workers * job.nic_bits / job.holder_bits();
  const double processes = std::max(1.0, std::ceil(networks * (1 - 1e-6)));
  const uint64_t parts = std::max<uint64_t>(1, job.model_bytes / kLeastShare);
  return static_cast<uint32_t>(std::min(processes, static_cast<double>(parts))) - 1;
}

RoundWithShards RoundWith(const PlannedJob& job, uint32_t shards, uint64_t full_memory) {
  RoundWithShards with;
  with.shards = shards;
  // What is too small to be spread stays on the aggregator.
  const bool spread = job.model_bytes / (shards + 1) >= kLeastShare;
  const uint32_t processes = spread ? shards + 1 : 1;
  const int round_trips = processes == 1 ? kRoundTripsAlone : kRoundTripsWithShards;
  with.round = NetworkTime(job, processes) + round_trips * job.round_trip;
  const double bytes = static_cast<double>(job.model_bytes) * job.workers / processes;
  with.bytes_each = static_cast<uint64_t>(bytes);
  with.cores_each = 2 * bytes * kCpuSecondsPerByte / absl::ToDoubleSeconds(with.round);
  with.memory_in_all = (shards + 1) * full_memory;
  return with;
}

ShardsPlan PlanShards(const PlannedJob& job, uint64_t full_memory, const WantedShards& wanted) {
  ShardsPlan plan;
  plan.wanted = wanted;
  plan.most_useful = MostUsefulShards(job);
  std::set<uint32_t> numbers = {plan.most_useful};
  for (uint64_t processes = 1; processes <= plan.most_useful; processes *= 2) {
    numbers.insert(static_cast<uint32_t>(processes - 1));
  }
  if (wanted.shards > 0) numbers.insert(wanted.shards);
  if (wanted.within > absl::ZeroDuration()) {
    for (uint32_t shards = 0; shards <= plan.most_useful && !plan.needed.has_value(); ++shards) {
      if (RoundWith(job, shards, full_memory).round <= wanted.within) plan.needed = shards;
    }
    if (plan.needed.has_value()) numbers.insert(*plan.needed);
  }
  for (const uint32_t shards : numbers) {
    plan.rounds.push_back(RoundWith(job, shards, full_memory));
  }
  return plan;
}

std::string Show(const ShardsPlan& shards, const Plan& plan) {
  TextTable table(
      {"SHARDS", "ROUND", "BESIDE THE RING", "BYTES EACH", "CORES EACH", "MEMORY IN ALL"});
  for (const RoundWithShards& round : shards.rounds) {
    table.Add({absl::StrCat(round.shards), ShowTime(round.round),
               absl::StrFormat("%.2f x", absl::FDivDuration(round.round, plan.ring)),
               Size(round.bytes_each), absl::StrFormat("%.1f", round.cores_each),
               Size(round.memory_in_all)});
  }
  const RoundWithShards& shortest =
      *std::min_element(shards.rounds.begin(), shards.rounds.end(),
                        [](const auto& a, const auto& b) { return a.round < b.round; });
  std::string text = absl::StrCat(
      "With shards besides the aggregator, each on a machine of its own:\n\n", table.Text(), "\n");
  if (shards.most_useful == 0) {
    absl::StrAppend(&text, "Shards do not make a round of this job shorter.\n");
  } else {
    absl::StrAppend(&text, "More than ", CountOf(shards.most_useful, "shard"),
                    " do not help; a round takes ", ShowTime(shortest.round), " at least.\n");
  }
  if (shards.wanted.within <= absl::ZeroDuration()) return text;
  const std::string within = ShowTime(shards.wanted.within);
  if (!shards.needed.has_value()) {
    return absl::StrCat(text, "No number of shards brings a round within ", within,
                        ": send fewer bytes, or give the workers a faster network.\n");
  }
  return absl::StrCat(text, "A round within ", within, " needs ",
                      *shards.needed == 0 ? "no shard" : CountOf(*shards.needed, "shard"), ".\n");
}

}  // namespace basin::aggregator
