// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Which shards hold the chunks of a job's rounds.
//
// A lane has a placement for its next round from the verdict before on, or from its registration;
// the round keeps it. A shard that was added is therefore used from the next verdict on. One that
// is lost is replaced at once, in the rounds that use it (round_shards.h).
//
// Everything of a job is on shard 0 while a worker is in it whose client does not know placements.
//
// Thread contract: the functions change the job, append actions, and have no other effect.

#ifndef BASIN_AGGREGATOR_CORE_JOB_PLACEMENT_H_
#define BASIN_AGGREGATOR_CORE_JOB_PLACEMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/job.h"
#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

// Returns what a round of the lane uses that follows a verdict of now.
RoundPlacement PlacementOfNext(const Job& job, const Lane& lane);
// The lane's next round uses that. REQUIRES: the lane has no round.
void PlaceLane(Job& job, Lane& lane);
// Returns what the worker is told of the placement of the lane's next round: nothing if its client
// does not know placements.
RoundPlacement PlacementFor(const Worker& worker, const Lane& lane);
std::vector<StartRound> StartRoundsFor(const Job& job, const Worker& worker);
// Returns those that a worker must know.
std::vector<Placement> PlacementsFor(const Job& job, const Worker& worker);

// The following leave the rest to Reconcile. The shards or the workers have changed: chooses the
// placement of the rounds that follow. If a member does not know placements, its open rounds go on
// on shard 0. All workers get news but `except`, whose welcome follows.
void ReviewPlacement(Job& job, const JobScope& scope, std::optional<Slot> except = std::nullopt);
// The shard is lost. `reason`: for people, as the start of a sentence ("shard b is lost").
void LoseShard(Job& job, const JobScope& scope, ShardId shard, const std::string& reason);
// The same for a shard that is still there, and that its next placement is without.
void GoOnWithout(Job& job, const JobScope& scope, ShardId shard, const std::string& reason);

// Why the rounds of the job do without the shard, for people; empty: they use it, until it is to
// end.
std::string WhyWithout(const Job& job, const Shards& shards, ShardId shard);
// Whether a placement of the job has the shard, so that a round may have chunks there.
bool Uses(const Job& job, ShardId shard);
// Lanes that rest do without the shard in their next rounds, too: those with a placement that no
// open round has. What a worker has on its way to the shard for such a round is pushed again.
void VacateRestingLanes(Job& job, const JobScope& scope, ShardId shard);

void OnShardUnreachable(Job& job, const JobScope& scope, Slot slot,
                        const ShardUnreachable& unreachable);
// When the job goes on without a shard that a worker cannot reach, and that.
absl::Time UnreachableDue(const Job& job, const Config& config);
void GoOnWithoutUnreachable(Job& job, const JobScope& scope);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_PLACEMENT_H_
