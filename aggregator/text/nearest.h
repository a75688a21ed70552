// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Finds the known name that is nearest to an unknown one.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_TEXT_NEAREST_H_
#define BASIN_AGGREGATOR_TEXT_NEAREST_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace basin::aggregator {

// The number of characters to insert, remove, replace or swap with their neighbour to turn one into
// the other (optimal string alignment).
size_t EditDistance(std::string_view a, std::string_view b);

// The known name that is nearest to `name`; empty when none is near. The beginning or the end of a
// name ("warn" of "warning", "lease" of "worker.lease") is near too.
std::string Nearest(std::string_view name, const std::vector<std::string>& known);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TEXT_NEAREST_H_
