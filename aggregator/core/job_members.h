// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// When the members of a job change: genesis, joins, losses, pauses and new lineages. Changes the
// workers and the generations, and rounds with them.

#ifndef BASIN_AGGREGATOR_CORE_JOB_MEMBERS_H_
#define BASIN_AGGREGATOR_CORE_JOB_MEMBERS_H_

#include <optional>
#include <string>

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

void OnReady(Job& job, const JobScope& scope, Slot slot, const Ready& ready);

// Draws the consequences of what any other function has changed, always in one order: a recovery
// that has lost what it relied on, a lineage that has ended or lacks a donor, the members, the
// pause, and rounds that can go on. The coordinator calls it after each of them.
void Reconcile(Job& job, const JobScope& scope);

// Changes the members outside a verdict.
void ApplyChange(Job& job, const JobScope& scope, const Membership& next,
                 const std::optional<WorkerId>& donor);
// Ready workers that have waited long enough for the others of their groups.
void StopWaitingForGroups(Job& job, const JobScope& scope);
// Makes `next` the membership and sends it to the workers that do not receive it with a verdict.
void Activate(Job& job, const JobScope& scope, const Membership& next,
              const std::optional<WorkerId>& donor, bool to_members);
// Removes a lost worker from every open round and from the members in one step.
void Lose(Job& job, const JobScope& scope, Slot slot, NoteKind kind, const std::string& reason,
          const Error& error);

// Removes a worker for a reason that is the end of a sentence about it. It may rejoin.
void Evict(Job& job, const JobScope& scope, Slot slot, const std::string& reason);

// ---- commands
void Take(Job& job, const JobScope& scope, const EvictWorker& evict);
void Take(Job& job, const JobScope& scope, const WorkerExited& exited);
void Take(Job& job, const JobScope& scope, const DrainWorker& drain);
inline void Take(Job& job, const JobScope&, const SuspendJob&) { job.Suspend(true); }
inline void Take(Job& job, const JobScope&, const ResumeJob&) { job.Suspend(false); }
void SendDraining(Job& job, const JobScope& scope);
void EndAllSessions(Job& job, const JobScope& scope, const Error& error);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_MEMBERS_H_
