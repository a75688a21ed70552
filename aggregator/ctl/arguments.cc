// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/arguments.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "aggregator/text/address.h"
#include "aggregator/text/flags.h"
#include "aggregator/text/units.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

absl::Status Wrong(const std::string& text) { return absl::InvalidArgumentError(text); }

using Take = std::function<absl::Status(const std::string& value, Arguments& arguments)>;

struct Flag : FlagName {
  Flag(FlagName flag, Take taking) : FlagName(std::move(flag)), take(std::move(taking)) {}
  Take take;
};

// A flag whose value is any text.
Flag Text(std::string name, std::optional<Sharing> shared,
          std::string* (*place)(Arguments& arguments)) {
  return {{std::move(name), "", true, shared},
          [place](const std::string& value, Arguments& arguments) {
            *place(arguments) = value;
            return absl::OkStatus();
          }};
}

// A flag of single commands, with a value.
Flag Value(std::string name, Take take) {
  return {{std::move(name), "", true, std::nullopt}, std::move(take)};
}

// A flag without a value.
Flag Switch(std::string name, std::string letter, std::optional<Sharing> shared,
            bool* (*place)(Arguments&)) {
  return {{std::move(name), std::move(letter), false, shared},
          [place](const std::string&, Arguments& arguments) {
            *place(arguments) = true;
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
  for (const auto& [name, format] :
       {std::pair{"table", Format::kTable}, {"json", Format::kJson}, {"yaml", Format::kYaml}}) {
    if (value != name) continue;
    arguments.format = format;
    return absl::OkStatus();
  }
  return Wrong("it must be table, json or yaml");
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

absl::Status TakeAddress(const std::string& value, std::string& address, bool& given) {
  if (const auto parsed = ParseAddress(value); !parsed.ok()) return parsed.status();
  address = value;
  given = true;
  return absl::OkStatus();
}

absl::Status TakeOperatorsAddress(const std::string& value, Arguments& arguments) {
  return TakeAddress(value, arguments.address, arguments.address_given);
}

absl::Status TakeWorkersAddress(const std::string& value, Arguments& arguments) {
  return TakeAddress(value, arguments.workers_address, arguments.workers_address_given);
}

// A whole number from 1.
absl::Status TakePositive(const std::string& value, uint32_t most, uint32_t& number) {
  uint64_t taken = 0;
  if (absl::Status good = TakeNumber(value, most, taken); !good.ok()) return good;
  if (taken == 0) return Wrong("it must be at least 1");
  number = static_cast<uint32_t>(taken);
  return absl::OkStatus();
}

absl::Status TakeBytes(const std::string& value, uint64_t& bytes) {
  const absl::StatusOr<uint64_t> parsed = ParseShownBytes(value);
  if (!parsed.ok()) return parsed.status();
  if (*parsed == 0) return Wrong("it must be more than 0");
  bytes = *parsed;
  return absl::OkStatus();
}

absl::Status TakeBandwidth(const std::string& value, double& bits) {
  const absl::StatusOr<double> bandwidth = ParseBandwidth(value);
  if (!bandwidth.ok()) return bandwidth.status();
  bits = *bandwidth;
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

// What the protocol allows a job.
constexpr uint32_t kMostWorkers = 10000;
constexpr uint32_t kMostPlannedShards = 10000;
constexpr uint32_t kMostBenchRounds = 100000;

std::vector<Flag> Flags() {
  return {
      {{"--address", "", true, Sharing::kAggregator}, TakeOperatorsAddress},
      {{"--output", "-o", true, Sharing::kAnswer}, TakeOutput},
      {{"--timeout", "", true, Sharing::kAggregator}, TakeTimeout},
      Text("--tls-ca", Sharing::kAggregator,
           [](Arguments& arguments) { return &arguments.tls.ca; }),
      Text("--tls-cert", Sharing::kAggregator,
           [](Arguments& arguments) { return &arguments.tls.cert; }),
      Text("--tls-key", Sharing::kAggregator,
           [](Arguments& arguments) { return &arguments.tls.key; }),
      Text("--token-file", Sharing::kAggregator,
           [](Arguments& arguments) { return &arguments.token_file; }),
      Switch("--help", "-h", Sharing::kHelp, [](Arguments& arguments) { return &arguments.help; }),
      Value("--workers-address", TakeWorkersAddress),
      Text("--role", std::nullopt, [](Arguments& arguments) { return &arguments.role; }),
      Text("--jobs", std::nullopt, [](Arguments& arguments) { return &arguments.jobs; }),
      Text("--name", std::nullopt, [](Arguments& arguments) { return &arguments.name; }),
      Text("--grants", std::nullopt, [](Arguments& arguments) { return &arguments.grants; }),
      Value("--host",
            [](const std::string& value, Arguments& arguments) {
              arguments.names.push_back(value);
              return absl::OkStatus();
            }),
      Value("--lifetime",
            [](const std::string& value, Arguments& arguments) {
              return TakeDuration(value, arguments.lifetime);
            }),
      Value("--last", TakeLast),
      Value("--status", TakeExitStatus),
      Value("--after",
            [](const std::string& value, Arguments& arguments) {
              return TakeNumber(value, ~uint64_t{0}, arguments.after);
            }),
      Text("--job", std::nullopt, [](Arguments& arguments) { return &arguments.job; }),
      Text("--lane", std::nullopt, [](Arguments& arguments) { return &arguments.lane; }),
      Text("--reason", std::nullopt, [](Arguments& arguments) { return &arguments.reason; }),
      Switch("--follow", "-f", std::nullopt,
             [](Arguments& arguments) { return &arguments.follow; }),
      Switch("--watch", "-w", std::nullopt, [](Arguments& arguments) { return &arguments.watch; }),
      Value("--interval",
            [](const std::string& value, Arguments& arguments) {
              return TakeDuration(value, arguments.interval);
            }),
      Value("--times",
            [](const std::string& value, Arguments& arguments) {
              return TakeNumber(value, ~uint64_t{0}, arguments.times);
            }),
      Value("--min",
            [](const std::string& value, Arguments& arguments) {
              return TakePositive(value, kMostWorkers, arguments.min_workers);
            }),
      Value("--max",
            [](const std::string& value, Arguments& arguments) {
              return TakePositive(value, kMostWorkers, arguments.max_workers);
            }),
      Text("--loss-policy", std::nullopt,
           [](Arguments& arguments) { return &arguments.loss_policy; }),
      Text("--late-policy", std::nullopt,
           [](Arguments& arguments) { return &arguments.late_policy; }),
      Value("--workers",
            [](const std::string& value, Arguments& arguments) {
              return TakePositive(value, kMostWorkers, arguments.workers);
            }),
      Value("--model",
            [](const std::string& value, Arguments& arguments) {
              return TakeBytes(value, arguments.model_bytes);
            }),
      Value("--nic", [](const std::string& value,
                        Arguments& arguments) { return TakeBandwidth(value, arguments.nic_bits); }),
      Value("--shard-nic",
            [](const std::string& value, Arguments& arguments) {
              return TakeBandwidth(value, arguments.shard_nic_bits);
            }),
      Value("--shards",
            [](const std::string& value, Arguments& arguments) {
              return TakePositive(value, kMostPlannedShards, arguments.shards);
            }),
      Value("--within", [](const std::string& value,
                           Arguments& arguments) { return TakeDuration(value, arguments.within); }),
      Value("--round-trip",
            [](const std::string& value, Arguments& arguments) {
              return TakeDuration(value, arguments.round_trip);
            }),
      Value("--memory",
            [](const std::string& value, Arguments& arguments) {
              return TakeBytes(value, arguments.memory_bytes);
            }),
      Value("--rounds",
            [](const std::string& value, Arguments& arguments) {
              return TakePositive(value, kMostBenchRounds, arguments.rounds);
            }),
      Switch("--beside-others", "", std::nullopt,
             [](Arguments& arguments) { return &arguments.beside_others; }),
      Switch("--merge", "", std::nullopt, [](Arguments& arguments) { return &arguments.merge; }),
      Text("--file", std::nullopt, [](Arguments& arguments) { return &arguments.file; }),
  };
}

}  // namespace

absl::StatusOr<Arguments> ReadArguments(const std::vector<std::string>& arguments,
                                        const Environment& environment) {
  const std::vector<Flag> flags = Flags();
  Arguments read;
  read.tls = environment.tls;
  read.token_file = environment.token_file;
  read.job_of_worker = environment.job;
  if (!environment.address.empty()) {
    if (const absl::Status taken = TakeOperatorsAddress(environment.address, read); !taken.ok()) {
      return Wrong(absl::StrCat("BASIN_ADMIN_ADDRESS: ", taken.message()));
    }
  }
  // Not checked: most commands do not use it, and for trainers it may be any target of gRPC.
  if (!environment.workers_address.empty()) {
    read.workers_address = environment.workers_address;
    read.workers_address_given = true;
  }
  std::vector<std::string> known;
  known.reserve(flags.size());
  for (const Flag& flag : flags) known.push_back(flag.name);
  FlagReader given(arguments);
  while (given.Next()) {
    const std::string& name = given.name();
    if (!given.is_flag()) {
      read.words.push_back(name);
      continue;
    }
    const auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag& candidate) {
      return candidate.name == name || (!candidate.letter.empty() && candidate.letter == name);
    });
    if (flag == flags.end()) return Wrong(WhyNoFlag(name, known));
    (flag->shared.has_value() ? read.shared_flags : read.own_flags).push_back(flag->shown());
    if (!flag->takes_value && given.has_value()) return Wrong(name + " takes no value");
    if (flag->takes_value && !given.ReadValue()) return Wrong(name + " needs a value");
    if (const absl::Status taken = flag->take(given.value(), read); !taken.ok()) {
      return Wrong(absl::StrCat(name, " is ", QuoteForError(given.value()), ": ", taken.message()));
    }
  }
  return read;
}

std::vector<FlagName> FlagNames() {
  std::vector<FlagName> names;
  for (const Flag& flag : Flags()) names.push_back(flag);
  return names;
}

}  // namespace basin::aggregator
