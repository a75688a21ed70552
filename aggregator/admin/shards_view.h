// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The processes that hold bytes, as basin/v1/admin.proto shows them.
//
// Thread contract: pure functions; ShardsOf is called from the engine's loop.

#ifndef BASIN_AGGREGATOR_ADMIN_SHARDS_VIEW_H_
#define BASIN_AGGREGATOR_ADMIN_SHARDS_VIEW_H_

#include "absl/time/time.h"
#include "aggregator/engine/runner.h"
#include "basin/v1/admin.pb.h"

namespace basin::aggregator {

// Shows the parts of all jobs. The caller adds how long the aggregator itself is up.
v1::ListShardsResponse ShardsOf(const Runner& runner, absl::Time now);

// Marks the shards whose reductions take at least twice as long as the median of the others', and
// 5 ms longer.
void MarkSlow(v1::ListShardsResponse& shards);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ADMIN_SHARDS_VIEW_H_
