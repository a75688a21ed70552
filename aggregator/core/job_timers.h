// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a job does by itself at a certain time, such as losing a silent worker. Each timer is one
// row of a table: when it is due, and what it does.

#ifndef BASIN_AGGREGATOR_CORE_JOB_TIMERS_H_
#define BASIN_AGGREGATOR_CORE_JOB_TIMERS_H_

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

void CheckTimers(Job& job, const JobScope& scope);
absl::Time NextTimer(const Job& job, const Config& config);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_TIMERS_H_
