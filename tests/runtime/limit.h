// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How long a test waits for an event before it fails: long enough for a busy machine, because a
// passing test does not wait for it.
//
// Thread contract: safe from any thread.

#ifndef BASIN_TESTS_RUNTIME_LIMIT_H_
#define BASIN_TESTS_RUNTIME_LIMIT_H_

#include <chrono>

namespace basin {

inline std::chrono::steady_clock::time_point InAMinute() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(1);
}

}  // namespace basin

#endif  // BASIN_TESTS_RUNTIME_LIMIT_H_
