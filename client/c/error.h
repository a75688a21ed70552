// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The errors of basin.h, made of statuses.
//
// Thread contract: plain values.

#ifndef BASIN_CLIENT_C_ERROR_H_
#define BASIN_CLIENT_C_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "client/c/include/basin/basin.h"
#include "protocol/error.h"

struct basin_error {
  basin_code code = BASIN_OK;
  std::string message;
  basin_abort_cause abort_cause = BASIN_ABORT_OTHER;
};

namespace basin::c {

basin_error ToError(const Error& error);

// Returns the code; puts an error into `error`, unless that is null or the status OK.
basin_code Return(const absl::Status& status, basin_error** error);
basin_code Return(const Error& failure, basin_error** error);

}  // namespace basin::c

#endif  // BASIN_CLIENT_C_ERROR_H_
