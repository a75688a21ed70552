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
inline constexpr uint64_t kKnownFailures[] = {
    154,   2764,  6443,  7446,  9580,  9885,  10136, 10424, 10464, 10611, 11310, 11426, 11760,
    12426, 12866, 14274, 14456, 15572, 15711, 16003, 16380, 16510, 17276, 18553, 18891, 19096,
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_KNOWN_FAILURES_H_
