// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The text of a scenario: comments, and commands that are each followed by their output.
//
//   # Why this scenario exists.
//   worker start w1 w2
//   ----
//   w1 connects
//   w2 connects
//
// A command is one line. Its output follows a line of four dashes and ends at the first empty line,
// or at the end of the file. No output contains an empty line.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_TESTS_SCENARIOS_SCRIPT_H_
#define BASIN_TESTS_SCENARIOS_SCRIPT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace basin::scenarios {

struct ScriptCommand {
  std::string before;  // Comments and empty lines above, unchanged.
  std::string text;    // The command itself.
  std::string output;  // The expected output; each line ends with a newline.
  size_t line = 0;     // The line of the command in the file, from 1.
};

struct Script {
  std::vector<std::string> faults;  // From the header line "# fault: W2, W7".
  std::vector<ScriptCommand> commands;
  std::string after;  // Comments and empty lines below the last command.
  std::string error;  // Why the text is not a script; empty if it is one.
};

Script ParseScript(std::string_view text);

// Returns the text with the current outputs of the commands.
std::string FormatScript(const Script& script);

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_SCRIPT_H_
