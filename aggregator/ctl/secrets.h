// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The commands that make tokens and certificates. They need no aggregator.
//
// Thread contract: the main thread.

#ifndef BASIN_AGGREGATOR_CTL_SECRETS_H_
#define BASIN_AGGREGATOR_CTL_SECRETS_H_

#include "absl/status/status.h"
#include "aggregator/ctl/arguments.h"

namespace basin::aggregator {

absl::Status RunToken(const Arguments& arguments);
absl::Status RunDevCerts(const Arguments& arguments);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_SECRETS_H_
