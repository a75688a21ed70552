// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The last events, for later queries and for watchers. Numbered 1, 2, 3, ... in a term; the oldest
// are forgotten when there are too many, which a gap in the numbers shows.
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
#include <vector>

#include "absl/time/time.h"
#include "aggregator/core/action.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

// Events that are kept apart for a short look; see EventHistory::Notable.
inline constexpr size_t kNotableEvents = 64;

struct RememberedEvent {
  uint64_t sequence = 0;
  absl::Time time;  // By the clock of the core.
  Note note;
};

class EventHistory {
 public:
  // REQUIRES: capacity > 0.
  explicit EventHistory(size_t capacity) : capacity_(capacity) {}

  void Add(const Note& note, absl::Time now);

  // The events after this number, oldest first, at most `most`.
  std::vector<RememberedEvent> After(uint64_t sequence, size_t most) const;

  // The last few that are more than the ordinary course of a round, newest first. A job with fast
  // rounds does not displace them.
  std::vector<RememberedEvent> Notable() const;

  // The number of the newest of a job that is remembered, or of all when `job` is empty; 0: none.
  uint64_t Last(const std::string& job) const;

  // `news` is called after each Add.
  uint64_t Subscribe(std::function<void()> news);
  void Unsubscribe(uint64_t subscription);

 private:
  const size_t capacity_;

  mutable Mutex mutex_;
  std::deque<RememberedEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::deque<RememberedEvent> notable_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_subscription_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, std::function<void()>> listeners_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_EVENTS_H_
