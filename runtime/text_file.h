// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Reads a small file whole: a certificate, a key, tokens. A device, a pipe or a folder is refused,
// because it would read as an empty file.
//
// Thread contract: a function of the file.

#ifndef BASIN_RUNTIME_TEXT_FILE_H_
#define BASIN_RUNTIME_TEXT_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace basin {

// Failure: INVALID_ARGUMENT with a reason without the path, "it cannot be read (Permission
// denied)"; also for what is no regular file, and for a file of more than 4 MiB.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace basin

#endif  // BASIN_RUNTIME_TEXT_FILE_H_
