// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_placement.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job_lanes.h"
#include "aggregator/core/round_shards.h"

namespace basin::aggregator {
namespace {

// The first worker whose client does not know placements; null if there is none.
const Worker* TooOld(const Job& job) {
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    if (worker.state != WorkerState::kLost && !worker.knows_placement) return &worker;
  }
  return nullptr;
}

std::string IsTooOld(const Worker& worker) {
  return absl::StrCat("the client of worker ", worker.id, " is too old to know shards");
}

// The shards besides 0 that the rounds of the job may use: those that it does not do without
// (WhyWithout), and that are not to end.
std::vector<PlacedShard> ShardsFor(const Job& job, const JobScope& scope) {
  std::vector<PlacedShard> others;
  if (TooOld(job) != nullptr) return others;
  for (const auto& [id, shard] : scope.shards) {
    if (shard.drains_since.has_value() || !shard.too_small.empty() || job.placements.Excludes(id)) {
      continue;
    }
    others.push_back({id, shard.name, shard.endpoint});
  }
  return others;
}

void SendPlacement(const Job& job, const JobScope& scope, const Placement& placement,
                   std::optional<Slot> except) {
  SendAll all{{}, placement};
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    if (worker.connected() && worker.knows_placement && slot != except) {
      all.sessions.push_back(*worker.session);
    }
  }
  if (!all.sessions.empty()) scope.actions.push_back(std::move(all));
}

void ForgetUnused(Job& job) {
  std::set<PlacementNumber> used;
  for (const Lane& lane : job.lanes) used.insert(lane.placement.number);
  job.placements.KeepOnly(used);
}

// A shard was lost from the placement of the lane. Returns where the chunks were.
Shares PlaceAgain(const Job& job, Lane& lane) {
  return std::exchange(lane.shares, Shares(job.placements.Get(lane.placement.number), lane.layout,
                                           lane.placement.layout));
}

void LoseFromRounds(Job& job, const JobScope& scope, ShardId shard, const std::string& reason,
                    std::optional<Slot> except) {
  const std::vector<PlacementNumber> had = job.placements.Lose(shard);
  for (const PlacementNumber number : had) {
    SendPlacement(job, scope, job.placements.Get(number), except);
  }
  for (Lane& lane : job.lanes) {
    if (std::find(had.begin(), had.end(), lane.placement.number) == had.end()) continue;
    const Shares before = PlaceAgain(job, lane);
    if (!lane.round.has_value()) continue;
    LoseChunks(*lane.round, ScopeOf(job, scope, lane.index), before, shard, reason);
    job.changed = true;  // What follows for the lane waits until the worker has its welcome.
  }
}

}  // namespace

RoundPlacement PlacementOfNext(const Job& job, const Lane& lane) {
  const PlacementNumber number = job.placements.current().number;
  return {number, number == 0 ? 0 : lane.layout.version()};
}

void PlaceLane(Job& job, Lane& lane) {
  const RoundPlacement next = PlacementOfNext(job, lane);
  const Placement& placement = job.placements.Get(next.number);
  // A shard that is lost from the lane's placement is also lost from its shares.
  if (next == lane.placement) return;
  const bool another = next.number != lane.placement.number;
  lane.placement = next;
  lane.shares = Shares(placement, lane.layout, next.layout);
  if (another) ForgetUnused(job);
}

RoundPlacement PlacementFor(const Worker& worker, const Lane& lane) {
  return worker.knows_placement ? lane.placement : RoundPlacement{};
}

std::vector<StartRound> StartRoundsFor(const Job& job, const Worker& worker) {
  std::vector<StartRound> start = job.lanes.StartRounds();
  if (worker.knows_placement) return start;
  for (StartRound& one : start) one.placement = {};
  return start;
}

std::vector<Placement> PlacementsFor(const Job& job, const Worker& worker) {
  std::vector<Placement> placements;
  if (!worker.knows_placement) return placements;
  for (const auto& [number, placement] : job.placements.all()) placements.push_back(placement);
  return placements;
}

void ReviewPlacement(Job& job, const JobScope& scope, std::optional<Slot> except) {
  if (job.placements.Choose(ShardsFor(job, scope), scope.config.least_share,
                            scope.config.coordinator_share)) {
    const Placement& now = job.placements.current();
    if (now.number != 0) SendPlacement(job, scope, now, except);
    WidenResults(job, scope);
    ForgetUnused(job);
  }
  const auto old_member = [&]() -> const Worker* {
    for (Slot slot = 0; slot < job.workers.size(); ++slot) {
      const Worker& worker = job.workers[slot];
      if (IsMember(worker) && !worker.knows_placement) return &worker;
    }
    return nullptr;
  };
  if (job.placements.all().empty()) return;
  const Worker* old = old_member();
  if (old == nullptr) return;
  const std::string reason = IsTooOld(*old);
  std::set<ShardId> others;
  for (const auto& [number, placement] : job.placements.all()) {
    for (const PlacedShard& placed : placement.shards) {
      if (placed.shard != kCoordinatorShard) others.insert(placed.shard);
    }
  }
  for (const ShardId shard : others) LoseFromRounds(job, scope, shard, reason, except);
}

void LoseShard(Job& job, const JobScope& scope, ShardId shard, const std::string& reason) {
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    job.workers[slot].unreachable.erase(shard);
  }
  GoOnWithout(job, scope, shard, reason);
}

void GoOnWithout(Job& job, const JobScope& scope, ShardId shard, const std::string& reason) {
  LoseFromRounds(job, scope, shard, reason, std::nullopt);
  ReviewPlacement(job, scope);
}

std::string WhyWithout(const Job& job, const Shards& shards, ShardId shard) {
  const auto it = shards.find(shard);
  if (it == shards.end()) return "";  // Shard 0 is not among them.
  if (!it->second.too_small.empty()) return it->second.too_small;
  if (job.placements.Excludes(shard)) return "a worker could not reach it";
  const Worker* old = TooOld(job);
  return old == nullptr ? "" : IsTooOld(*old);
}

bool Uses(const Job& job, ShardId shard) {
  const auto& all = job.placements.all();
  return std::any_of(all.begin(), all.end(),
                     [shard](const auto& entry) { return entry.second.Has(shard); });
}

void VacateRestingLanes(Job& job, const JobScope& scope, ShardId shard) {
  std::set<PlacementNumber> rest;  // Also those of lanes that are gone here, and not at workers.
  for (const auto& [number, placement] : job.placements.all()) {
    if (placement.Has(shard)) rest.insert(number);
  }
  for (const Lane& lane : job.lanes) {
    if (lane.round.has_value()) rest.erase(lane.placement.number);
  }
  for (const PlacementNumber number : rest) {
    job.placements.Lose(number, shard);
    SendPlacement(job, scope, job.placements.Get(number), std::nullopt);
    for (Lane& lane : job.lanes) {
      if (lane.placement.number == number) PlaceAgain(job, lane);
    }
  }
}

void OnShardUnreachable(Job& job, const JobScope& scope, Slot slot,
                        const ShardUnreachable& unreachable) {
  Worker& worker = job.workers[slot];
  const auto shard = scope.shards.find(unreachable.shard);
  if (unreachable.why.empty() || shard == scope.shards.end() ||
      job.placements.Excludes(unreachable.shard)) {
    worker.unreachable.erase(unreachable.shard);
    return;
  }
  const auto [entry, is_new] =
      worker.unreachable.try_emplace(unreachable.shard, Unreachable{scope.now, ""});
  entry->second.why = absl::StrCat("it cannot reach shard ", shard->second.name, " at ",
                                   shard->second.endpoint, ": ", unreachable.why);
  if (!is_new) return;
  AddNote(job, scope, NoteKind::kShardUnreachable, worker.id,
          absl::StrCat("Worker ", worker.id, " of job ", job.name, " cannot reach shard ",
                       shard->second.name, " at ", shard->second.endpoint, ": ", unreachable.why,
                       ". If that lasts for ", absl::FormatDuration(scope.config.shard_grace),
                       ", the job goes on without the shard; check the network between them."));
}

absl::Time UnreachableDue(const Job& job, const Config& config) {
  absl::Time due = absl::InfiniteFuture();
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    if (worker.state == WorkerState::kLost) continue;
    for (const auto& [shard, unreachable] : worker.unreachable) {
      due = std::min(due, unreachable.since + config.shard_grace);
    }
  }
  return due;
}

void GoOnWithoutUnreachable(Job& job, const JobScope& scope) {
  std::set<ShardId> given_up;
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    if (worker.state == WorkerState::kLost) continue;
    for (const auto& [shard, unreachable] : worker.unreachable) {
      if (scope.now < unreachable.since + scope.config.shard_grace) continue;
      if (!given_up.insert(shard).second) continue;
      AddNote(job, scope, NoteKind::kShardUnreachable, worker.id,
              absl::StrCat("Job ", job.name, " goes on without shard ", scope.shards.at(shard).name,
                           ", which worker ", worker.id, " cannot reach."));
    }
  }
  for (const ShardId shard : given_up) {
    job.placements.Exclude(shard);
    LoseShard(job, scope, shard,
              absl::StrCat("a worker cannot reach shard ", scope.shards.at(shard).name));
  }
}

}  // namespace basin::aggregator
