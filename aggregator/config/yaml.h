// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A configuration file: YAML, one document, sections with options in them.
//
//   worker:
//     lease: 10s
//   log:
//     level: debug
//
// Features that a file of options does not need are refused: anchors, aliases, tags, lists.
//
// Thread contract: a pure function.
// Failure: as in given.h.

#ifndef BASIN_AGGREGATOR_CONFIG_YAML_H_
#define BASIN_AGGREGATOR_CONFIG_YAML_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "aggregator/config/given.h"
#include "aggregator/config/option.h"

namespace basin::aggregator {

// The largest file; it has room for every option with a page of comment each.
inline constexpr size_t kMaxFileBytes = size_t{1} << 20;

// `name` is the name of the file in messages.
void ReadYaml(const std::vector<Option>& table, const std::string& name, std::string_view text,
              Findings& findings);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CONFIG_YAML_H_
