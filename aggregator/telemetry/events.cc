// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/telemetry/events.h"

#include <algorithm>
#include <utility>

namespace basin::aggregator {
namespace {

// Every round has these.
bool IsOrdinary(NoteKind kind) {
  return kind == NoteKind::kRoundOpened || kind == NoteKind::kRoundPrepared ||
         kind == NoteKind::kRoundCommitted;
}

}  // namespace

void EventHistory::Add(const Note& note, absl::Time now) {
  MutexLock lock(mutex_);
  events_.push_back({++last_, now, note});
  if (events_.size() > capacity_) events_.pop_front();
  if (!IsOrdinary(note.kind)) {
    notable_.push_front(events_.back());
    if (notable_.size() > kNotableEvents) notable_.pop_back();
  }
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

std::vector<RememberedEvent> EventHistory::Notable() const {
  MutexLock lock(mutex_);
  return {notable_.begin(), notable_.end()};
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
