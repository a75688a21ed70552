// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The settings that an operator can change while a job runs. Changes only the settings and what is
// charged for the lanes.

#ifndef BASIN_AGGREGATOR_CORE_JOB_SETTINGS_H_
#define BASIN_AGGREGATOR_CORE_JOB_SETTINGS_H_

#include <string>

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

// Returns why an operator cannot change these settings now, as the end of a sentence about the job;
// empty if the operator can. `free` is what is left of the memory budget.
std::string WhyNotSet(const Job& job, const Config& config, uint64_t free, const SetJob& set);
void Take(Job& job, const JobScope& scope, const SetJob& set);
void Take(Job& job, const JobScope& scope, const SettingsSaved& saved);
// Notes why the late policy leaves out nobody, if it means to. For when a job forms, and for a
// change by an operator.
void NoteLatePolicy(const Job& job, const JobScope& scope);
// The disk hangs, so an operator is told what holds without it.
void GiveUpSettingsWrites(Job& job, const JobScope& scope);
// What an operator had changed before the aggregator was restarted holds again in the same run. A
// run without a name is the same if its workers ask for what that run had.
void RestoreSettings(Job& job, const JobScope& scope, const Hello& hello);
// The job is forgotten, and with it what an operator has set, unless the next job of this name is
// to get what the state file has.
void ForgetSettings(Job& job, const JobScope& scope);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_SETTINGS_H_
