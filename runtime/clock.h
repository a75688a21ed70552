// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The clock of a core. It never jumps: changes of the wall clock by an operator or NTP do not
// affect leases and deadlines.
//
// Thread contract: safe from any thread.

#ifndef BASIN_RUNTIME_CLOCK_H_
#define BASIN_RUNTIME_CLOCK_H_

#include "absl/time/time.h"
#include "runtime/mutex.h"

namespace basin {

class Clock {
 public:
  virtual ~Clock() = default;

  // Never earlier than the result of the previous call.
  virtual absl::Time Now() const = 0;

  // Waits for `condition`, until the clock shows `until` at the latest. May return early.
  virtual void Wait(Condition& condition, Mutex& mutex, absl::Time until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;
};

// CLOCK_MONOTONIC, which stands still while the machine is suspended. Its zero is arbitrary.
class MonotonicClock : public Clock {
 public:
  absl::Time Now() const override;
  void Wait(Condition& condition, Mutex& mutex, absl::Time until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override;
};

// CLOCK_BOOTTIME, which goes on while the machine is suspended, as the clocks of other machines do.
class BootClock : public Clock {
 public:
  absl::Time Now() const override;
  // May return late after a suspension.
  void Wait(Condition& condition, Mutex& mutex, absl::Time until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) override;
};

}  // namespace basin

#endif  // BASIN_RUNTIME_CLOCK_H_
