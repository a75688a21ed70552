// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "absl/strings/str_cat.h"
#include "client/c/options.h"
#include "runtime/standard_streams.h"

namespace basin::c {

void LogToStderr(void*, basin_log_level level, const char* message) {
  WriteToStderr(
      absl::StrCat("basin: ", kLogLevels[static_cast<size_t>(level)], ": ", message, "\n"));
}

}  // namespace basin::c
