// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "client/c/options.h"

namespace basin::c {

void LogToStderr(void*, basin_log_level level, const char* message) {
  std::fprintf(stderr, "basin: %s: %s\n", kLogLevels[static_cast<size_t>(level)], message);
}

}  // namespace basin::c
