// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The command line of basinctl: a command, its arguments, and flags in any place.
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
#include "runtime/grpc/credentials.h"

namespace basin::aggregator {

// What the environment of the program says; empty: nothing.
struct Environment {
  std::string address;     // BASIN_ADMIN_ADDRESS
  ClientTls tls;           // BASIN_TLS_CA, BASIN_TLS_CERT, BASIN_TLS_KEY
  std::string token_file;  // BASIN_TOKEN_FILE
};

struct Arguments {
  std::vector<std::string> words;  // The command and its arguments.
  std::string address = "127.0.0.1:29602";
  ClientTls tls;
  std::string token_file;
  bool json = false;
  absl::Duration timeout = absl::Seconds(10);
  bool help = false;

  // Flags of single commands that were given, as they are written in the commands' usage.
  std::vector<std::string> own_flags;
  bool follow = false;
  std::string job;
  std::string lane;
  std::string reason;
  int32_t exit_status = 0;
  uint32_t last = 2;
  uint64_t after = 0;
  std::string role = "worker";
  std::string jobs;
  std::string name;
  std::vector<std::string> names;  // A server's, for its certificate.
  absl::Duration lifetime = absl::Hours(24 * 30);
};

// Flags override the environment, which overrides the defaults.
absl::StatusOr<Arguments> ReadArguments(const std::vector<std::string>& arguments,
                                        const Environment& environment);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_ARGUMENTS_H_
