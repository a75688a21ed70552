// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Scripts with which shells complete the command line, derived from the table of commands.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CTL_COMPLETION_H_
#define BASIN_AGGREGATOR_CTL_COMPLETION_H_

#include "absl/status/status.h"
#include "aggregator/ctl/arguments.h"

namespace basin::aggregator {

absl::Status RunCompletion(const Arguments& arguments);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_COMPLETION_H_
