// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/statusz/plot.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "absl/strings/str_format.h"

namespace basin::aggregator {
namespace {

// In the units of the viewBox below; the page decides the size on the screen.
constexpr double kWidth = 300;
constexpr double kHeight = 60;
constexpr double kTop = 3;  // Room for the line's width.

void Begin(Html& svg, std::string_view what) {
  svg.Tag("<svg viewBox=\"0 0 300 60\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"")
      .Text(what)
      .Tag("\">");
}

std::string Number(double value) { return absl::StrFormat("%.1f", value); }

// From the top of the plot.
double HeightOf(double value, double largest) {
  return kHeight - (largest > 0 ? value / largest : 0) * (kHeight - kTop);
}

void EndLine(Html& svg, std::string& points, size_t& count) {
  if (count == 1) {  // A line of one point is invisible.
    svg.Tag("<circle r=\"2\" cx=\"")
        .Text(points.substr(0, points.find(',')))
        .Tag("\" cy=\"")
        .Text(points.substr(points.find(',') + 1))
        .Tag("\"/>");
  } else if (count > 1) {
    svg.Tag("<polyline points=\"").Text(points).Tag("\"/>");
  }
  points.clear();
  count = 0;
}

}  // namespace

Html LinePlot(std::string_view what, const std::vector<std::optional<double>>& values) {
  double largest = 0;
  for (const std::optional<double>& value : values) {
    if (value.has_value() && std::isfinite(*value)) largest = std::max(largest, *value);
  }
  const double step = values.size() < 2 ? 0 : kWidth / static_cast<double>(values.size() - 1);
  Html svg;
  Begin(svg, what);
  std::string points;
  size_t count = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].has_value() || !std::isfinite(*values[i])) {
      EndLine(svg, points, count);
      continue;
    }
    if (count++ > 0) points += ' ';
    points += Number(static_cast<double>(i) * step) + "," + Number(HeightOf(*values[i], largest));
  }
  EndLine(svg, points, count);
  svg.Tag("</svg>");
  return svg;
}

Html BarPlot(std::string_view what, const std::vector<BarParts>& bars) {
  double largest = 0;
  for (const BarParts& bar : bars) {
    largest = std::max(largest, std::accumulate(bar.begin(), bar.end(), 0.0));
  }
  const double step = kWidth / static_cast<double>(std::max<size_t>(bars.size(), 1));
  Html svg;
  Begin(svg, what);
  for (size_t i = 0; i < bars.size(); ++i) {
    double below = 0;
    for (size_t part = 0; part < bars[i].size(); ++part) {
      const double top = HeightOf(below + bars[i][part], largest);
      const double height = HeightOf(below, largest) - top;
      below += bars[i][part];
      if (height <= 0) continue;
      svg.Tag("<rect class=\"part")
          .Text(std::to_string(part))
          .Tag("\" x=\"")
          .Text(Number(static_cast<double>(i) * step))
          .Tag("\" y=\"")
          .Text(Number(top))
          .Tag("\" width=\"")
          .Text(Number(std::max(step - 1, 1.0)))
          .Tag("\" height=\"")
          .Text(Number(height))
          .Tag("\"/>");
    }
  }
  svg.Tag("</svg>");
  return svg;
}

}  // namespace basin::aggregator
