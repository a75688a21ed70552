// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// An event loop that any thread may hold: threads post what happened, and the one that holds the
// loop handles it.
//
// A small round is mostly wake-ups. So while the loop has nothing to do, a thread that can afford
// it holds the loop itself, and no thread is woken. The loop's own thread handles what is left, and
// what becomes due at a deadline.
//
// Thread contract: any thread may call the functions of the first part; the others are for the
// thread that holds the loop, or for the loop's own, as marked. Start and Stop: one thread. What is
// posted before Start or after Stop is dropped. Failure: none.

#ifndef BASIN_RUNTIME_EVENT_LOOP_H_
#define BASIN_RUNTIME_EVENT_LOOP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"

namespace basin {

template <typename Item>
class EventLoop {
 public:
  enum class Posting : uint8_t {
    kStopped,  // The item was dropped.
    kPosted,   // The holder, or the loop's thread, will take it.
    kHeld,     // The caller holds the loop, handles the item, and calls LetGo.
  };
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

  // REQUIRES: the clock outlives the loop's run.
  explicit EventLoop(Clock& clock) : clock_(clock) {}
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void Start() {
    MutexLock lock(mutex_);
    running_ = true;
  }

  // Joins the loop's thread, waits until nobody holds the loop, and returns what was not taken.
  // Idempotent. REQUIRES: the caller does not hold the loop.
  std::vector<Item> Stop(std::thread& thread) {
    {
      MutexLock lock(mutex_);
      running_ = false;
      changed_.NotifyAll();
    }
    if (thread.joinable()) thread.join();
    MutexLock lock(mutex_);
    while (holder_ != std::thread::id()) changed_.Wait(mutex_);
    return std::exchange(posted_, {});
  }

  // ---- any thread

  // Waits while `most` items have been posted and not taken. Returns whether it was posted.
  bool Post(Item item, size_t most = kNoLimit) {
    bool idle;
    {
      MutexLock lock(mutex_);
      ++waiting_for_room_;
      while (running_ && posted_.size() >= most) changed_.Wait(mutex_);
      --waiting_for_room_;
      if (!running_) return false;
      // The thread that holds the loop looks again before it lets go.
      idle = posted_.empty() && holder_ == std::thread::id();
      posted_.push_back(std::move(item));
      arrived_.store(true, std::memory_order_relaxed);
    }
    // Outside of the lock, because the loop would otherwise wake up only to wait for it.
    if (idle) changed_.NotifyAll();
    return true;
  }

  // Holds the loop for the item if it has nothing to do, and posts the item otherwise. `alone`: the
  // caller will handle this item only. REQUIRES: the caller holds no lock.
  Posting PostOrHold(Item& item, bool alone = false, size_t most = kNoLimit) {
    {
      MutexLock lock(mutex_);
      if (!running_) return Posting::kStopped;
      if (holder_ == std::thread::id() && posted_.empty() && !left_) {
        holder_ = std::this_thread::get_id();
        alone_ = alone;
        return Posting::kHeld;
      }
    }
    return Post(std::move(item), most) ? Posting::kPosted : Posting::kStopped;
  }

  // Whether the calling thread holds the loop.
  bool Holds() const {
    MutexLock lock(mutex_);
    return holder_ == std::this_thread::get_id();
  }
  // Whether it does for one item alone.
  bool HoldsAlone() const {
    MutexLock lock(mutex_);
    return alone_ && holder_ == std::this_thread::get_id();
  }

  // Calls `look` with the item that was posted first, if there is one. It must not block.
  template <typename Look>
  void Peek(const Look& look) const {
    MutexLock lock(mutex_);
    if (!posted_.empty()) look(posted_.front());
  }

  // ---- for the thread that holds the loop

  // Whether anything was posted since the last Take. Costs no lock.
  bool arrived() const { return arrived_.load(std::memory_order_relaxed); }

  // Appends what was posted to `items`; nothing when the loop was stopped.
  void Take(std::vector<Item>& items) {
    MutexLock lock(mutex_);
    if (running_) TakeLocked(items);
  }

  // `left`: some of what was taken still waits. Wakes the loop's thread if it has something to do.
  void LetGo(bool left, absl::Time next_deadline) {
    MutexLock lock(mutex_);
    holder_ = std::thread::id();
    alone_ = false;
    left_ = left;
    const bool wake = !running_ || left_ || !posted_.empty() || wakes_ == absl::InfinitePast() ||
                      next_deadline < wakes_;
    if (wake) changed_.NotifyAll();
  }

  // ---- for the loop's thread

  // Waits until there is something to do, holds the loop, and appends what was posted to `items`.
  // False: the loop was stopped.
  template <typename NextDeadline>
  bool AwaitWork(const NextDeadline& next_deadline, std::vector<Item>& items) {
    MutexLock lock(mutex_);
    while (running_) {
      if (holder_ != std::thread::id()) {
        wakes_ = absl::InfinitePast();
        changed_.Wait(mutex_);
        continue;
      }
      wakes_ = next_deadline();
      if (left_ || !posted_.empty() || clock_.Now() >= wakes_) break;
      clock_.Wait(changed_, mutex_, wakes_);
    }
    if (!running_) return false;
    holder_ = std::this_thread::get_id();
    TakeLocked(items);
    return true;
  }

 private:
  void TakeLocked(std::vector<Item>& items) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    arrived_.store(false, std::memory_order_relaxed);
    if (items.empty()) {
      items.swap(posted_);
    } else {
      for (Item& item : posted_) items.push_back(std::move(item));
      posted_.clear();
    }
    if (waiting_for_room_ > 0) changed_.NotifyAll();
  }

  Clock& clock_;
  std::atomic<bool> arrived_{false};
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<Item> posted_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_for_room_ ABSL_GUARDED_BY(mutex_) = 0;  // Threads.
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread::id holder_ ABSL_GUARDED_BY(mutex_);  // None: nobody.
  bool alone_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;  // By the last holder.
  // When the loop's thread wakes up by itself; past while it waits for the holder.
  absl::Time wakes_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace basin

#endif  // BASIN_RUNTIME_EVENT_LOOP_H_
