// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/telemetry/events.h"

#include <algorithm>
#include <utility>

#include "aggregator/telemetry/reporter.h"

namespace basin::aggregator {

namespace {

// An event, with the nodes that lead to it.
uint64_t BytesOf(const Note& note) {
  constexpr uint64_t kNodes = 160;
  return sizeof(RememberedEvent) + kNodes + note.job.size() + note.worker.size() +
         note.lane.size() + note.text.size() + note.waited_for.size();
}

}  // namespace

EventHistory::Group EventHistory::GroupOf(const Note& note) {
  const bool unknown = note.kind == NoteKind::kJobRefused || note.kind == NoteKind::kAddressRefused;
  return {unknown ? "" : note.job, LevelOf(note.kind)};
}

void EventHistory::Add(const Note& note, absl::Time now) {
  MutexLock lock(mutex_);
  const uint64_t number = ++last_;
  events_.emplace(number, RememberedEvent{number, now, note});
  bytes_ += BytesOf(note);
  const auto group = groups_.try_emplace(GroupOf(note)).first;
  std::deque<uint64_t>& numbers = group->second;
  if (!numbers.empty()) ranking_.erase(RankOf(numbers));
  numbers.push_back(number);
  ranking_.emplace(RankOf(numbers), group);
  const bool routine = LevelOf(note.kind) == LogLevel::kDebug;
  if (routine && numbers.size() > kRoutineEvents) ForgetOldest(group);
  if (events_.size() > capacity_) ForgetOldest(ranking_.rbegin()->second);
  if (!routine) {
    notable_.push_front({number, now, note});
    bytes_ += BytesOf(note);
    if (notable_.size() > kNotableEvents) {
      bytes_ -= BytesOf(notable_.back().note);
      notable_.pop_back();
    }
  }
  // Under the lock, so that no call follows Unsubscribe.
  for (const auto& [subscription, news] : listeners_) news();
}

void EventHistory::ForgetOldest(Groups::iterator group) {
  std::deque<uint64_t>& numbers = group->second;
  ranking_.erase(RankOf(numbers));
  const auto oldest = events_.find(numbers.front());
  bytes_ -= BytesOf(oldest->second.note);
  events_.erase(oldest);
  numbers.pop_front();
  if (numbers.empty()) {
    groups_.erase(group);
  } else {
    ranking_.emplace(RankOf(numbers), group);
  }
}

std::vector<RememberedEvent> EventHistory::After(uint64_t sequence, size_t most) const {
  std::vector<RememberedEvent> found;
  MutexLock lock(mutex_);
  for (auto at = events_.upper_bound(sequence); at != events_.end() && found.size() < most; ++at) {
    found.push_back(at->second);
  }
  return found;
}

std::vector<RememberedEvent> EventHistory::Notable() const {
  MutexLock lock(mutex_);
  return {notable_.begin(), notable_.end()};
}

uint64_t EventHistory::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

uint64_t EventHistory::Last(const std::string& job) const {
  MutexLock lock(mutex_);
  if (job.empty()) return last_;
  const auto newest = std::find_if(events_.rbegin(), events_.rend(),
                                   [&](const auto& event) { return event.second.note.job == job; });
  return newest == events_.rend() ? 0 : newest->first;
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
