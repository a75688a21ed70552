// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the memory of the process is in use for, by kinds that do not overlap: together they are
// what the process has taken since it began to serve, near enough to be compared with what the
// system says (tests/integration/test_memory.py). The kinds are those of basin_buffer_bytes and of
// `basinctl limits`; docs/monitoring.md explains each.
//
// Thread contract: plain values; LookAtMemory is called from the engine's loop.

#ifndef BASIN_AGGREGATOR_TELEMETRY_MEMORY_USE_H_
#define BASIN_AGGREGATOR_TELEMETRY_MEMORY_USE_H_

#include <cstdint>
#include <vector>

#include "aggregator/engine/runner.h"

namespace basin::aggregator {

struct MemoryUse {
  const char* kind;
  uint64_t bytes;
};

// What only the loop knows.
struct LoopMemory {
  uint64_t description = 0;  // Tensors, rounds, values and hellos.
  uint64_t shared = 0;       // Results that workers on this machine map.
};

inline LoopMemory LookAtMemory(const Runner& runner) {
  LoopMemory memory;
  for (const auto& [id, job] : runner.core().jobs()) memory.description += job.description_bytes();
  memory.shared = runner.shared_bytes();
  return memory;
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_MEMORY_USE_H_
