// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The running shard: everything that a configuration asks for, from its start to the signal that
// ends it.
//
// Thread contract: called from the main thread, which it keeps. Failure: a status that names the
// part that could not be started; nothing runs then. A coordinator that cannot be reached, or
// refuses the shard, is no failure: it is tried again, and /readyz says why.

#ifndef BASIN_AGGREGATOR_BASIND_SHARD_H_
#define BASIN_AGGREGATOR_BASIND_SHARD_H_

#include <string>

#include "absl/status/status.h"
#include "aggregator/config/settings.h"

namespace basin::aggregator {

// Holds bytes until SIGTERM or SIGINT. REQUIRES: BlockSignals was called, and no other thread runs.
absl::Status ServeShard(const Settings& settings, const std::string& version);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_SHARD_H_
