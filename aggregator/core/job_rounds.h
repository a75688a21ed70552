// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the rounds of a job open, go on and end: the job chooses the next members, writes them down
// first, and sends the verdict.

#ifndef BASIN_AGGREGATOR_CORE_JOB_ROUNDS_H_
#define BASIN_AGGREGATOR_CORE_JOB_ROUNDS_H_

#include <string>

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

// Returns the round `number` of a lane if this worker may act in it. With `open`, the first member
// that acts opens the round. A worker that is behind receives the verdicts that it missed.
Round* RoundFor(Job& job, const JobScope& scope, Slot slot, Lane& lane, LaneIndex index,
                RoundNumber number, bool open);

void OnReduceDone(Job& job, const JobScope& scope, const ReduceDone& done);
// Settles the round of the lane if it can be.
void AdvanceLane(Job& job, const JobScope& scope, LaneIndex index);
// All rounds do what they can. Stops at the first verdict, because it may change the members.
void AdvanceAll(Job& job, const JobScope& scope);
// Lanes that held their verdict for the job's pace go on.
void SendPaced(Job& job, const JobScope& scope);

// Writes the members to the state file.
void Save(const Job& job, const JobScope& scope, const Membership& next);
// The same; the change waits for that.
void SavePending(Job& job, const JobScope& scope, PendingChange change);
void Take(Job& job, const JobScope& scope, const StateSaved& saved);
// Continues what waited until the generation was on disk. `failure` is the reason if it is not
// there, and "" if it is.
void EndWrite(Job& job, const JobScope& scope, Generation generation, const std::string& failure);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_ROUNDS_H_
