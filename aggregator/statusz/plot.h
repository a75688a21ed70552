// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Small plots as inline SVG: a line of values, and stacked bars. Their colours are those of the
// page's style sheet.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_STATUSZ_PLOT_H_
#define BASIN_AGGREGATOR_STATUSZ_PLOT_H_

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "aggregator/statusz/html.h"

namespace basin::aggregator {

// From the left, oldest first. Nothing where a value is absent or not finite. The scale begins at
// 0. `what` describes the plot to people who cannot see it.
Html LinePlot(std::string_view what, const std::vector<std::optional<double>>& values);

// One bar for each entry, of three parts from the bottom. REQUIRES: no part is negative.
using BarParts = std::array<double, 3>;
Html BarPlot(std::string_view what, const std::vector<BarParts>& bars);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_STATUSZ_PLOT_H_
