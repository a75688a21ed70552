// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/clock.h"

#include <time.h>

#include <chrono>

namespace basin {

absl::Time MonotonicClock::Now() const {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

void MonotonicClock::Wait(Condition& condition, Mutex& mutex, absl::Time until) {
  if (until == absl::InfiniteFuture()) return condition.Wait(mutex);
  const auto since_zero = absl::ToChronoNanoseconds(until - absl::UnixEpoch());
  condition.WaitUntil(mutex, std::chrono::steady_clock::time_point(since_zero));
}

absl::Time BootClock::Now() const {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return absl::TimeFromTimespec(now);
}

void BootClock::Wait(Condition& condition, Mutex& mutex, absl::Time until) {
  if (until == absl::InfiniteFuture()) return condition.Wait(mutex);
  condition.WaitUntil(mutex,
                      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(until - Now()));
}

}  // namespace basin
