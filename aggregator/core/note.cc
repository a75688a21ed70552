// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/note.h"

namespace basin::aggregator {

const char* NoteKindName(NoteKind kind) {
  switch (kind) {
    case NoteKind::kJobAdmitted:
      return "job_admitted";
    case NoteKind::kJobRefused:
      return "job_refused";
    case NoteKind::kAddressRefused:
      return "address_refused";
    case NoteKind::kJobEnded:
      return "job_ended";
    case NoteKind::kJobSet:
      return "job_set";
    case NoteKind::kWorkerAdmitted:
      return "worker_admitted";
    case NoteKind::kWorkerReconnected:
      return "worker_reconnected";
    case NoteKind::kWorkerRefused:
      return "worker_refused";
    case NoteKind::kLineageConflict:
      return "lineage_conflict";
    case NoteKind::kWorkerSuperseded:
      return "worker_superseded";
    case NoteKind::kWorkerReady:
      return "worker_ready";
    case NoteKind::kWorkerSpare:
      return "worker_spare";
    case NoteKind::kWorkerDisconnected:
      return "worker_disconnected";
    case NoteKind::kWorkerLost:
      return "worker_lost";
    case NoteKind::kWorkerLeft:
      return "worker_left";
    case NoteKind::kWorkerFinished:
      return "worker_finished";
    case NoteKind::kWorkerBusy:
      return "worker_busy";
    case NoteKind::kWorkerLate:
      return "worker_late";
    case NoteKind::kGeneration:
      return "generation";
    case NoteKind::kRoundOpened:
      return "round_opened";
    case NoteKind::kAttemptRestarted:
      return "attempt_restarted";
    case NoteKind::kRoundPrepared:
      return "round_prepared";
    case NoteKind::kRoundCommitted:
      return "round_committed";
    case NoteKind::kRoundAborted:
      return "round_aborted";
    case NoteKind::kContributionWithdrawn:
      return "contribution_withdrawn";
    case NoteKind::kContributionCarried:
      return "contribution_carried";
    case NoteKind::kContributionRejected:
      return "contribution_rejected";
    case NoteKind::kContributionDropped:
      return "contribution_dropped";
    case NoteKind::kContributionUnusual:
      return "contribution_unusual";
    case NoteKind::kFrameDuplicate:
      return "frame_duplicate";
    case NoteKind::kFrameStale:
      return "frame_stale";
    case NoteKind::kFrameRefused:
      return "frame_refused";
    case NoteKind::kPullMode:
      return "pull_mode";
    case NoteKind::kPaused:
      return "paused";
    case NoteKind::kResumed:
      return "resumed";
    case NoteKind::kRecovering:
      return "recovering";
    case NoteKind::kRecovered:
      return "recovered";
    case NoteKind::kHalted:
      return "halted";
    case NoteKind::kSteppedDown:
      return "stepped_down";
    case NoteKind::kStateFileFailed:
      return "state_file_failed";
    case NoteKind::kLaneWaitsForMemory:
      return "lane_waits_for_memory";
    case NoteKind::kValueFailed:
      return "value_failed";
    case NoteKind::kStalled:
      return "stalled";
    case NoteKind::kNewLineage:
      return "new_lineage";
    case NoteKind::kDraining:
      return "draining";
    case NoteKind::kEpochBegun:
      return "epoch_begun";
    case NoteKind::kEpochEnded:
      return "epoch_ended";
    case NoteKind::kLeaseRefused:
      return "lease_refused";
    case NoteKind::kSamplesReturned:
      return "samples_returned";
    case NoteKind::kDescriptorsShort:
      return "descriptors_short";
    case NoteKind::kDescriptorsFree:
      return "descriptors_free";
    case NoteKind::kReduceDeviceFailed:
      return "reduce_device_failed";
  }
  return "unknown";
}

}  // namespace basin::aggregator
