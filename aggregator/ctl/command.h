// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The table of the commands of basinctl. Help, the check of the command line, and completion
// derive from it.
//
// Thread contract: constants and pure functions.

#ifndef BASIN_AGGREGATOR_CTL_COMMAND_H_
#define BASIN_AGGREGATOR_CTL_COMMAND_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "aggregator/ctl/arguments.h"

namespace basin::aggregator {

class Client;

struct Command {
  std::string name;
  std::string usage;  // What follows the name, with every flag that the command has of its own.
  std::string summary;
  std::string details;  // What a user should know.
  std::vector<std::string> examples;
  size_t least_words;  // With the name.
  size_t most_words;
  // Null: it opens connections of its own, or none, ...
  absl::Status (*run)(Client&);
  absl::Status (*run_alone)(const Arguments&) = nullptr;  // ... and this runs.
  Sharing shares = Sharing::kAggregator;
};

const std::vector<Command>& Commands();

// The name, and what is behind it.
std::string Usage(const Command& command);

// Those that the command has of its own, then those that it shares with others.
std::vector<FlagName> FlagsOf(const Command& command);

// The words other than flags that the usage names in lower case: "worker", "service", "bash".
std::vector<std::string> FixedWords(const Command& command);

std::string HelpOf(const Command& command);
std::string Help();

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_COMMAND_H_
