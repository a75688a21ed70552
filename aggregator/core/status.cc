// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/status.h"

namespace basin::aggregator {

JobStatus StatusOf(const Job& job, bool draining) {
  switch (job.state()) {
    case JobState::kRecovering:
      return JobStatus::kRecovering;
    case JobState::kHalted:
      return JobStatus::kHalted;
    case JobState::kForming:
      return job.over() ? JobStatus::kFinished : JobStatus::kStarting;
    case JobState::kRunning:
      break;
  }
  if (job.suspended()) return JobStatus::kSuspended;
  if (job.Paused()) return JobStatus::kPaused;
  return draining ? JobStatus::kDraining : JobStatus::kRunning;
}

const char* JobStatusName(JobStatus status) {
  switch (status) {
    case JobStatus::kStarting:
      return "starting";
    case JobStatus::kRunning:
      return "running";
    case JobStatus::kPaused:
      return "paused";
    case JobStatus::kSuspended:
      return "suspended";
    case JobStatus::kDraining:
      return "draining";
    case JobStatus::kRecovering:
      return "recovering";
    case JobStatus::kHalted:
      return "halted";
    case JobStatus::kFinished:
      return "finished";
  }
  return "unknown";
}

}  // namespace basin::aggregator
