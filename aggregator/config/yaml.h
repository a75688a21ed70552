// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A configuration file: YAML, one document, sections with options in them.
//
//   worker:
//     lease: 10s
//   log:
//     level: debug
//
// What a file of options does not need is refused: anchors, aliases, tags, lists.
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

// Of a file; every option with a page of comment each fits.
inline constexpr size_t kMaxFileBytes = size_t{1} << 20;

// `name` is what the file is called in messages.
void ReadYaml(const std::vector<Option>& table, const std::string& name, std::string_view text,
              Findings& findings);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CONFIG_YAML_H_
