// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Columns of text under a line of titles.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CTL_TABLE_H_
#define BASIN_AGGREGATOR_CTL_TABLE_H_

#include <string>
#include <vector>

namespace basin::aggregator {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> titles);

  // One cell for each title. Characters that cannot be printed on one line are replaced.
  void Add(std::vector<std::string> cells);

  // Columns as wide as their widest cell; an empty cell is "-".
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_TABLE_H_
