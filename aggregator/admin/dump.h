// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The state by which the core decides, as text for a bug report: lines of "key=value". It has
// neither gradients nor anything that identifies a process to the aggregator (session tokens,
// nonces), so it shows no more than an observer may see.
//
// Thread contract: pure functions, called from the engine's loop.

#ifndef BASIN_AGGREGATOR_ADMIN_DUMP_H_
#define BASIN_AGGREGATOR_ADMIN_DUMP_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "aggregator/core/coordinator.h"

namespace basin::aggregator {

// A message has at most 4 MiB, and people do not read more.
inline constexpr size_t kMostDumpBytes = size_t{1} << 20;

// The state of one job, or of all jobs and the service when `job` is empty. `lived` is
// Coordinator::Lived.
std::string Dump(const Coordinator& core, const std::string& job, absl::Time lived);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ADMIN_DUMP_H_
