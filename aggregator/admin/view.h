// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The state of the core as basin/v1/admin.proto shows it.
//
// Thread contract: pure functions, called from the engine's loop.

#ifndef BASIN_AGGREGATOR_ADMIN_VIEW_H_
#define BASIN_AGGREGATOR_ADMIN_VIEW_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "aggregator/core/coordinator.h"
#include "aggregator/core/job.h"
#include "aggregator/engine/runner.h"
#include "aggregator/telemetry/events.h"
#include "basin/v1/admin.pb.h"

namespace basin::aggregator {

// For a message; 0 for what is negative.
uint64_t Nanoseconds(absl::Duration duration);

// What the core knows of the service; the caller adds version, term and uptime.
v1::ServiceStatus ViewOf(const Coordinator& core);

// `lived` is the clock of jobs and workers (Coordinator::Lived).
v1::ListJobsResponse JobsOf(const Coordinator& core, absl::Time lived);
v1::JobStatus ViewOf(const Job& job, const Coordinator& core, absl::Time lived);
v1::ListMembersResponse MembersOf(const Job& job, absl::Time lived);
// Adds where the workers are, which the transport knows.
void AddPeers(const Job& job, const Runner& runner, v1::ListMembersResponse& members);

// All lanes when `lane` is empty; of each at most `last` past rounds.
v1::ListRoundsResponse RoundsOf(const Job& job, const std::string& lane, uint32_t last,
                                absl::Time lived);

v1::Event ViewOf(const RememberedEvent& event, Term term, absl::Time now);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ADMIN_VIEW_H_
