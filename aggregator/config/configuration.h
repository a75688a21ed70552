// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The configuration in force: a flag overrides the environment, which overrides the file, which
// overrides the default.
//
// Thread contract: a plain value and pure functions, but for LoadFile.
// Failure: INVALID_ARGUMENT with one line per mistake, all of them.

#ifndef BASIN_AGGREGATOR_CONFIG_CONFIGURATION_H_
#define BASIN_AGGREGATOR_CONFIG_CONFIGURATION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregator/config/given.h"
#include "aggregator/config/machine.h"
#include "aggregator/config/option.h"
#include "aggregator/config/settings.h"

namespace basin::aggregator {

struct Configuration {
  Settings settings;
  std::vector<Given> chosen;  // One for each row of the table, in its order.
};

absl::StatusOr<Configuration> Configure(const std::vector<Option>& table, const Findings& findings,
                                        const Machine& machine);

// Reads the file at `path` into `findings`.
void LoadFile(const std::vector<Option>& table, const std::string& path, Findings& findings);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CONFIG_CONFIGURATION_H_
