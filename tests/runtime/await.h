// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Waits for events without a notification: a counter of another thread, or the state of the system.

#ifndef BASIN_TESTS_RUNTIME_AWAIT_H_
#define BASIN_TESTS_RUNTIME_AWAIT_H_

#include <chrono>
#include <functional>

#include <gtest/gtest.h>

#include "runtime/mutex.h"

namespace basin {

// Fails the test after a minute.
inline void Await(const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  Mutex mutex;
  Condition never;
  MutexLock lock(mutex);
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "it does not happen";
    never.WaitUntil(mutex, std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
  }
}

}  // namespace basin

#endif  // BASIN_TESTS_RUNTIME_AWAIT_H_
