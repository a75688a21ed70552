// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/transfer/pinned_pool.h"

#include <utility>

namespace basin::accelerator {
namespace {

constexpr uint64_t kLeastBlock = uint64_t{4} << 10;

// Rounds up to one of four sizes between powers of two, so that a block also fits what is a little
// larger the next time.
uint64_t BlockSizeOf(uint64_t bytes) {
  uint64_t size = kLeastBlock;
  while (size * 2 <= bytes) size *= 2;
  const uint64_t step = size / 4;
  return bytes <= size ? size : (bytes + step - 1) / step * step;
}

}  // namespace

bool PinnedBudget::Take(uint64_t bytes) {
  MutexLock lock(mutex_);
  if (left_ < bytes) return false;
  left_ -= bytes;
  return true;
}

void PinnedBudget::Return(uint64_t bytes) {
  MutexLock lock(mutex_);
  left_ += bytes;
}

PinnedPool::~PinnedPool() {
  MutexLock lock(mutex_);
  for (const auto& [size, memory] : idle_) budget_->Return(size);
}

bool PinnedPool::MakeRoom(uint64_t bytes) {
  while (!budget_->Take(bytes)) {
    if (idle_.empty() || idle_.begin()->first >= bytes) return false;
    budget_->Return(idle_.begin()->first);
    idle_.erase(idle_.begin());
  }
  return true;
}

std::shared_ptr<char> PinnedPool::TakeIdle(Idle::iterator found) {
  const uint64_t size = found->first;
  Memory memory = std::move(found->second);
  idle_.erase(found);
  return Lend(std::move(memory), size);
}

std::shared_ptr<char> PinnedPool::Take(uint64_t bytes) {
  const uint64_t size = BlockSizeOf(bytes);
  MutexLock lock(mutex_);
  // A block of twice the size is better kept for what needs it.
  auto found = idle_.lower_bound(size);
  if (found != idle_.end() && found->first < 2 * size) return TakeIdle(found);
  if (MakeRoom(size)) {
    auto memory = device_->AllocatePinned(size);
    if (memory.ok()) return Lend(std::move(memory).value(), size);
    budget_->Return(size);
  }
  found = idle_.lower_bound(size);
  return found == idle_.end() ? nullptr : TakeIdle(found);
}

std::shared_ptr<char> PinnedPool::Lend(Memory memory, uint64_t size) {
  char* const data = static_cast<char*>(memory.get());
  const auto block = std::make_shared<Memory>(std::move(memory));
  return {data, [pool = shared_from_this(), block, size](char*) {
            MutexLock lock(pool->mutex_);
            pool->idle_.emplace(size, std::move(*block));
          }};
}

}  // namespace basin::accelerator
