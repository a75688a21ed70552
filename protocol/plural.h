// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A number with its noun, as a person writes it.
//
// Thread contract: a pure function.

#ifndef BASIN_PROTOCOL_PLURAL_H_
#define BASIN_PROTOCOL_PLURAL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace basin {

// "1 member", "2 members". REQUIRES: the plural of `noun` ends with an added s.
inline std::string CountOf(uint64_t count, std::string_view noun) {
  return absl::StrCat(count, " ", std::string(noun), count == 1 ? "" : "s");
}

}  // namespace basin

#endif  // BASIN_PROTOCOL_PLURAL_H_
