// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the memory of basind is in use for; see aggregator/telemetry/memory_use.h.
//
// Thread contract: from any thread but the engine's loop, which it would hold up.

#ifndef BASIN_AGGREGATOR_BASIND_MEMORY_USE_H_
#define BASIN_AGGREGATOR_BASIND_MEMORY_USE_H_

#include <vector>

#include "aggregator/engine/engine.h"
#include "aggregator/telemetry/events.h"
#include "aggregator/telemetry/memory_use.h"
#include "aggregator/transport/server.h"

namespace basin::aggregator {

std::vector<MemoryUse> MemoryUseOf(const LoopMemory& loop, const Engine& engine,
                                   const GrpcServer& server, const EventHistory& events);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_MEMORY_USE_H_
