// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The command line of basinctl: a command, its arguments, and flags in any place.
//
// Thread contract: pure functions.
// Failure: INVALID_ARGUMENT with a sentence that names what to write.

#ifndef BASIN_AGGREGATOR_CTL_ARGUMENTS_H_
#define BASIN_AGGREGATOR_CTL_ARGUMENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregator/ctl/output.h"
#include "runtime/grpc/credentials.h"

namespace basin::aggregator {

// The settings in the environment of the program; empty: not set.
struct Environment {
  std::string address;          // BASIN_ADMIN_ADDRESS
  std::string workers_address;  // BASIN_ADDRESS
  ClientTls tls;                // BASIN_TLS_CA, BASIN_TLS_CERT, BASIN_TLS_KEY
  std::string token_file;       // BASIN_TOKEN_FILE
  std::string job;              // BASIN_JOB
};

struct Arguments {
  std::vector<std::string> words;                   // The command and its arguments.
  std::string address = "127.0.0.1:29602";          // For operators.
  std::string workers_address = "127.0.0.1:29600";  // For workers.
  bool address_given = false;
  bool workers_address_given = false;
  ClientTls tls;
  std::string token_file;
  Format format = Format::kTable;
  absl::Duration timeout = absl::Seconds(10);
  bool help = false;

  // Flags of single commands that were given, as they are written in the commands' usage, and flags
  // that commands share.
  std::vector<std::string> own_flags;
  std::vector<std::string> shared_flags;
  bool follow = false;
  std::string job;
  std::string job_of_worker;  // BASIN_JOB, for a command that acts like a worker.
  std::string lane;
  std::string reason;
  int32_t exit_status = 0;
  uint32_t last = 2;
  uint64_t after = 0;

  // To show an answer again and again.
  bool watch = false;
  absl::Duration interval = absl::Seconds(2);
  uint64_t times = 0;  // 0: until Ctrl-C.

  // A token, and certificates.
  std::string role = "worker";
  std::string jobs;
  std::string name;
  std::string grants;              // The file for a token's line.
  std::vector<std::string> names;  // A server's, for its certificate.
  absl::Duration lifetime = absl::Hours(24 * 30);

  // What a job is set to; 0 and empty: stays as it is.
  uint32_t min_workers = 0;
  uint32_t max_workers = 0;
  std::string loss_policy;
  std::string late_policy;

  // A job that is planned or measured. 0: not given.
  uint32_t workers = 0;
  uint64_t model_bytes = 0;
  double nic_bits = 0;  // A second.
  double shard_nic_bits = 0;
  uint32_t shards = 0;
  absl::Duration within;
  absl::Duration round_trip = absl::Milliseconds(1);
  uint64_t memory_bytes = 0;
  uint32_t rounds = 10;
  bool beside_others = false;

  // A timeline.
  bool merge = false;
  std::string file;
};

// Flags override the environment, which overrides the defaults.
absl::StatusOr<Arguments> ReadArguments(const std::vector<std::string>& arguments,
                                        const Environment& environment);

// What a command does, and so which flags it shares with others. One that asks an aggregator also
// prints an answer, and each has a help.
enum class Sharing : uint8_t { kHelp, kAnswer, kAggregator };

// For completion and the check of a command's flags.
struct FlagName {
  std::string name;
  std::string letter;  // "-o"; empty: none.
  bool takes_value = false;
  std::optional<Sharing> shared;  // By the commands that do this; nothing: single commands have it.

  const std::string& shown() const { return letter.empty() ? name : letter; }
};
std::vector<FlagName> FlagNames();

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_ARGUMENTS_H_
