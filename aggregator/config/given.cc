// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/config/given.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "aggregator/text/flags.h"
#include "aggregator/text/nearest.h"
#include "protocol/limits/client_options.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

constexpr char kVariablePrefix[] = "BASIN_";

// The other variables of Basin, beside those of clients: of libraries, basin-run and basinctl,
// because an aggregator may be started beside one; and the name of the file.
constexpr std::string_view kForeignVariables[] = {
    "BASIN_LIBRARY",      "BASIN_BASIND",         "BASIN_CONFIG",      "BASIN_ADMIN_ADDRESS",
    "BASIN_RUN_PROCESS",  "BASIN_RUN_RANK",       "BASIN_RUN_SIZE",    "BASIN_RUN_MACHINE",
    "BASIN_RUN_MACHINES", "BASIN_WORKER_PROCESS", "BASIN_PROGRESS_POD"};

// A name that differs from that of an option by so few letters is one that was mistyped.
constexpr size_t kMistypedLetters = 2;

// Kubernetes sets variables in every container for each service of its namespace: for a service
// called basin, BASIN_SERVICE_HOST, BASIN_PORT, BASIN_PORT_29600_TCP_ADDR and others.
bool IsServiceLink(const std::string& name) {
  return absl::StrContains(name, "_SERVICE_HOST") || absl::StrContains(name, "_SERVICE_PORT") ||
         absl::EndsWith(name, "_PORT") || absl::StrContains(name, "_PORT_");
}

bool IsOfClient(const std::string& name) {
  return std::any_of(std::begin(kClientOptions), std::end(kClientOptions),
                     [&](std::string_view option) { return name == VariableOf(option); });
}

bool IsForeign(const std::string& name) {
  return IsServiceLink(name) || IsOfClient(name) ||
         std::find(std::begin(kForeignVariables), std::end(kForeignVariables), name) !=
             std::end(kForeignVariables);
}

// The option whose name, made from its key by `name_of`, is `name`.
template <typename NameOf>
const Option* Find(const std::vector<Option>& table, NameOf name_of, const std::string& name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Option& option) {
    return name_of(option.key) == name;
  });
  return found == table.end() ? nullptr : &*found;
}

template <typename NameOf>
std::vector<std::string> Names(const std::vector<Option>& table, NameOf name_of) {
  std::vector<std::string> names;
  names.reserve(table.size());
  for (const Option& option : table) names.push_back(name_of(option.key));
  return names;
}

bool IsSwitch(const Option& option) {
  const auto* choice = std::get_if<ChoiceType>(&option.type);
  return choice != nullptr && IsBoolean(*choice);
}

void ReadOptionFlag(const Option& option, FlagReader& flags, std::set<std::string>& seen,
                    Findings& findings) {
  const std::string& flag = flags.name();
  if (!seen.insert(flag).second) {
    findings.problems.push_back(flag + " is set twice; set it once");
  }
  if (IsSwitch(option) && !flags.has_value()) {
    findings.given.push_back({option.key, "true", Source::kFlag, flag});
  } else if (flags.ReadValue()) {
    findings.given.push_back({option.key, flags.value(), Source::kFlag, flag});
  } else {
    findings.problems.push_back(
        absl::StrCat(flag, " needs a value: ", flag, "=", option.fallback, ", for example"));
  }
}

void ReadOwnFlag(const ProgramFlag& flag, FlagReader& flags,
                 std::map<std::string, std::string>& own, Findings& findings) {
  if (flag.takes_value ? !flags.ReadValue() : flags.has_value()) {
    findings.problems.push_back(flag.name +
                                (flag.takes_value ? " needs a value" : " takes no value"));
    return;
  }
  own[flag.name] = flags.value();
}

}  // namespace

const char* SourceName(Source source) {
  switch (source) {
    case Source::kDefault:
      return "default";
    case Source::kFile:
      return "file";
    case Source::kEnvironment:
      return "environment";
    case Source::kFlag:
      return "flag";
  }
  return "unknown";
}

void ReadEnvironment(const std::vector<Option>& table, const std::vector<std::string>& variables,
                     Findings& findings) {
  const std::vector<std::string> known = Names(table, VariableOf);
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos || !absl::StartsWith(variable, kVariablePrefix)) continue;
    const std::string name = variable.substr(0, equals);
    if (const Option* option = Find(table, VariableOf, name); option != nullptr) {
      findings.given.push_back(
          {option->key, variable.substr(equals + 1), Source::kEnvironment, name});
      continue;
    }
    if (IsForeign(name)) continue;
    const std::string unknown =
        absl::StrCat("environment: ", QuoteForError(name), " is not an option");
    const bool mistyped = std::any_of(known.begin(), known.end(), [&](const std::string& option) {
      return EditDistance(name, option) <= kMistypedLetters;
    });
    if (mistyped) {
      findings.problems.push_back(
          absl::StrCat(unknown, "; ", DidYouMean(kVariablePrefix, name, known)));
    } else {
      findings.ignored.push_back(absl::StrCat(unknown, ", and is ignored"));
    }
  }
}

std::map<std::string, std::string> ReadFlags(const std::vector<Option>& table,
                                             const std::vector<ProgramFlag>& own,
                                             const std::vector<std::string>& arguments,
                                             Findings& findings) {
  std::vector<std::string> known = Names(table, FlagOf);
  for (const ProgramFlag& flag : own) known.push_back(flag.name);
  std::map<std::string, std::string> found;
  std::set<std::string> seen;
  FlagReader flags(arguments);
  while (flags.Next()) {
    const auto flag = std::find_if(own.begin(), own.end(), [&](const ProgramFlag& candidate) {
      return candidate.name == flags.name();
    });
    if (flag != own.end()) {
      ReadOwnFlag(*flag, flags, found, findings);
    } else if (const Option* option = Find(table, FlagOf, flags.name()); option != nullptr) {
      ReadOptionFlag(*option, flags, seen, findings);
    } else if (flags.is_flag()) {
      findings.problems.push_back(WhyNoFlag(flags.name(), known));
      flags.ReadValue();  // Most likely its own.
    } else {
      findings.problems.push_back(
          absl::StrCat(QuoteForError(flags.name()), " is not a flag; flags begin with --"));
    }
  }
  return found;
}

}  // namespace basin::aggregator
