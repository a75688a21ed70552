// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The command line of basinctl: a command, what it is about, and flags anywhere between.
//
// Thread contract: pure functions.
// Failure: INVALID_ARGUMENT with a sentence that says what to write.

#ifndef BASIN_AGGREGATOR_CTL_ARGUMENTS_H_
#define BASIN_AGGREGATOR_CTL_ARGUMENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace basin::aggregator {

struct Arguments {
  std::vector<std::string> words;  // The command and what it is about.
  std::string address = "127.0.0.1:29602";
  bool json = false;
  absl::Duration timeout = absl::Seconds(10);
  bool help = false;

  // Of single commands; which of their flags were given, as they stand in the commands' usage.
  std::vector<std::string> own_flags;
  bool follow = false;
  std::string job;
  std::string lane;
  std::string reason;
  int32_t exit_status = 0;
  uint32_t last = 2;
  uint64_t after = 0;
};

// `address`: what stands instead of the default, from the environment; empty: nothing.
absl::StatusOr<Arguments> ReadArguments(const std::vector<std::string>& arguments,
                                        const std::string& address);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_ARGUMENTS_H_
