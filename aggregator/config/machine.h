// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What this process may use of the machine: the bounds of its control groups, or the machine's
// own. Options whose value is "auto" follow from it.
//
// Thread contract: reads files; safe from any thread.
// Failure: none; what cannot be read does not bound anything.

#ifndef BASIN_AGGREGATOR_CONFIG_MACHINE_H_
#define BASIN_AGGREGATOR_CONFIG_MACHINE_H_

#include <cstdint>
#include <string>

namespace basin::aggregator {

struct Machine {
  uint64_t memory_bytes = 0;  // 0: unknown.
  uint32_t cpus = 1;
};

// `root` is put before the paths below /proc and /sys, for tests. Reads control groups of version
// 1 and 2: a bound of any group above this process counts.
Machine LookAtMachine(const std::string& root = "");

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CONFIG_MACHINE_H_
