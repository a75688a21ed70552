// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The items that wait for a thread. The thread takes one item of each source in turn, so a source
// with a thousand items delays the others by one. A source whose item takes long is charged for it
// in shares, and for each share the other sources go first once (start-time fair queueing). The
// items of one source are taken in the order in which they came. The sources of the loop are
// connections; the sources of a reduce thread are jobs.
//
// Thread contract: none of its own; one thread at a time.

#ifndef BASIN_AGGREGATOR_ENGINE_FAIR_QUEUE_H_
#define BASIN_AGGREGATOR_ENGINE_FAIR_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace basin::aggregator {

template <typename T>
class FairQueue {
 public:
  // The item of a source that had none waits behind one item of each other source. Otherwise
  // sources that keep adding could shut out the others.
  void Add(uint64_t source, T item) {
    Queue& queue = queues_[source];
    queue.items.push_back({++added_, std::move(item)});
    ++size_;
    if (queue.items.size() == 1) Enqueue(source, queue);
  }
  // Adds an item that comes from no source and is taken before everything else.
  void AddNow(T item) {
    now_.push_back({++added_, std::move(item)});
    ++size_;
  }
  // Adds an item that is taken after everything that waits already.
  void AddLast(T item) {
    const size_t before = size_++;
    Item last{++added_, std::move(item)};
    if (before == 0) {
      now_.push_back(std::move(last));
    } else {
      last_.push_back({before, std::move(last)});
    }
  }

  // REQUIRES: !empty().
  T Next() {
    Item item = TakeNext();
    --size_;
    for (Last& last : last_) last.before -= item.number < last.item.number;
    while (!last_.empty() && last_.front().before == 0) {
      now_.push_back(std::move(last_.front().item));
      last_.pop_front();
    }
    return std::move(item.value);
  }
  // Charges the source so many shares.
  void Charge(uint64_t source, uint64_t shares) {
    const auto it = queues_.find(source);
    if (it != queues_.end()) it->second.start += shares;
  }

  // The sources that have something waiting.
  std::vector<uint64_t> Waiting() const {
    std::vector<uint64_t> sources;
    for (const auto& [source, queue] : queues_) {
      if (!queue.items.empty()) sources.push_back(source);
    }
    return sources;
  }

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

 private:
  struct Item {
    uint64_t number;  // Among all that were added.
    T value;
  };
  struct Queue {
    uint64_t start = 0;  // That of its first item, or of the one before when it has none.
    std::deque<Item> items;
  };
  struct Last {
    size_t before;  // Items that have to be taken first.
    Item item;
  };
  struct Head {
    uint64_t start;
    uint64_t number;  // Among all heads.
    uint64_t source;
  };
  static bool Later(const Head& a, const Head& b) {
    return a.start != b.start ? a.start > b.start : a.number > b.number;
  }

  void Push(uint64_t start, uint64_t source) {
    heads_.push_back({start, ++pushed_, source});
    std::push_heap(heads_.begin(), heads_.end(), Later);
  }
  void Enqueue(uint64_t source, Queue& queue) {
    queue.start = std::max(time_, queue.start) + 1;
    Push(queue.start, source);
  }

  Item TakeNext() {
    if (!now_.empty()) return TakeFront(now_);
    while (true) {
      std::pop_heap(heads_.begin(), heads_.end(), Later);
      const Head head = heads_.back();
      heads_.pop_back();
      Queue& queue = queues_.at(head.source);
      if (queue.start > head.start) {  // It was charged meanwhile.
        Push(queue.start, head.source);
        continue;
      }
      time_ = head.start;
      Item item = TakeFront(queue.items);
      if (!queue.items.empty()) Enqueue(head.source, queue);
      ForgetIdle(head.source);
      return item;
    }
  }
  static Item TakeFront(std::deque<Item>& items) {
    Item item = std::move(items.front());
    items.pop_front();
    return item;
  }
  // From time to time, forgets sources that have nothing waiting and no charge left.
  void ForgetIdle(uint64_t present) {
    if (queues_.size() <= 2 * heads_.size() + 64) return;
    absl::erase_if(queues_, [&](const auto& entry) {
      return entry.first != present && entry.second.items.empty() && entry.second.start <= time_;
    });
  }

  absl::flat_hash_map<uint64_t, Queue> queues_;  // By source.
  std::vector<Head> heads_;                      // A heap; one for each queue that is not empty.
  std::deque<Item> now_;
  std::deque<Last> last_;
  size_t size_ = 0;
  uint64_t time_ = 0;  // That of what was taken last.
  uint64_t added_ = 0;
  uint64_t pushed_ = 0;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ENGINE_FAIR_QUEUE_H_
