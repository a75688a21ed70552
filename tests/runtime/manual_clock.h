// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A clock that only a test moves.

#ifndef BASIN_TESTS_RUNTIME_MANUAL_CLOCK_H_
#define BASIN_TESTS_RUNTIME_MANUAL_CLOCK_H_

#include <vector>

#include "runtime/clock.h"

namespace basin {

class ManualClock : public Clock {
 public:
  absl::Time Now() const override {
    MutexLock lock(mutex_);
    return now_;
  }

  void Wait(Condition& condition, Mutex& mutex, absl::Time until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override {
    {
      MutexLock lock(mutex_);
      if (now_ >= until) return;
      sleepers_.push_back({&condition, &mutex});
    }
    condition.Wait(mutex);
    MutexLock lock(mutex_);
    for (auto it = sleepers_.begin(); it != sleepers_.end(); ++it) {
      if (it->condition != &condition) continue;
      sleepers_.erase(it);
      break;
    }
  }

  // Waiting threads check the time again.
  void Advance(absl::Duration by) {
    std::vector<Sleeper> sleepers;
    {
      MutexLock lock(mutex_);
      now_ += by;
      sleepers = sleepers_;
    }
    for (const Sleeper& sleeper : sleepers) {
      // Once its mutex can be had, the sleeper has looked at the clock before or will look again.
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
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1000);
  std::vector<Sleeper> sleepers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace basin

#endif  // BASIN_TESTS_RUNTIME_MANUAL_CLOCK_H_
