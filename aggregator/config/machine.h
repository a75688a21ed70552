// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The resources that this process may use: the bounds of its control groups, or of the machine.
// Options whose value is "auto" follow from it.
//
// Thread contract: reads files; safe from any thread. Failure: none; a file that cannot be read
// sets no bound.

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
