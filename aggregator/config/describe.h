// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The option table and a configuration for people and tools to read.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CONFIG_DESCRIBE_H_
#define BASIN_AGGREGATOR_CONFIG_DESCRIBE_H_

#include <string>
#include <vector>

#include "aggregator/config/configuration.h"
#include "aggregator/config/option.h"

namespace basin::aggregator {

// A file that results in this configuration on any machine. With `sources` each line ends with a
// comment that has the source of its value.
std::string PrintConfiguration(const std::vector<Option>& table, const Configuration& configuration,
                               bool sources);

// JSON Schema, draft 2020-12, of the file.
std::string JsonSchema(const std::vector<Option>& table);

// The reference page of the documentation.
std::string MarkdownPage(const std::vector<Option>& table);

// The flags with their help, for --help.
std::string FlagHelp(const std::vector<Option>& table);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CONFIG_DESCRIBE_H_
