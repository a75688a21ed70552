// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/table.h"

#include <algorithm>
#include <utility>

#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {

TextTable::TextTable(std::vector<std::string> titles) { rows_.push_back(std::move(titles)); }

void TextTable::Add(std::vector<std::string> cells) {
  for (std::string& cell : cells) {
    cell = cell.empty() ? "-" : PrintableText(cell, kMaxTextBytes);
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::Text() const {
  std::vector<size_t> widths(rows_.front().size());
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < widths.size(); ++i) {
      text += row[i];
      // Nothing behind the last column.
      if (i + 1 < widths.size()) text.append(widths[i] - row[i].size() + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace basin::aggregator
