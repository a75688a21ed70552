// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the status page shows: the answers that the admin service gives, of a limited number of jobs
// and events.
//
// Thread contract: LookForStatus from any thread but the engine's loop; it blocks. The rest is a
// plain value. Failure: nothing if the loop does not answer.

#ifndef BASIN_AGGREGATOR_STATUSZ_STATUS_VIEW_H_
#define BASIN_AGGREGATOR_STATUSZ_STATUS_VIEW_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "aggregator/engine/engine.h"
#include "aggregator/telemetry/events.h"
#include "basin/v1/admin.pb.h"

namespace basin::aggregator {

// Jobs in detail. People do not read a longer page; basinctl shows the others.
inline constexpr size_t kMostJobsInDetail = 16;

struct JobDetails {
  v1::JobStatus job;
  v1::ListMembersResponse members;
  v1::ListRoundsResponse rounds;
};

struct StatusView {
  v1::ServiceStatus service;
  std::vector<v1::JobStatus> jobs;  // All: those that do not go on first, then by name.
  std::vector<JobDetails> details;  // Those of the first jobs.
  v1::ListShardsResponse shards;    // The aggregator alone, if there are none.
  std::vector<v1::Event> events;    // Newest first, of these jobs and of the service.
};

// Whether it neither runs nor has ended.
bool IsHeldUp(v1::JobState state);

// `timeout` is for each question that the loop is asked: one, and one for each job in detail.
std::optional<StatusView> LookForStatus(Engine& engine, const EventHistory& events,
                                        std::chrono::milliseconds timeout);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_STATUSZ_STATUS_VIEW_H_
