// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A clock that stands still until the test says otherwise.
//
// Thread contract: safe from any thread. REQUIRES: who waits by the clock outlives Advance.

#ifndef BASIN_TESTS_CLIENT_TRANSPORT_MANUAL_CLOCK_H_
#define BASIN_TESTS_CLIENT_TRANSPORT_MANUAL_CLOCK_H_

#include <algorithm>
#include <vector>

#include "client/transport/clock.h"

namespace basin::client {

class ManualClock : public Clock {
 public:
  absl::Time Now() const override {
    MutexLock lock(mutex_);
    return now_;
  }

  void Wait(Condition& condition, Mutex& mutex, absl::Time until) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    {
      MutexLock lock(mutex_);
      if (now_ >= until) return;
      sleepers_.push_back({&condition, &mutex});
    }
    condition.Wait(mutex);
    MutexLock lock(mutex_);
    sleepers_.erase(std::find_if(sleepers_.begin(), sleepers_.end(), [&](const Sleeper& sleeper) {
      return sleeper.condition == &condition;
    }));
  }

  void Advance(absl::Duration by) {
    std::vector<Sleeper> sleepers;
    {
      MutexLock lock(mutex_);
      now_ += by;
      sleepers = sleepers_;
    }
    // A sleeper gives its mutex back only by waiting, so it cannot miss this.
    for (const Sleeper& sleeper : sleepers) {
      MutexLock lock(*sleeper.mutex);
      sleeper.condition->NotifyAll();
    }
  }

 private:
  struct Sleeper {
    Condition* condition;
    Mutex* mutex;
  };
  mutable Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::UnixEpoch() + absl::Hours(1);
  std::vector<Sleeper> sleepers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace basin::client

#endif  // BASIN_TESTS_CLIENT_TRANSPORT_MANUAL_CLOCK_H_
