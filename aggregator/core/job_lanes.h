// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The lanes of a job: which tensors they have, and how much memory. Changes the lanes and the
// memory budget.

#ifndef BASIN_AGGREGATOR_CORE_JOB_LANES_H_
#define BASIN_AGGREGATOR_CORE_JOB_LANES_H_

#include <string>

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

// Returns whether a job with these settings fits the memory; if not, `why` has the numbers.
bool Fits(const JobScope& scope, const JobSettings& settings, std::string& why);

// Returns the lane, in use; nullptr if that is impossible, and the worker is refused. `begins`: the
// round that it begins, which ends for it then; 0 for other messages, which come before or after
// that one.
Lane* FindLane(Job& job, const JobScope& scope, Slot slot, LaneIndex lane, RoundNumber begins = 0);

// The runner learns the tensors of the lane from `first` on.
// The same of all lanes, to a shard that is new.
void NameAllTensors(const Job& job, const JobScope& scope, ShardId shard);
void NameTensorsFrom(const Job& job, const JobScope& scope, LaneIndex index, TensorIndex first);
void OnRegister(Job& job, const JobScope& scope, Slot slot, const Register& request);
// The worker's client has the lane, so it does not ignore messages about it.
void NoteRegistered(Job& job, const JobScope& scope, Slot slot, LaneIndex index);

// A job may use any number of names, one after another. When it has many, the workers are asked to
// let go of the call lanes that were used least recently; a lane that all workers that know it have
// let go is dropped, and with it its name.
void TrimNames(Job& job, const JobScope& scope);
// The worker has another session: what it was asked before may not have reached it.
void AskAgain(Job& job, const JobScope& scope, Slot slot);
void OnLetGo(Job& job, const JobScope& scope, Slot slot, const LetGo& let_go);
// Drops the lanes for which no answer is missing any more.
void DropNames(Job& job, const JobScope& scope);

// Reserves what the lane needs now. If that much is not free, the lane waits: its workers get no
// window, and a note names the reason.
void PlanMemory(Job& job, const JobScope& scope, Lane& lane, LaneIndex index);
// The lanes' rounds are on more shards from now on: their windows of results get what is useful for
// these, as far as it is free. Workers are told nothing, and what a lane has is not taken back.
void WidenResults(Job& job, const JobScope& scope);
// What a lane without memory waits for and what to do, as the end of a sentence.
std::string DescribeShortage(const Job& job, const JobScope& scope);
// Lanes that wait for memory try again, because some became free.
void RetryMemory(Job& job, const JobScope& scope);
void ReleaseMemory(Job& job, const JobScope& scope);
// Drops the broadcast values that the job keeps, because something else needs their memory.
void DropCached(Job& job, const JobScope& scope);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_LANES_H_
