// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/commands.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/ctl/client.h"
#include "aggregator/ctl/command.h"
#include "aggregator/ctl/output.h"
#include "aggregator/ctl/watch.h"
#include "aggregator/text/nearest.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

ExitCode Refuse(const absl::Status& status) {
  Complain(absl::StrCat("basinctl: ", PrintableText(std::string(status.message()), kMaxTextBytes),
                        "\n"));
  return ExitCodeOf(status);
}

// The command that `words` begin with; nullptr: none of that name.
const Command* FindNamed(const std::vector<std::string>& words) {
  for (const Command& command : Commands()) {
    if (!words.empty() && command.name == words[0]) return &command;
  }
  return nullptr;
}

absl::Status Unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : Commands()) names.push_back(command.name);
  const std::string nearest = Nearest(name, names);
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteForError(name), " is not a command; ",
                   nearest.empty() ? "see basinctl --help" : "did you mean " + nearest + "?"));
}

absl::Status CheckUse(const Command& command, const Arguments& arguments) {
  const size_t words = arguments.words.size();
  if (words < command.least_words || words > command.most_words) {
    return absl::InvalidArgumentError(absl::StrCat("write `basinctl ", Usage(command), "`"));
  }
  const std::vector<FlagName> flags = FlagsOf(command);
  std::vector<std::string> all_given = arguments.own_flags;
  all_given.insert(all_given.end(), arguments.shared_flags.begin(), arguments.shared_flags.end());
  for (const std::string& given : all_given) {
    const bool known = std::any_of(flags.begin(), flags.end(),
                                   [&](const FlagName& flag) { return flag.shown() == given; });
    if (known) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(command.name, " takes no ", given, "; write `basinctl ", Usage(command), "`"));
  }
  return absl::OkStatus();
}

absl::Status RunConnected(const Command& command, const Arguments& arguments) {
  absl::StatusOr<Client> client = Client::Open(arguments);
  if (!client.ok()) return client.status();
  const auto once = [&] { return command.run(*client); };
  absl::Status run = arguments.watch ? Repeat(arguments, once) : once();
  if (absl::IsUnavailable(run)) ExplainUnreachable(arguments);
  return run;
}

}  // namespace

ExitCode RunBasinctl(const std::vector<std::string>& arguments, const Environment& environment) {
  absl::StatusOr<Arguments> read = ReadArguments(arguments, environment);
  if (!read.ok()) return Refuse(read.status());
  // "help COMMAND" is "COMMAND --help".
  if (!read->words.empty() && read->words[0] == "help") {
    read->words.erase(read->words.begin());
    read->help = true;
  }
  const Command* command = FindNamed(read->words);
  if (command == nullptr && !read->words.empty()) return Refuse(Unknown(read->words[0]));
  if (read->help) {
    Print(command != nullptr ? HelpOf(*command) : Help());
    return kExitOk;
  }
  if (read->words.empty()) {
    return Refuse(absl::InvalidArgumentError("a command is missing; see basinctl --help"));
  }
  if (const absl::Status use = CheckUse(*command, *read); !use.ok()) return Refuse(use);
  const absl::Status run =
      command->run_alone != nullptr ? command->run_alone(*read) : RunConnected(*command, *read);
  return run.ok() ? kExitOk : Refuse(run);
}

}  // namespace basin::aggregator
