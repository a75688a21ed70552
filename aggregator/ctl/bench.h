// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// `basinctl bench`: rounds of a job of its own, measured from where it runs. The job has a name
// that no other job has, and its workers leave it.
//
// Thread contract: the main thread, which waits for the aggregator; each worker has a thread while
// rounds run.

#ifndef BASIN_AGGREGATOR_CTL_BENCH_H_
#define BASIN_AGGREGATOR_CTL_BENCH_H_

#include "absl/status/status.h"
#include "aggregator/ctl/arguments.h"

namespace basin::aggregator {

// Failure: FAILED_PRECONDITION if the aggregator has another job, or does not show its jobs; the
// error of a worker.
absl::Status RunBench(const Arguments& arguments);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_BENCH_H_
