// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The texts that were given for options, with their origins: on the command line, in the
// environment, in a file. Reading continues after a mistake, so that all of them can be reported at
// once.
//
// Thread contract: plain values and pure functions.
// Failure: mistakes are collected in Findings::problems, each a sentence that names the origin, the
// key, and what to do.

#ifndef BASIN_AGGREGATOR_CONFIG_GIVEN_H_
#define BASIN_AGGREGATOR_CONFIG_GIVEN_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "aggregator/config/option.h"

namespace basin::aggregator {

// The later one counts.
enum class Source : uint8_t { kDefault = 0, kFile = 1, kEnvironment = 2, kFlag = 3 };

// "default", "file", "environment", "flag".
const char* SourceName(Source source);

struct Given {
  std::string key;  // The key of an option of the table.
  std::string text;
  Source source = Source::kDefault;
  std::string origin;  // "basind.yaml:12", "BASIN_LOG_LEVEL", "--log-level"; empty for a default.
};

struct Findings {
  std::vector<Given> given;
  std::vector<std::string> problems;
  std::vector<std::string> ignored;  // Variables of another program, perhaps, in a sentence each.
};

// Variables "NAME=value"; those that do not begin with BASIN_ are left out, as are those of clients
// and those that Kubernetes sets for a service called basin. Another unknown one is a problem if it
// is nearly the name of an option, and otherwise reported as ignored.
void ReadEnvironment(const std::vector<Option>& table, const std::vector<std::string>& variables,
                     Findings& findings);

// A flag of a program that is no option.
struct ProgramFlag {
  std::string name;          // "--sources"
  bool takes_value = false;  // "--config FILE" or "--config=FILE"
};

// "--key value" or "--key=value"; for an option that is true or false, "--key" alone is true.
// Returns the program's own flags with their values.
std::map<std::string, std::string> ReadFlags(const std::vector<Option>& table,
                                             const std::vector<ProgramFlag>& own,
                                             const std::vector<std::string>& arguments,
                                             Findings& findings);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CONFIG_GIVEN_H_
