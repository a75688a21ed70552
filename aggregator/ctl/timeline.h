// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// `basinctl timeline`: a trace of a job's last rounds, and traces of workers joined with it.
//
// Thread contract: the main thread, which waits for the aggregator. Failure: the status of the
// call; INVALID_ARGUMENT or FAILED_PRECONDITION for files, with their names.

#ifndef BASIN_AGGREGATOR_CTL_TIMELINE_H_
#define BASIN_AGGREGATOR_CTL_TIMELINE_H_

#include "absl/status/status.h"
#include "aggregator/ctl/arguments.h"

namespace basin::aggregator {

absl::Status RunTimeline(const Arguments& arguments);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_TIMELINE_H_
