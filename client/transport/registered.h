// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Memory of a trainer from which an aggregator on the same machine reads contributions without a
// copy, because it is shared with it.
//
// A contribution that lies in it is read where it lies until its round has ended. So its owner must
// not change it before, as with any push that copies nothing. If it does, it changes only its own
// contribution: all workers get the same result, whose digest is that of the bytes that were
// reduced.
//
// Ownership: memory that was freed is unmapped when no round refers to it any more. Thread
// contract: safe from any thread. Failure: RESOURCE_EXHAUSTED without memory.

#ifndef BASIN_CLIENT_TRANSPORT_REGISTERED_H_
#define BASIN_CLIENT_TRANSPORT_REGISTERED_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/arena.h"
#include "runtime/mutex.h"
#include "runtime/shared_memory/segment.h"

namespace basin::client {

class Registered {
 public:
  // Zeros, aligned to a page.
  absl::StatusOr<void*> Allocate(uint64_t bytes);
  // INVALID_ARGUMENT if Allocate has not returned it, or it was freed before.
  absl::Status Free(const void* memory);
  // Whether something was ever allocated.
  bool any() const { return any_.load(std::memory_order_relaxed); }
  // Where these bytes lie; nothing if they are not in memory of this kind, or not aligned.
  std::optional<ArenaPlace> Find(const void* data, uint64_t bytes, uint64_t alignment) const;

 private:
  std::atomic<bool> any_{false};
  mutable Mutex mutex_;
  std::map<const char*, std::shared_ptr<Segment>> segments_ ABSL_GUARDED_BY(mutex_);  // By begin.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_REGISTERED_H_
