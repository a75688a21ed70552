// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/memory_use.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace basin::aggregator {
namespace {

// The memory of this process that no file and no other process has, as the system counts it.
uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  uint64_t shared = 0;
  file >> size >> resident >> shared;
  return (resident - std::min(resident, shared)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Freed memory that the allocator keeps for what comes next; see KeepMemoryOfMessages in serve.cc.
// What was freed without ever having been written is no memory, and the allocator does not know it.
uint64_t FreedBytes() {
  const auto heap = mallinfo2();
  const uint64_t used = heap.uordblks + heap.hblkhd;
  const uint64_t resident = ResidentBytes();
  return std::min<uint64_t>(heap.fordblks, resident - std::min(resident, used));
}

}  // namespace

std::vector<MemoryUse> MemoryUseOf(const LoopMemory& loop, const Engine& engine,
                                   const GrpcServer& server, const EventHistory& events) {
  const TransportCounters& counters = server.counters();
  return {
      {"received", *counters.frame_memory},
      {"result", engine.pool().used_bytes()},
      {"shared", loop.shared},
      {"mapped", server.mapped_bytes()},
      {"description", loop.description},
      {"inbox", counters.inbox_bytes + server.assembling_bytes()},
      {"outbox", *counters.message_memory + server.layout_bytes()},
      {"event", events.bytes()},
      {"idle", engine.pool().idle_bytes() + FreedBytes()},
  };
}

}  // namespace basin::aggregator
