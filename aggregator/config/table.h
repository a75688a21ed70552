// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Every option of the aggregator, in one table. Flags, environment, file, help, schema and the
// reference page all come from it.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CONFIG_TABLE_H_
#define BASIN_AGGREGATOR_CONFIG_TABLE_H_

#include <string_view>
#include <vector>

#include "aggregator/config/option.h"

namespace basin::aggregator {

// In the order of display: options of one section, the first word of the key, are adjacent.
std::vector<Option> OptionTable();

// The description of a section.
std::string_view SectionHelp(std::string_view section);

// The word before the first dot.
std::string_view SectionOf(std::string_view key);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CONFIG_TABLE_H_
