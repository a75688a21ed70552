// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// `basinctl top`: the rounds of all jobs, again and again.
//
// Thread contract: the main thread, which waits for the aggregator. Failure: the status of a call.

#ifndef BASIN_AGGREGATOR_CTL_TOP_H_
#define BASIN_AGGREGATOR_CTL_TOP_H_

#include "absl/status/status.h"
#include "aggregator/ctl/client.h"

namespace basin::aggregator {

absl::Status RunTop(Client& client);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_TOP_H_
