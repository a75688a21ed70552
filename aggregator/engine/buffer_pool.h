// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Buffers for results. They are used again rather than given back to the allocator, because fresh
// memory costs a page fault per 4 KiB, which is dearer than the reduction that fills it.
//
// The pool does not refuse: the core decides what may be held at once, and charges every result to
// its budget before it is computed. The pool bounds only what lies idle.
//
// Thread contract: safe from any thread; buffers may outlive the pool.

#ifndef BASIN_AGGREGATOR_ENGINE_BUFFER_POOL_H_
#define BASIN_AGGREGATOR_ENGINE_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/payload.h"

namespace basin::aggregator {

// Memory that one thread writes and then many read. Aligned for every vector unit.
class Buffer : public Payload {
 public:
  virtual char* data() = 0;
  virtual size_t size() const = 0;
};

class BufferPool {
 public:
  // Keeps at most `idle_bytes` of unused buffers.
  explicit BufferPool(uint64_t idle_bytes);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // A buffer of `size` bytes with arbitrary content. Out of memory ends the process.
  // REQUIRES: size > 0.
  std::shared_ptr<Buffer> Take(size_t size);

  uint64_t used_bytes() const;  // In use, as allocated.
  uint64_t idle_bytes() const;

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;  // Shared with the buffers that are out.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_BUFFER_POOL_H_
