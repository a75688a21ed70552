// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The exit codes of the programs; docs/operations.md has the table. Scripts depend on them.
//
// Thread contract: constants.

#ifndef BASIN_AGGREGATOR_BASIND_EXIT_CODE_H_
#define BASIN_AGGREGATOR_BASIND_EXIT_CODE_H_

#include "absl/status/status.h"

namespace basin::aggregator {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,  // Any other failure.
  kExitUsage = 2,   // The command line or the configuration is wrong.
  kExitUnreachable = 3,
  kExitDenied = 4,
  kExitNotFound = 5,
  kExitPrecondition = 6,
  kExitTimeout = 7,
};

inline ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitUnreachable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitDenied;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kFailedPrecondition:
      return kExitPrecondition;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitTimeout;
    default:
      return kExitFailed;
  }
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_EXIT_CODE_H_
