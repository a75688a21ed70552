// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The status of a job in one word, as metrics, basinctl and the admin service show it.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CORE_STATUS_H_
#define BASIN_AGGREGATOR_CORE_STATUS_H_

#include "aggregator/core/job.h"

namespace basin::aggregator {

enum class JobStatus : uint8_t {
  kStarting = 0,    // Waits for start_workers.
  kRunning = 1,     // Rounds open and end.
  kPaused = 2,      // Fewer than min_workers members are left.
  kSuspended = 3,   // By an operator.
  kDraining = 4,    // The whole service drains: open rounds end, no further one opens.
  kRecovering = 5,  // The aggregator does not know yet how far the run is.
  kHalted = 6,      // The workers that are back cannot show it.
  kFinished = 7,    // Its workers have finished or left in good order.
};

JobStatus StatusOf(const Job& job, bool draining);

// "running"
const char* JobStatusName(JobStatus status);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_STATUS_H_
