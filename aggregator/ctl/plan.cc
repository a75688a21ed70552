// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "aggregator/admin/words.h"
#include "aggregator/core/memory.h"
#include "aggregator/ctl/output.h"
#include "aggregator/ctl/plan_shards.h"
#include "aggregator/ctl/table.h"
#include "aggregator/text/units.h"
#include "nlohmann/json.hpp"

namespace basin::aggregator {
namespace {

// From a contribution to its verdict: contribution, result, acknowledgement and verdict each cross
// the network once.
constexpr int kRoundTrips = 2;

// A worker holds one model of results beside its gradient, and this (docs/client.md).
constexpr uint64_t kWorkerBytes = uint64_t{20} << 20;

// The part of a pod's memory limit that gradients get (aggregator/config/machine.h).
constexpr double kShareOfLimit = 0.4;

// What a lane is charged, with windows of this config.
uint64_t MemoryOf(const Config& config, const PlannedJob& job, bool full) {
  const uint64_t tracking = TrackingBytes(
      job.workers, static_cast<uint32_t>((job.model_bytes + kChunkBytes - 1) / kChunkBytes));
  // With unlimited free memory, the windows are as large as is useful.
  constexpr uint64_t kPlenty = uint64_t{1} << 60;
  const LaneMemory lane =
      full ? *PlanLaneMemory(config, job.workers, 1, job.model_bytes, kPlenty, LaneMemory())
           : LeastLaneMemory(config, job.workers, job.model_bytes);
  return lane.reserved + tracking;
}

std::string AsTable(const PlannedJob& job, const Plan& plan, const ShardsPlan& shards,
                    uint64_t budget) {
  TextTable table({"WHAT", "ESTIMATE", "WHY"});
  table.Add({"time of a round", ShowTime(plan.round),
             absl::StrCat(job.workers, " x ", Size(job.model_bytes),
                          " through the aggregator's network, and ", kRoundTrips,
                          " round trips; hidden if a step computes for longer")});
  const bool alone = job.workers == 1;
  if (!alone) {
    table.Add({"the same in a ring", ShowTime(plan.ring),
               "2 (N-1) / N of a model through each worker's network, in 2 (N-1) hops"});
    table.Add({"break-even: network of the aggregator",
               plan.even_nic_bits.has_value() ? ShowBandwidth(*plan.even_nic_bits) : "none",
               plan.even_nic_bits.has_value()
                   ? "with this one a round takes as long as the ring"
                   : "the ring is faster than the round trips to the aggregator alone"});
    table.Add(
        {"break-even: model",
         plan.even_model_bytes == kAnyModel ? "any"
         : plan.even_model_bytes > 0        ? Size(plan.even_model_bytes)
                                            : "none",
         plan.even_model_bytes == kAnyModel
             ? "with this network of the aggregator a large model takes no longer than in the "
               "ring"
         : plan.even_model_bytes > 0 ? "up to this size a round takes no longer than the ring"
                                     : "the ring is faster with a model of any size"});
  }
  table.Add({"memory of the aggregator", Size(plan.full_memory),
             "one lane with full windows; memory.budget needs this for each lane"});
  table.Add({"at least", Size(plan.least_memory), "below it the job is refused, or waits"});
  table.Add({"memory limit of a pod", Size(static_cast<uint64_t>(plan.full_memory / kShareOfLimit)),
             "of which 40 % are memory.budget, for one such lane"});
  table.Add({"memory of a worker", Size(job.model_bytes + kWorkerBytes),
             "results and buffers, beside its gradients"});
  table.Add({"processor of the aggregator", absl::StrFormat("%.1f cores", plan.cores),
             absl::StrCat("busy during a round, ", ShowTime(plan.cpu),
                          " of processor time; with fewer cores a round takes longer")});
  std::string text = table.Text();
  if (alone) {
    absl::StrAppend(
        &text,
        "\nOne worker needs no aggregation: its own gradient is the result, and there is "
        "no ring to\ncompare with.\n");
  }
  if (!alone) absl::StrAppend(&text, "\n", Show(shards, plan));
  if (budget == 0) return text;
  return absl::StrCat(text, "\nA memory.budget of ", Size(budget),
                      budget >= plan.full_memory    ? " is enough for full windows.\n"
                      : budget >= plan.least_memory ? " is enough, with smaller windows.\n"
                                                    : " is too small: the job would be refused.\n");
}

std::string AsJson(const PlannedJob& job, const Plan& plan, const ShardsPlan& shards) {
  nlohmann::ordered_json json = {
      {"workers", job.workers},
      {"model_bytes", job.model_bytes},
      {"nic_bits_per_second", job.nic_bits},
      {"shard_nic_bits_per_second", job.holder_bits()},
      {"round_trip_seconds", absl::ToDoubleSeconds(job.round_trip)},
      {"round_seconds", absl::ToDoubleSeconds(plan.round)},
      {"ring_seconds", absl::ToDoubleSeconds(plan.ring)},
  };
  if (plan.even_nic_bits.has_value()) json["even_nic_bits_per_second"] = *plan.even_nic_bits;
  if (plan.even_model_bytes != kAnyModel) json["even_model_bytes"] = plan.even_model_bytes;
  json["memory_bytes"] = plan.full_memory;
  json["least_memory_bytes"] = plan.least_memory;
  json["worker_memory_bytes"] = job.model_bytes + kWorkerBytes;
  json["cpu_seconds"] = absl::ToDoubleSeconds(plan.cpu);
  json["cores"] = plan.cores;
  json["most_useful_shards"] = shards.most_useful;
  if (shards.needed.has_value()) json["shards"] = *shards.needed;
  json["with_shards"] = nlohmann::ordered_json::array();
  for (const RoundWithShards& round : shards.rounds) {
    json["with_shards"].push_back({{"shards", round.shards},
                                   {"round_seconds", absl::ToDoubleSeconds(round.round)},
                                   {"bytes_each", round.bytes_each},
                                   {"cores_each", round.cores_each},
                                   {"memory_bytes_in_all", round.memory_in_all}});
  }
  return json.dump();
}

}  // namespace

Plan PlanOf(const PlannedJob& job) {
  const double workers = job.workers;
  const double bytes = static_cast<double>(job.model_bytes);
  const double hops = 2 * (workers - 1);
  const double ring_share = hops / workers;  // The part of a model on each link.
  const absl::Duration round_latency = kRoundTrips * job.round_trip;
  const absl::Duration ring_latency = hops / 2 * job.round_trip;

  Plan plan;
  plan.round = NetworkTime(job, 1) + round_latency;
  plan.ring = TimeOf(ring_share * bytes, job.nic_bits) + ring_latency;
  if (plan.ring > round_latency) {
    plan.even_nic_bits = workers * bytes * 8 / absl::ToDoubleSeconds(plan.ring - round_latency);
  }
  // In models that the network of a worker carries in the same time: star_share * M / nic +
  // round_latency = ring_share * M / nic + ring_latency.
  const double star_share = std::max(1.0, workers * job.nic_bits / job.holder_bits());
  const double saved_bytes = absl::ToDoubleSeconds(ring_latency - round_latency) * job.nic_bits / 8;
  if (star_share > ring_share) {
    plan.even_model_bytes =
        static_cast<uint64_t>(std::max(0.0, saved_bytes / (star_share - ring_share)));
  } else if (job.workers > 1) {
    plan.even_model_bytes = kAnyModel;
  }

  const Config config;
  plan.least_memory = MemoryOf(config, job, false);
  plan.full_memory = MemoryOf(config, job, true);
  plan.cpu = absl::Seconds(2 * workers * bytes * kCpuSecondsPerByte);
  plan.cores = absl::FDivDuration(plan.cpu, plan.round);
  return plan;
}

absl::Status RunPlan(const Arguments& arguments) {
  for (const auto& [flag, given] : {std::pair{"--workers=8", arguments.workers > 0},
                                    {"--model=100MiB", arguments.model_bytes > 0},
                                    {"--nic=10Gbit/s", arguments.nic_bits > 0}}) {
    if (given) continue;
    const std::string text = flag;
    return absl::InvalidArgumentError(
        absl::StrCat(text.substr(0, text.find('=')), " is missing; write it, for example ", text));
  }
  PlannedJob job;
  job.workers = arguments.workers;
  job.model_bytes = arguments.model_bytes;
  job.nic_bits = arguments.nic_bits;
  job.shard_nic_bits = arguments.shard_nic_bits;
  job.round_trip = arguments.round_trip;
  const Plan plan = PlanOf(job);
  const ShardsPlan shards = PlanShards(job, plan.full_memory, {arguments.shards, arguments.within});
  Print(arguments.format == Format::kTable
            ? AsTable(job, plan, shards, arguments.memory_bytes)
            : Structured(AsJson(job, plan, shards), arguments.format));
  return absl::OkStatus();
}

}  // namespace basin::aggregator
