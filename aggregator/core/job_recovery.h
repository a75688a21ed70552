// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a job recovers: it holds hellos until they allow a decision (recovery.h), and then rebuilds
// everything from what the workers remember.

#ifndef BASIN_AGGREGATOR_CORE_JOB_RECOVERY_H_
#define BASIN_AGGREGATOR_CORE_JOB_RECOVERY_H_

#include <string>

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

// For a halted job: what is missing, and what an operator can do.
std::string HowToEndHalt(const Job& job);
// Forgets what this aggregator believed and waits for the workers that remember. It ends the
// sessions, so that every worker sends a hello with its history.
void EnterRecovery(Job& job, const JobScope& scope, const std::string& reason);
// Forgets everything except the name, the run, its settings and the generation, which never goes
// back.
void Forget(Job& job, const JobScope& scope);
// Recovers again if lost workers take with them what the last recovery relied on.
//
// Only a worker that has staged an adopted value, or received its verdict, knows how the round
// ended. After the last of them is lost, the job goes on only if an operator or the policy decides
// so. A counted worker that has not promised may have gone back to an older aggregator and have
// staged a value there that this one does not know.
void RecoverOnceMore(Job& job, const JobScope& scope);
// The worker knows the term of this aggregator. Once enough workers do, the recovery stands, and
// the rounds prepare the values that it adopted.
void OnPromise(Job& job, const JobScope& scope, const WorkerId& worker);

// Holds the hello of a worker, and decides if that was the last one needed.
void HoldHello(Job& job, const JobScope& scope, SessionId session, const Hello& hello);
// An operator continues with the workers that are back.
void Take(Job& job, const JobScope& scope, const RecoverJob& recover);
void TryRecover(Job& job, const JobScope& scope);
// The new generation is on disk, or need not be, so the job welcomes the workers.
void FinishRecovery(Job& job, const JobScope& scope);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_RECOVERY_H_
