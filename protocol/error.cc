// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/error.h"

namespace basin {

const char* ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "OK";
    case ErrorCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case ErrorCode::kMismatch:
      return "MISMATCH";
    case ErrorCode::kRunConflict:
      return "RUN_CONFLICT";
    case ErrorCode::kSuperseded:
      return "SUPERSEDED";
    case ErrorCode::kLineageConflict:
      return "LINEAGE_CONFLICT";
    case ErrorCode::kEvicted:
      return "EVICTED";
    case ErrorCode::kStale:
      return "STALE";
    case ErrorCode::kContributionChanged:
      return "CONTRIBUTION_CHANGED";
    case ErrorCode::kDataCorrupt:
      return "DATA_CORRUPT";
    case ErrorCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case ErrorCode::kPaused:
      return "PAUSED";
    case ErrorCode::kRoundAborted:
      return "ROUND_ABORTED";
    case ErrorCode::kOutcomeUnknown:
      return "OUTCOME_UNKNOWN";
    case ErrorCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case ErrorCode::kUnavailable:
      return "UNAVAILABLE";
    case ErrorCode::kVersionMismatch:
      return "VERSION_MISMATCH";
    case ErrorCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case ErrorCode::kNotFound:
      return "NOT_FOUND";
  }
  return "UNKNOWN";
}

}  // namespace basin
