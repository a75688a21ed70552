// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the workers of a job send. Most of it goes to a lane or a round; the rest changes the worker
// alone.

#ifndef BASIN_AGGREGATOR_CORE_JOB_MESSAGES_H_
#define BASIN_AGGREGATOR_CORE_JOB_MESSAGES_H_

#include <optional>
#include <vector>

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

// Takes what the worker in `slot` sent on its current session.
void OnMessage(Job& job, const JobScope& scope, Slot slot, const ToAggregator& message);
void OnFrame(Job& job, const JobScope& scope, Slot slot, const FrameReceived& frame);
void OnBlob(Job& job, const JobScope& scope, Slot slot, const BlobReceived& received);
// A message of the worker has arrived and waits.
void NoteUnread(Job& job, const JobScope& scope, Slot slot);
// A hello waits. If it is of a process whose worker is not lost, that worker is back.
void NoteUnread(Job& job, const JobScope& scope, const WaitingHello& hello);
// `slot` is absent while the job holds the session's hello.
void LoseSession(Job& job, const JobScope& scope, std::optional<Slot> slot,
                 const SessionLost& lost);

// job_waits.cc: a heartbeat reports the rounds in which the trainer waits.
void OnWaits(Job& job, const JobScope& scope, Slot slot, const std::vector<RoundWait>& waits);
// Calls that were open when the worker joined, and that it has not begun, go on without it.
void LeaveOutOfCalls(Job& job, const JobScope& scope, Slot slot);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_MESSAGES_H_
