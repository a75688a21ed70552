// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The last events, for later queries and for watchers. Numbered 1, 2, 3, ... in a term. When there
// are too many, some are forgotten, which a gap in the numbers shows.
//
// The events of one job and one level are a group, and the oldest of the largest group is forgotten
// first. So the rounds of a fast job displace neither its own warnings nor the events of another
// job. Refusals of whole jobs are one group, because their names are whatever a peer wrote.
//
// Thread contract: safe from any thread. A listener is called from the thread of Add, must not
// block, and must not call back; after Unsubscribe has returned it is not called again.

#ifndef BASIN_AGGREGATOR_TELEMETRY_EVENTS_H_
#define BASIN_AGGREGATOR_TELEMETRY_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aggregator/config/settings.h"
#include "aggregator/core/action.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

// Events that are kept apart for a short look; see EventHistory::Notable.
inline constexpr size_t kNotableEvents = 64;

// The routine events of a job that are remembered: those of its last 85 rounds.
inline constexpr size_t kRoutineEvents = 256;

struct RememberedEvent {
  uint64_t sequence = 0;
  absl::Time time;  // By the clock of the core.
  Note note;
};

class EventHistory {
 public:
  // At most `capacity` events are remembered, with at most a few KiB of text each. REQUIRES:
  // capacity > 0.
  explicit EventHistory(size_t capacity) : capacity_(capacity) {}

  void Add(const Note& note, absl::Time now);

  // The events after this number, oldest first, at most `most`.
  std::vector<RememberedEvent> After(uint64_t sequence, size_t most) const;

  // The last few that are more than the ordinary course of a round, newest first. A job with fast
  // rounds does not displace them.
  std::vector<RememberedEvent> Notable() const;

  // The number of the newest of a job that is remembered, or of all when `job` is empty; 0: none.
  uint64_t Last(const std::string& job) const;

  // The memory of all that is remembered.
  uint64_t bytes() const;

  // `news` is called after each Add.
  uint64_t Subscribe(std::function<void()> news);
  void Unsubscribe(uint64_t subscription);

 private:
  // A job, and a level. The numbers of its events, the oldest first.
  using Group = std::pair<JobName, LogLevel>;
  using Groups = std::map<Group, std::deque<uint64_t>>;
  // Larger for a larger group, and among groups of one size for the one with the oldest event.
  using Rank = std::pair<size_t, uint64_t>;

  static Group GroupOf(const Note& note);
  static Rank RankOf(const std::deque<uint64_t>& numbers) {
    return {numbers.size(), ~numbers.front()};
  }
  void ForgetOldest(Groups::iterator group) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t capacity_;

  mutable Mutex mutex_;
  std::map<uint64_t, RememberedEvent> events_ ABSL_GUARDED_BY(mutex_);  // By their numbers.
  Groups groups_ ABSL_GUARDED_BY(mutex_);                               // None is empty.
  std::map<Rank, Groups::iterator> ranking_ ABSL_GUARDED_BY(mutex_);
  std::deque<RememberedEvent> notable_ ABSL_GUARDED_BY(mutex_);
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_subscription_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, std::function<void()>> listeners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_EVENTS_H_
