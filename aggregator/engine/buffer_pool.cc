// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/buffer_pool.h"

#include <cstdlib>
#include <map>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/mutex.h"

namespace basin::aggregator {
namespace {

constexpr std::align_val_t kAlignment{64};
// Not a page: a lane may have tens of thousands of tensors of one element.
constexpr size_t kSmallest = 256;

// Sizes come in powers of two, so that a buffer fits the next user. Full frames of one tensor do
// as well, and other frames waste at most as much as they need.
size_t Capacity(size_t size) {
  size_t capacity = kSmallest;
  while (capacity < size) capacity *= 2;
  return capacity;
}

struct Memory {
  char* data = nullptr;
  size_t capacity = 0;
};

void Free(const Memory& memory) { ::operator delete(memory.data, kAlignment); }

}  // namespace

struct BufferPool::Shelf {
  explicit Shelf(uint64_t idle_bytes) : limit(idle_bytes) {}
  ~Shelf() {
    for (auto& [capacity, memories] : idle) {
      for (const Memory& memory : memories) Free(memory);
    }
  }
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  Memory Take(size_t capacity) {
    {
      MutexLock lock(mutex);
      used += capacity;
      const auto found = idle.find(capacity);
      if (found != idle.end() && !found->second.empty()) {
        const Memory memory = found->second.back();
        found->second.pop_back();
        idle_bytes -= capacity;
        return memory;
      }
    }
    return {static_cast<char*>(::operator new(capacity, kAlignment)), capacity};
  }

  void Return(const Memory& memory) {
    {
      MutexLock lock(mutex);
      used -= memory.capacity;
      if (idle_bytes + memory.capacity <= limit) {
        idle[memory.capacity].push_back(memory);
        idle_bytes += memory.capacity;
        return;
      }
    }
    Free(memory);
  }

  const uint64_t limit;
  Mutex mutex;
  uint64_t used ABSL_GUARDED_BY(mutex) = 0;
  uint64_t idle_bytes ABSL_GUARDED_BY(mutex) = 0;
  std::map<size_t, std::vector<Memory>> idle ABSL_GUARDED_BY(mutex);
};

namespace {

// `Shelf` is private to the pool, so it is passed as a type.
template <typename Shelf>
class PooledBuffer : public Buffer {
 public:
  PooledBuffer(std::shared_ptr<Shelf> shelf, size_t size)
      : shelf_(std::move(shelf)),
        memory_(shelf_->Take(Capacity(size))),
        size_(size),
        piece_(memory_.data, size) {}
  ~PooledBuffer() override { shelf_->Return(memory_); }

  absl::Span<const std::string_view> pieces() const override { return {&piece_, 1}; }
  char* data() override { return memory_.data; }
  size_t size() const override { return size_; }

 private:
  const std::shared_ptr<Shelf> shelf_;
  const Memory memory_;
  const size_t size_;
  const std::string_view piece_;
};

}  // namespace

BufferPool::BufferPool(uint64_t idle_bytes) : shelf_(std::make_shared<Shelf>(idle_bytes)) {}

BufferPool::~BufferPool() = default;

std::shared_ptr<Buffer> BufferPool::Take(size_t size) {
  return std::make_shared<PooledBuffer<Shelf>>(shelf_, size);
}

uint64_t BufferPool::used_bytes() const {
  MutexLock lock(shelf_->mutex);
  return shelf_->used;
}

uint64_t BufferPool::idle_bytes() const {
  MutexLock lock(shelf_->mutex);
  return shelf_->idle_bytes;
}

}  // namespace basin::aggregator
