// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a job admits a worker: it checks the run, the process and the history of its hello, and sends
// the welcome. Changes the workers, and the run and settings of a job that is new.

#ifndef BASIN_AGGREGATOR_CORE_JOB_HELLO_H_
#define BASIN_AGGREGATOR_CORE_JOB_HELLO_H_

#include <string>

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

// Ends the session of a worker that is not admitted.
void Refuse(Job& job, const JobScope& scope, SessionId session, const WorkerId& worker,
            ErrorCode code, const std::string& text, NoteCause cause = NoteCause::kUnspecified);
// Takes a hello on a session that belongs to no worker yet. The job welcomes the worker, holds the
// hello while it recovers, or ends the session.
void OnHello(Job& job, const JobScope& scope, SessionId session, const Hello& hello);
// Refuses a worker whose history is not the job's. Returns whether it is.
bool CheckLineage(Job& job, const JobScope& scope, SessionId session, const Hello& hello);
// Returns why a worker with these ranks cannot be with those that are here, as the end of a
// sentence about it: a client that does not know of ranks would compute wrong ones. `knows`: its
// own does. A lost worker is still here in a round that counts it: the client of a worker that gets
// the verdict of this round would compute another history.
std::string WhyNotKnown(const Job& job, uint32_t ranks, bool knows, const WorkerId& except);
void Admit(Job& job, const JobScope& scope, SessionId session, const Hello& hello);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_HELLO_H_
