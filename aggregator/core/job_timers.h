// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a job does by itself at a certain time, such as losing a silent worker. Each timer is one
// row of a table: when it is due, and what it does. Where the kernel shows that the machine of a
// silent worker is gone, the worker is lost earlier.

#ifndef BASIN_AGGREGATOR_CORE_JOB_TIMERS_H_
#define BASIN_AGGREGATOR_CORE_JOB_TIMERS_H_

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

void CheckTimers(Job& job, const JobScope& scope);
// The kernel has heard nothing of the worker's machine, as the transport saw it `age` ago. Loses
// the worker and returns true if its machine is gone as far as anyone can tell.
bool LoseIfGone(Job& job, const JobScope& scope, Slot slot, const UnheardSession& seen,
                absl::Duration age);
absl::Time NextTimer(const Job& job, const Config& config);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_TIMERS_H_
