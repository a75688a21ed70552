// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The commands that show what an aggregator does.
//
// Thread contract: the main thread, which waits for the aggregator. Failure: the status of the
// call.

#ifndef BASIN_AGGREGATOR_CTL_QUERIES_H_
#define BASIN_AGGREGATOR_CTL_QUERIES_H_

#include "absl/status/status.h"
#include "aggregator/ctl/client.h"

namespace basin::aggregator {

absl::Status RunStatus(Client& client);
absl::Status RunJobs(Client& client);
absl::Status RunGoodput(Client& client);
absl::Status RunLimits(Client& client);
absl::Status RunMembers(Client& client);
absl::Status RunRounds(Client& client);
absl::Status RunShards(Client& client);
absl::Status RunEvents(Client& client);
absl::Status RunDump(Client& client);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_QUERIES_H_
