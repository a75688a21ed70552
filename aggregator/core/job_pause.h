// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// When a job is paused, and what it sends to its workers: why it is paused or does not run yet, and
// that it goes on. Changes only the pause, the notice and the reason.

#ifndef BASIN_AGGREGATOR_CORE_JOB_PAUSE_H_
#define BASIN_AGGREGATOR_CORE_JOB_PAUSE_H_

#include <string>

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

// Sends the reason of a pause to every connected worker once the pause lasts. A waiting trainer
// logs it, and adds it to the error text if its deadline passes. An empty text means that the job
// goes on. A pause is noted, and its time starts, when it delays a worker. Workers that leave one
// by one at the end of a job, with no round open, deserve no warning.
void ReviewPause(Job& job, const JobScope& scope);
void ReportPause(Job& job, const JobScope& scope);
// Plans to send the reason to workers that wait for a job that does not run. The delay keeps
// workers that start together from being reported as missing to each other.
void NoteWaiting(Job& job, const JobScope& scope);
void ReportWhyNotRunning(Job& job, const JobScope& scope);
std::string WhyPaused(const Job& job);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_PAUSE_H_
