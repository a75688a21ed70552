// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The commands of `basind`, each a function of its arguments. Results go to standard output and
// errors to standard error; `serve` writes its log to standard output instead.
//
// Thread contract: called from the main thread.
// Failure: an exit code, after a message that names what to do.

#ifndef BASIN_AGGREGATOR_BASIND_COMMANDS_H_
#define BASIN_AGGREGATOR_BASIND_COMMANDS_H_

#include <string>
#include <vector>

#include "aggregator/basind/exit_code.h"

namespace basin::aggregator {

// The program's own name left out; `environment` as "NAME=value".
ExitCode RunBasind(const std::string& version, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_COMMANDS_H_
