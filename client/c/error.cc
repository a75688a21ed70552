// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/c/error.h"

#include <sysexits.h>

#include "proto/wire/status_detail.h"

namespace basin::c {

// The codes are the same numbers.
static_assert(static_cast<int>(ErrorCode::kMismatch) == BASIN_MISMATCH);
static_assert(static_cast<int>(ErrorCode::kOutcomeUnknown) == BASIN_OUTCOME_UNKNOWN);
static_assert(static_cast<int>(ErrorCode::kNotFound) == BASIN_NOT_FOUND);
static_assert(static_cast<int>(AbortCause::kNoContributor) == BASIN_ABORT_NO_CONTRIBUTOR);
static_assert(static_cast<int>(AbortCause::kReduction) == BASIN_ABORT_REDUCTION);
static_assert(static_cast<int>(AbortCause::kStepAgain) == BASIN_ABORT_STEP_AGAIN);

basin_error ToError(const Error& error) {
  return {static_cast<basin_code>(error.code), error.text,
          static_cast<basin_abort_cause>(error.abort_cause)};
}

basin_code Return(const Error& failure, basin_error** error) {
  if (failure.code != ErrorCode::kOk && error != nullptr)
    *error = new basin_error(ToError(failure));
  return static_cast<basin_code>(failure.code);
}

basin_code Return(const absl::Status& status, basin_error** error) {
  if (status.ok()) return BASIN_OK;
  return Return(wire::ToError(status), error);
}

}  // namespace basin::c

extern "C" {

const char* basin_code_name(basin_code code) {
  if (code < BASIN_OK || code > BASIN_NOT_FOUND) return "UNKNOWN";
  return basin::ErrorCodeName(static_cast<basin::ErrorCode>(code));
}

int basin_exit_code(basin_code code) {
  switch (code) {
    case BASIN_OK:
      return 0;
    case BASIN_LINEAGE_CONFLICT:
      return EX_TEMPFAIL;
    case BASIN_INVALID_ARGUMENT:
    case BASIN_MISMATCH:
    case BASIN_VERSION_MISMATCH:
      return EX_CONFIG;
    default:
      return 1;
  }
}

basin_code basin_error_code(const basin_error* error) {
  return error == nullptr ? BASIN_OK : error->code;
}

const char* basin_error_message(const basin_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}

int basin_error_is_fatal(const basin_error* error) {
  return basin::IsFatal(static_cast<basin::ErrorCode>(basin_error_code(error))) ? 1 : 0;
}

int basin_error_restart_helps(const basin_error* error) {
  // Another process of this worker begins without the history that is not the job's.
  return basin_error_code(error) == BASIN_LINEAGE_CONFLICT ? 1 : 0;
}

basin_abort_cause basin_error_abort_cause(const basin_error* error) {
  return error == nullptr ? BASIN_ABORT_OTHER : error->abort_cause;
}

void basin_error_free(basin_error* error) { delete error; }

}  // extern "C"
