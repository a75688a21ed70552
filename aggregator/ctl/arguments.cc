// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/arguments.h"

#include <algorithm>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "aggregator/config/address.h"
#include "aggregator/config/nearest.h"
#include "aggregator/config/units.h"
#include "proto/limits/limits.h"
#include "proto/limits/names.h"

namespace basin::aggregator {
namespace {

absl::Status Wrong(const std::string& text) { return absl::InvalidArgumentError(text); }

struct Flag {
  std::string name;
  std::string letter;  // "-o"; empty: none.
  bool takes_value = false;
  bool of_all = false;  // Every command has it.
  std::function<absl::Status(const std::string& value, Arguments& arguments)> take;
};

// A flag whose value is any text.
Flag Text(std::string name, bool of_all, std::string* (*place)(Arguments& arguments)) {
  return {std::move(name), "", true, of_all,
          [place](const std::string& value, Arguments& arguments) {
            *place(arguments) = value;
            return absl::OkStatus();
          }};
}

absl::Status TakeNumber(const std::string& value, uint64_t most, uint64_t& number) {
  const absl::StatusOr<uint64_t> parsed = ParseCount(value);
  if (!parsed.ok()) return parsed.status();
  if (*parsed > most) return Wrong(absl::StrCat("it must be at most ", most));
  number = *parsed;
  return absl::OkStatus();
}

absl::Status TakeOutput(const std::string& value, Arguments& arguments) {
  if (value != "table" && value != "json") return Wrong("it must be table or json");
  arguments.json = value == "json";
  return absl::OkStatus();
}

absl::Status TakeDuration(const std::string& value, absl::Duration& to) {
  const absl::StatusOr<absl::Duration> duration = ParseDuration(value);
  if (!duration.ok()) return duration.status();
  if (*duration <= absl::ZeroDuration()) return Wrong("it must be longer than 0");
  to = *duration;
  return absl::OkStatus();
}

absl::Status TakeTimeout(const std::string& value, Arguments& arguments) {
  return TakeDuration(value, arguments.timeout);
}

absl::Status TakeAddress(const std::string& value, Arguments& arguments) {
  if (const auto address = ParseAddress(value); !address.ok()) return address.status();
  arguments.address = value;
  return absl::OkStatus();
}

absl::Status TakeLast(const std::string& value, Arguments& arguments) {
  uint64_t last = 0;
  absl::Status taken = TakeNumber(value, kMaxPastRounds, last);
  arguments.last = static_cast<uint32_t>(last);
  return taken;
}

absl::Status TakeExitStatus(const std::string& value, Arguments& arguments) {
  if (absl::SimpleAtoi(value, &arguments.exit_status)) return absl::OkStatus();
  return Wrong("it must be a number: 0 to 255, or minus the signal that ended the process");
}

std::vector<Flag> Flags() {
  return {
      {"--address", "", true, true, TakeAddress},
      {"--output", "-o", true, true, TakeOutput},
      {"--timeout", "", true, true, TakeTimeout},
      Text("--tls-ca", true, [](Arguments& arguments) { return &arguments.tls.ca; }),
      Text("--tls-cert", true, [](Arguments& arguments) { return &arguments.tls.cert; }),
      Text("--tls-key", true, [](Arguments& arguments) { return &arguments.tls.key; }),
      Text("--token-file", true, [](Arguments& arguments) { return &arguments.token_file; }),
      Text("--role", false, [](Arguments& arguments) { return &arguments.role; }),
      Text("--jobs", false, [](Arguments& arguments) { return &arguments.jobs; }),
      Text("--name", false, [](Arguments& arguments) { return &arguments.name; }),
      {"--host", "", true, false,
       [](const std::string& value, Arguments& arguments) {
         arguments.names.push_back(value);
         return absl::OkStatus();
       }},
      {"--lifetime", "", true, false,
       [](const std::string& value, Arguments& arguments) {
         return TakeDuration(value, arguments.lifetime);
       }},
      {"--last", "", true, false, TakeLast},
      {"--status", "", true, false, TakeExitStatus},
      {"--after", "", true, false,
       [](const std::string& value, Arguments& arguments) {
         return TakeNumber(value, ~uint64_t{0}, arguments.after);
       }},
      Text("--job", false, [](Arguments& arguments) { return &arguments.job; }),
      Text("--lane", false, [](Arguments& arguments) { return &arguments.lane; }),
      Text("--reason", false, [](Arguments& arguments) { return &arguments.reason; }),
      {"--follow", "-f", false, false,
       [](const std::string&, Arguments& arguments) {
         arguments.follow = true;
         return absl::OkStatus();
       }},
      {"--help", "-h", false, true,
       [](const std::string&, Arguments& arguments) {
         arguments.help = true;
         return absl::OkStatus();
       }},
  };
}

absl::Status Unknown(const std::string& name, const std::vector<Flag>& flags) {
  std::vector<std::string> known;
  known.reserve(flags.size());
  for (const Flag& flag : flags) known.push_back(flag.name);
  const std::string nearest = Nearest(name, known);
  return Wrong(absl::StrCat(QuoteForError(name), " is not a flag; ",
                            nearest.empty() ? "see --help" : "did you mean " + nearest + "?"));
}

}  // namespace

absl::StatusOr<Arguments> ReadArguments(const std::vector<std::string>& arguments,
                                        const Environment& environment) {
  const std::vector<Flag> flags = Flags();
  Arguments read;
  read.tls = environment.tls;
  read.token_file = environment.token_file;
  if (!environment.address.empty()) {
    if (const absl::Status taken = TakeAddress(environment.address, read); !taken.ok()) {
      return Wrong(absl::StrCat("BASIN_ADMIN_ADDRESS: ", taken.message()));
    }
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!absl::StartsWith(argument, "-")) {
      read.words.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag& known) {
      return known.name == name || (known.letter == name && !name.empty());
    });
    if (flag == flags.end()) return Unknown(name, flags);
    if (!flag->of_all) read.own_flags.push_back(flag->letter.empty() ? flag->name : flag->letter);
    std::string value;
    if (equals != std::string::npos) {
      if (!flag->takes_value) return Wrong(absl::StrCat(name, " takes no value"));
      value = argument.substr(equals + 1);
    } else if (flag->takes_value) {
      if (i + 1 == arguments.size()) return Wrong(absl::StrCat(name, " needs a value"));
      value = arguments[++i];
    }
    if (const absl::Status taken = flag->take(value, read); !taken.ok()) {
      return Wrong(absl::StrCat(name, " is ", QuoteForError(value), ": ", taken.message()));
    }
  }
  return read;
}

}  // namespace basin::aggregator
