// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/config/given.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "aggregator/text/nearest.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

constexpr char kVariablePrefix[] = "BASIN_";

// The variables of clients of Basin and of basinctl, because an aggregator may be started beside
// one; and the name of the file.
constexpr std::string_view kForeignVariables[] = {
    "BASIN_ADDRESS",     "BASIN_JOB",           "BASIN_RUN_ID",        "BASIN_WORKER_ID",
    "BASIN_TOKEN_FILE",  "BASIN_TLS_CA",        "BASIN_TLS_CERT",      "BASIN_TLS_KEY",
    "BASIN_MIN_WORKERS", "BASIN_MAX_WORKERS",   "BASIN_START_WORKERS", "BASIN_FRESH",
    "BASIN_STREAMS",     "BASIN_ROUND_TIMEOUT", "BASIN_COMPRESSION",   "BASIN_TIMELINE",
    "BASIN_LIBRARY",     "BASIN_BASIND",        "BASIN_CONFIG",        "BASIN_ADMIN_ADDRESS",
    "BASIN_RUN_PROCESS"};

// Kubernetes sets variables in every container for each service of its namespace: for a service
// called basin, BASIN_SERVICE_HOST, BASIN_PORT, BASIN_PORT_29600_TCP_ADDR and others.
bool IsServiceLink(const std::string& name) {
  return absl::StrContains(name, "_SERVICE_HOST") || absl::StrContains(name, "_SERVICE_PORT") ||
         absl::EndsWith(name, "_PORT") || absl::StrContains(name, "_PORT_");
}

bool IsForeign(const std::string& name) {
  return IsServiceLink(name) ||
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

// The arguments of one command line, from left to right.
class Arguments {
 public:
  explicit Arguments(const std::vector<std::string>& arguments) : rest_(arguments) {}

  // Splits the next argument at its first '='. False at the end.
  bool Next() {
    if (at_ == rest_.size()) return false;
    const std::string& argument = rest_[at_++];
    const size_t equals = argument.find('=');
    has_value_ = equals != std::string::npos;
    name_ = argument.substr(0, equals);
    value_ = has_value_ ? argument.substr(equals + 1) : "";
    return true;
  }
  // The value behind '=', or else the next argument unless it is a flag itself.
  bool OnValue() {
    if (has_value_) return true;
    if (at_ == rest_.size() || absl::StartsWith(rest_[at_], "--")) return false;
    value_ = rest_[at_++];
    return true;
  }

  const std::string& name() const { return name_; }
  const std::string& value() const { return value_; }
  bool has_value() const { return has_value_; }

 private:
  const std::vector<std::string>& rest_;
  size_t at_ = 0;
  std::string name_;
  std::string value_;
  bool has_value_ = false;
};

void ReadOptionFlag(const Option& option, Arguments& arguments, std::set<std::string>& seen,
                    Findings& findings) {
  const std::string& flag = arguments.name();
  if (!seen.insert(flag).second) {
    findings.problems.push_back(flag + " is set twice; set it once");
  }
  if (IsSwitch(option) && !arguments.has_value()) {
    findings.given.push_back({option.key, "true", Source::kFlag, flag});
  } else if (arguments.OnValue()) {
    findings.given.push_back({option.key, arguments.value(), Source::kFlag, flag});
  } else {
    findings.problems.push_back(
        absl::StrCat(flag, " needs a value: ", flag, "=", option.fallback, ", for example"));
  }
}

void ReadOwnFlag(const ProgramFlag& flag, Arguments& arguments,
                 std::map<std::string, std::string>& own, Findings& findings) {
  if (flag.takes_value ? !arguments.OnValue() : arguments.has_value()) {
    findings.problems.push_back(flag.name +
                                (flag.takes_value ? " needs a value" : " takes no value"));
    return;
  }
  own[flag.name] = arguments.value();
}

// All names have the prefix, so it does not count for the distance.
std::string DidYouMean(const std::string& prefix, const std::string& name,
                       const std::vector<std::string>& known) {
  std::vector<std::string> rest;
  rest.reserve(known.size());
  for (const std::string& candidate : known) rest.push_back(candidate.substr(prefix.size()));
  const std::string nearest = Nearest(name.substr(prefix.size()), rest);
  return nearest.empty() ? "; see --help" : "; did you mean " + prefix + nearest + "?";
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
    findings.problems.push_back(absl::StrCat("environment: ", QuoteForError(name),
                                             " is not an option",
                                             DidYouMean(kVariablePrefix, name, known)));
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
  Arguments rest(arguments);
  while (rest.Next()) {
    const auto flag = std::find_if(own.begin(), own.end(), [&](const ProgramFlag& candidate) {
      return candidate.name == rest.name();
    });
    if (flag != own.end()) {
      ReadOwnFlag(*flag, rest, found, findings);
    } else if (const Option* option = Find(table, FlagOf, rest.name()); option != nullptr) {
      ReadOptionFlag(*option, rest, seen, findings);
    } else if (absl::StartsWith(rest.name(), "--")) {
      findings.problems.push_back(absl::StrCat(QuoteForError(rest.name()), " is not a flag",
                                               DidYouMean("--", rest.name(), known)));
      rest.OnValue();  // Most likely its own.
    } else {
      findings.problems.push_back(
          absl::StrCat(QuoteForError(rest.name()), " is not a flag; flags begin with --"));
    }
  }
  return found;
}

}  // namespace basin::aggregator
