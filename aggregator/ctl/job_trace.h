// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The trace of a job, from what the aggregator remembers of its last rounds.
//
// Each lane has a track with its rounds, and in each round the slices `gathered`, `waited for W`
// and `reduced`. Each worker has a track in each lane with its contributions, from the first begin
// of the round until the contribution was complete. Arrows from the workers' traces to their
// results lead through these.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CTL_JOB_TRACE_H_
#define BASIN_AGGREGATOR_CTL_JOB_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "basin/v1/admin.pb.h"
#include "runtime/timeline/trace_event.h"

namespace basin::aggregator {

// At most `most` rounds of each lane, the last ones. Slices that enclose others come first.
std::vector<TraceEvent> EventsOf(const v1::ListRoundsResponse& rounds, const std::string& job,
                                 uint32_t most);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_JOB_TRACE_H_
