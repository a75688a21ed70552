// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Host memory that a device copies to and from at full speed. It is taken from the system as it is
// needed, up to a limit that the pools of a worker share, and then used again.
//
// Ownership: a block belongs to its last holder, and returns to the pool with it; the pool and the
// device exist as long as a block does. Thread contract: safe from any thread. Failure: without
// memory there is no block; the caller takes ordinary memory, which is slower.

#ifndef BASIN_ACCELERATOR_TRANSFER_PINNED_POOL_H_
#define BASIN_ACCELERATOR_TRANSFER_PINNED_POOL_H_

#include <cstdint>
#include <map>
#include <memory>

#include "accelerator/device/device.h"
#include "runtime/mutex.h"

namespace basin::accelerator {

// The bytes that all pools of a worker may take.
class PinnedBudget {
 public:
  explicit PinnedBudget(uint64_t bytes) : left_(bytes) {}

  bool Take(uint64_t bytes);
  void Return(uint64_t bytes);

 private:
  Mutex mutex_;
  uint64_t left_ ABSL_GUARDED_BY(mutex_);
};

class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  PinnedPool(std::shared_ptr<Device> device, std::shared_ptr<PinnedBudget> budget)
      : device_(std::move(device)), budget_(std::move(budget)) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // A block of at least `bytes`; null if there is none.
  std::shared_ptr<char> Take(uint64_t bytes);

 private:
  // Idle blocks by size.
  using Idle = std::multimap<uint64_t, Memory>;

  std::shared_ptr<char> TakeIdle(Idle::iterator found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hands the block out.
  std::shared_ptr<char> Lend(Memory memory, uint64_t size);
  // Idle blocks that are smaller than `bytes` return to the system until there is room for it.
  bool MakeRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<PinnedBudget> budget_;
  Mutex mutex_;
  Idle idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_TRANSFER_PINNED_POOL_H_
