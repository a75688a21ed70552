// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a job knows of the time of its members, for its Goodput.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CORE_JOB_GOODPUT_H_
#define BASIN_AGGREGATOR_CORE_JOB_GOODPUT_H_

#include "absl/time/time.h"
#include "aggregator/core/config.h"
#include "aggregator/core/goodput.h"
#include "aggregator/core/job.h"

namespace basin::aggregator {

// How the worker is lost, if it is lost now. Its rounds do not know it yet.
LostMember LossOf(const Job& job, Slot slot, absl::Time now);

// The goodput of the job with the time since the last verdict. `now` is on the clock of jobs and
// workers (Coordinator::Lived).
GoodputView GoodputAsOf(const Job& job, const Config& config, absl::Time now);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_GOODPUT_H_
