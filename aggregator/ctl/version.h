// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// `basinctl version`.
//
// Thread contract: the main thread.

#ifndef BASIN_AGGREGATOR_CTL_VERSION_H_
#define BASIN_AGGREGATOR_CTL_VERSION_H_

#include "absl/status/status.h"
#include "aggregator/ctl/arguments.h"

namespace basin::aggregator {

absl::Status RunVersion(const Arguments& arguments);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_VERSION_H_
