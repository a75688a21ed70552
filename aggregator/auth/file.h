// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Reads the file of grants (auth.file). A file that grants nothing, or whose last line has neither
// an end nor a whole hash, is refused: it was cut off far more often than it is meant.
//
// Thread contract: a function of the file.

#ifndef BASIN_AGGREGATOR_AUTH_FILE_H_
#define BASIN_AGGREGATOR_AUTH_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "aggregator/auth/grants.h"

namespace basin::aggregator {

struct AuthFile {
  std::string text;
  Grants grants;
};

// Failure: INVALID_ARGUMENT names the option, the file, the line, and what to do.
absl::StatusOr<AuthFile> ReadAuthFile(const std::string& path);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_AUTH_FILE_H_
