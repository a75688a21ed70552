// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/observer/events.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {

void EventHistory::Add(const Note& note, absl::Time now) {
  MutexLock lock(mutex_);
  events_.push_back({++last_, now, note});
  if (events_.size() > capacity_) events_.pop_front();
  // Under the lock, so that no call follows Unsubscribe.
  for (const auto& [subscription, news] : listeners_) news();
}

std::vector<RememberedEvent> EventHistory::After(uint64_t sequence, size_t most) const {
  std::vector<RememberedEvent> found;
  MutexLock lock(mutex_);
  const uint64_t before_first = last_ - events_.size();
  if (sequence >= last_) return found;
  size_t at = sequence > before_first ? sequence - before_first : 0;
  for (; at < events_.size() && found.size() < most; ++at) found.push_back(events_[at]);
  return found;
}

uint64_t EventHistory::Last(const std::string& job) const {
  MutexLock lock(mutex_);
  if (job.empty()) return last_;
  const auto newest = std::find_if(events_.rbegin(), events_.rend(),
                                   [&](const auto& event) { return event.note.job == job; });
  return newest == events_.rend() ? 0 : newest->sequence;
}

uint64_t EventHistory::Subscribe(std::function<void()> news) {
  MutexLock lock(mutex_);
  const uint64_t subscription = next_subscription_++;
  listeners_.emplace(subscription, std::move(news));
  return subscription;
}

void EventHistory::Unsubscribe(uint64_t subscription) {
  MutexLock lock(mutex_);
  listeners_.erase(subscription);
}

}  // namespace basin::aggregator
