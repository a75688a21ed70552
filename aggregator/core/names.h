// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Names of many workers in a sentence that a person reads.
//
// Thread contract: a pure function.

#ifndef BASIN_AGGREGATOR_CORE_NAMES_H_
#define BASIN_AGGREGATOR_CORE_NAMES_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin::aggregator {

// A text about missing workers names no more of them than this.
inline constexpr size_t kNamedMissing = 8;

// One about late workers no more than this, and no more tensors of each.
inline constexpr size_t kNamedLate = 3;

// "w-3, w-7 and 2 more": the first `most` of them.
inline std::string NamesOf(const std::vector<std::string>& names, size_t most) {
  const size_t named = std::min(names.size(), most);
  const size_t more = names.size() - named;
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + static_cast<ptrdiff_t>(named), ", "),
      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_NAMES_H_
