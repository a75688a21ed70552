// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The commands that change what an aggregator does.
//
// Thread contract: the main thread, which waits for the aggregator. Failure: the status of the
// call.

#ifndef BASIN_AGGREGATOR_CTL_CHANGES_H_
#define BASIN_AGGREGATOR_CTL_CHANGES_H_

#include "absl/status/status.h"
#include "aggregator/ctl/client.h"

namespace basin::aggregator {

absl::Status RunDrain(Client& client);
absl::Status RunStepDown(Client& client);
absl::Status RunEvict(Client& client);
absl::Status RunReportExit(Client& client);
absl::Status RunPause(Client& client);
absl::Status RunResume(Client& client);
absl::Status RunRecover(Client& client);
// "job set JOB".
absl::Status RunJob(Client& client);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_CHANGES_H_
