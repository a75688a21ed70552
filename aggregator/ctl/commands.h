// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The commands of `basinctl`. Answers go to standard output, errors to standard error.
//
// Thread contract: called from the main thread, which waits for the aggregator.
// Failure: an exit code, after a message that names what to do.

#ifndef BASIN_AGGREGATOR_CTL_COMMANDS_H_
#define BASIN_AGGREGATOR_CTL_COMMANDS_H_

#include <string>
#include <vector>

#include "aggregator/basind/exit_code.h"
#include "aggregator/ctl/arguments.h"

namespace basin::aggregator {

// The program's own name left out.
ExitCode RunBasinctl(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_COMMANDS_H_
