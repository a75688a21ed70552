// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The verbs of the scripts. Each is one small function, and it prints what happens in the world.
//
// Thread contract: pure tables; the handlers act on the world they are given.

#ifndef BASIN_TESTS_SCENARIOS_COMMANDS_H_
#define BASIN_TESTS_SCENARIOS_COMMANDS_H_

#include <string>
#include <vector>

#include "tests/scenarios/arguments.h"
#include "tests/scenarios/world.h"

namespace basin::scenarios {

struct Command {
  const char* verb;  // One word, or two, such as "worker start".
  const char* usage;
  const char* help;
  void (*run)(World& world, Arguments& arguments);
};

std::vector<Command> AggregatorCommands();
std::vector<Command> WorkerCommands();
std::vector<Command> RoundCommands();
std::vector<Command> NetworkCommands();
std::vector<Command> OperatorCommands();
std::vector<Command> BlobCommands();
std::vector<Command> StatusCommands();

// Every command, in the order in which help lists them.
std::vector<Command> AllCommands();

// Runs one line and returns its output; `error` explains what is wrong with the line itself.
std::string RunCommand(World& world, const std::string& line, std::string& error);

// ---- for the handlers

// Returns the live worker with that name. Without one, returns null and reports an error of the
// script.
WorkerProcess* WorkerNamed(World& world, Arguments& arguments, const std::string& name);
// Returns all workers that the rest of the words names.
std::vector<WorkerProcess*> WorkersNamed(World& world, Arguments& arguments);
// Returns the live aggregator named by option "name", by default "aggregator".
AggregatorProcess* AggregatorNamed(World& world, Arguments& arguments);

// Parses a tensor: "a" is one chunk of f32, "b:3" is three, "c:f32[10,3]" has this type and shape.
TensorSpec ParseTensor(Arguments& arguments, const std::string& text);

inline constexpr const char* kJob = "train";
inline constexpr const char* kLane = "g";

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_COMMANDS_H_
