// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Seeds that are known to fail: defects that were found and are not mended yet. The seeds test
// counts them by name, fails on any other, and fails when one of these passes, so that the list
// only gets shorter. `basin-simulate --seed N` shows each.

#ifndef BASIN_TESTS_SIMULATION_KNOWN_FAILURES_H_
#define BASIN_TESTS_SIMULATION_KNOWN_FAILURES_H_

#include <cstdint>

namespace basin::simulation {

// Ascending.
inline constexpr uint64_t kKnownFailures[] = {2764, 6443, 9580, 10611, 12426, 18553};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_KNOWN_FAILURES_H_
