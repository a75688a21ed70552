// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/ctl/command.h"

namespace basin::aggregator {

std::string Usage(const Command& command) {
  return absl::StrCat(command.name, command.usage.empty() ? "" : " ", command.usage);
}

namespace {

// The flags that commands share.
constexpr char kFlagsOfConnection[] = R"(
  --address=HOST:PORT   the aggregator's admin.listen (127.0.0.1:29602; also BASIN_ADMIN_ADDRESS)
  --tls-ca=FILE         connect with TLS; the CA of the aggregator's certificate (also BASIN_TLS_CA)
  --tls-cert=FILE       certificate of this operator, if required (also BASIN_TLS_CERT)
  --tls-key=FILE        its private key (also BASIN_TLS_KEY)
  --token-file=FILE     a token, if required (also BASIN_TOKEN_FILE))";
constexpr char kFlagsOfAnswer[] = R"(
  -o, --output=FORMAT   table (the default), json or yaml, with the field names of the protocol)";
constexpr char kFlagsOfWaiting[] = R"(
  --timeout=DURATION    how long to wait for an answer (10s))";

// Those of a command that does this.
std::string SharedFlags(Sharing shares) {
  if (shares == Sharing::kHelp) return "";
  const bool asks = shares == Sharing::kAggregator;
  return absl::StrCat("\nflags:", asks ? kFlagsOfConnection : "", kFlagsOfAnswer,
                      asks ? kFlagsOfWaiting : "", "\n");
}

// With the commands that take them.
constexpr char kFlagsOfWatch[] = R"(
to show an answer again and again:
  -w, --watch           every 2 s, until Ctrl-C or an error
  --interval=DURATION   another interval
  --times=N             so many times
)";

std::string Examples(const std::vector<std::string>& examples) {
  return absl::StrCat("\nexamples:\n  ", absl::StrJoin(examples, "\n  "), "\n");
}

// Whether `usage` has the flag, rather than one that begins like it.
bool Has(const std::string& usage, const std::string& flag) {
  for (size_t at = usage.find(flag); at != std::string::npos; at = usage.find(flag, at + 1)) {
    const size_t end = at + flag.size();
    if (end == usage.size() || (usage[end] != '-' && !absl::ascii_islower(usage[end]))) return true;
  }
  return false;
}

// The command and its arguments, without flags: what a list has room for.
std::string ShortUsage(const Command& command) {
  const std::string usage = Usage(command);
  return usage.substr(0, std::min(usage.find(" ["), usage.find(" --")));
}

// With the word that always follows it: "job set".
std::string FullName(const Command& command) {
  const std::vector<std::string> words = FixedWords(command);
  return words.size() == 1 ? absl::StrCat(command.name, " ", words[0]) : command.name;
}

}  // namespace

std::vector<FlagName> FlagsOf(const Command& command) {
  std::vector<FlagName> flags;
  std::vector<FlagName> shared;
  for (FlagName& flag : FlagNames()) {
    if (flag.shared.has_value()) {
      if (*flag.shared <= command.shares) shared.push_back(std::move(flag));
    } else if (Has(command.usage, flag.shown())) {
      flags.push_back(std::move(flag));
    }
  }
  flags.insert(flags.end(), shared.begin(), shared.end());
  return flags;
}

std::vector<std::string> FixedWords(const Command& command) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : command.usage + " ") {
    if (c != ' ') {
      word += c;
      continue;
    }
    const bool fixed =
        !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos;
    if (fixed) words.push_back(word);
    word.clear();
  }
  return words;
}

std::string HelpOf(const Command& command) {
  return absl::StrCat("basinctl ", FullName(command), ": ", command.summary, "\n\nusage: basinctl ",
                      Usage(command), "\n\n", command.details, "\n",
                      Has(command.usage, "-w") ? kFlagsOfWatch : "", SharedFlags(command.shares),
                      Examples(command.examples));
}

std::string Help() {
  std::string text =
      "basinctl shows and controls a running aggregator, and helps to plan and reach "
      "one.\n\nusage: basinctl COMMAND ... "
      "[flags]\n\ncommands:\n";
  for (const Command& command : Commands()) {
    const std::string usage = ShortUsage(command);
    absl::StrAppend(&text, "  ", usage, std::string(usage.size() < 38 ? 38 - usage.size() : 1, ' '),
                    command.summary, "\n");
  }
  return absl::StrCat(
      text, "\n`basinctl COMMAND --help`, or `basinctl help COMMAND`, describes a command.\n",
      SharedFlags(Sharing::kAggregator),
      Examples({"basinctl doctor", "basinctl status", "basinctl top",
                "basinctl rounds vision -o yaml", "basinctl events -f --job=vision",
                "basinctl evict vision w-7 --reason='wrong data set'"}),
      "\nexit codes: 0 ok, 1 failed, 2 usage, 3 unreachable, 4 denied, 5 not "
      "found,\n6 precondition, 7 timeout\n");
}

}  // namespace basin::aggregator
