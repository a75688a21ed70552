// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the core reports to people: each note becomes a counter, an event and a line of the log.
//
// Thread contract: plain values.

#ifndef BASIN_AGGREGATOR_CORE_NOTE_H_
#define BASIN_AGGREGATOR_CORE_NOTE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "protocol/messages.h"

namespace basin::aggregator {

// What deserves a counter, an event and a log line. Each kind has a counter of its own.
enum class NoteKind : uint8_t {
  kJobAdmitted,
  kJobRefused,
  kAddressRefused,
  kJobEnded,
  kJobSet,
  kWorkerAdmitted,
  kWorkerReconnected,
  kWorkerRefused,
  kLineageConflict,
  kWorkerSuperseded,
  kWorkerReady,
  kWorkerSpare,
  kWorkerDisconnected,
  kWorkerLost,
  kWorkerLeft,
  kWorkerFinished,
  kWorkerBusy,
  kWorkerLate,
  kGeneration,
  kRoundOpened,
  kAttemptRestarted,
  kRoundPrepared,
  kRoundCommitted,
  kRoundAborted,
  kContributionWithdrawn,
  kContributionCarried,
  kContributionRejected,
  kContributionDropped,
  kContributionLate,
  kContributionUnusual,
  kFrameDuplicate,
  kFrameStale,
  kFrameRefused,
  kPullMode,
  kPaused,
  kResumed,
  kRecovering,
  kRecovered,
  kHalted,
  kSteppedDown,
  kStateFileFailed,
  kLaneWaitsForMemory,
  kValueFailed,
  kStalled,
  kNewLineage,
  kDraining,
  kEpochBegun,
  kEpochEnded,
  kLeaseRefused,
  kSamplesReturned,
  kLatePolicyIdle,
  kContributionDeferred,
  kShardUp,
  kShardLost,
  kShardDraining,
  kShardDrained,
  kShardTooSmall,
  kShardUnreachable,
  // The core does not note these: engine and basind report them about their process.
  kDescriptorsShort,
  kDescriptorsFree,
  kReduceDeviceFailed,
};

const char* NoteKindName(NoteKind kind);

// Why something happened, where its kind leaves that open and others depend on it. The text has it
// in words.
enum class NoteCause : uint8_t {
  kUnspecified,
  // kWorkerReady: the others of its group have not come in time.
  kJoinsAlone,
  // kWorkerRefused: it joined and was lost again and again.
  kFruitlessJoins,
  // kContributionWithdrawn: the worker joined while the call was open, but waits for another one.
  kLeftOut,
  // kContributionDropped: the contribution was complete, but has to be pushed again, and its worker
  // has left.
  kNeededAgain,
  // kRecovered: ...
  kEveryMemberIsBack,
  kMajorityIsBack,
  kGoesOnWithoutMissing,  // By an operator, or policy `any`.
  kNewRun,                // No worker remembers the run, or nothing has happened in it.
};

// The reason of a decision. Notes are changes, never ticks.
struct Note {
  NoteKind kind = NoteKind::kJobAdmitted;
  JobName job;
  WorkerId worker;   // Empty when it is about no single worker.
  std::string lane;  // Empty when it is about no lane.
  RoundNumber round = 0;
  std::string text;
  // With kRoundPrepared: the worker that contributed last, and how long after the one before it.
  WorkerId waited_for = {};
  absl::Duration waited = absl::ZeroDuration();
  // With kRoundCommitted and kRoundAborted: how many contributions were counted, and how often a
  // member had to wait for room.
  uint64_t contributions = 0;
  uint64_t credit_stalls = 0;
  // With kGeneration: the members from now on.
  std::optional<Membership> membership = std::nullopt;
  NoteCause cause = NoteCause::kUnspecified;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_NOTE_H_
