// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/script.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace basin::scenarios {
namespace {

constexpr absl::string_view kSeparator = "----";
constexpr absl::string_view kFaultHeader = "# fault: ";

}  // namespace

Script ParseScript(std::string_view text) {
  Script script;
  if (text.empty() || text.front() != '#') {
    script.error = "A scenario opens with a comment that says what it shows and why.";
    return script;
  }
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripSuffix(std::string(text), "\n"), '\n');
  std::string before;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.empty() || line.front() == '#') {
      if (absl::StartsWith(line, kFaultHeader)) {
        script.faults = absl::StrSplit(line.substr(kFaultHeader.size()), ", ");
      }
      absl::StrAppend(&before, line, "\n");
      continue;
    }
    ScriptCommand command;
    command.before = std::move(before);
    command.text = line;
    command.line = i + 1;
    before.clear();
    if (i + 1 < lines.size() && lines[i + 1] == kSeparator) {
      for (i += 2; i < lines.size() && !lines[i].empty(); ++i) {
        absl::StrAppend(&command.output, lines[i], "\n");
      }
      if (i < lines.size()) before = "\n";
    }
    script.commands.push_back(std::move(command));
  }
  script.after = before == "\n" ? "" : before;
  if (script.commands.empty()) script.error = "The scenario has no commands.";
  return script;
}

std::string FormatScript(const Script& script) {
  std::string text;
  for (const ScriptCommand& command : script.commands) {
    // An output ends with an empty line, also if the command is new.
    const bool gap = text.empty() || absl::StartsWith(command.before, "\n");
    absl::StrAppend(&text, gap ? "" : "\n", command.before, command.text, "\n", kSeparator, "\n",
                    command.output);
  }
  absl::StrAppend(&text, script.after);
  return text;
}

}  // namespace basin::scenarios
