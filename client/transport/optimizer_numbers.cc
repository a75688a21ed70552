// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/optimizer_numbers.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_split.h"
#include "kernels/checksum.h"

namespace basin::client {

void SetOptimizer(BeginRound& begin, const std::string& text) {
  if (text.empty()) return;
  begin.optimizer = std::max<uint64_t>(kernels::ChecksumOf(text.data(), text.size()), 1);
  begin.optimizer_numbers = absl::StrSplit(text, '\n', absl::SkipEmpty());
}

}  // namespace basin::client
