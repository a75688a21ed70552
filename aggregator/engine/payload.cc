// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/payload.h"

#include <algorithm>

namespace basin::aggregator {

void AppendPieces(const PayloadPart& part, std::vector<kernels::Slice>& slices) {
  uint64_t skip = part.offset;
  uint64_t left = part.size;
  for (const std::string_view piece : part.owner->pieces()) {
    if (left == 0) return;
    if (skip >= piece.size()) {
      skip -= piece.size();
      continue;
    }
    const uint64_t taken = std::min<uint64_t>(left, piece.size() - skip);
    slices.push_back({piece.data() + skip, static_cast<size_t>(taken)});
    skip = 0;
    left -= taken;
  }
}

void PayloadParts::Append(const PayloadPart& part) {
  if (!parts_.empty()) {
    PayloadPart& last = parts_.back();
    if (last.owner == part.owner && last.offset + last.size == part.offset) {
      last.size += part.size;
      return;
    }
  }
  parts_.push_back(part);
}

void PayloadParts::AppendTo(std::vector<kernels::Slice>& slices) const {
  for (const PayloadPart& part : parts_) AppendPieces(part, slices);
}

uint64_t PayloadParts::bytes() const {
  uint64_t bytes = 0;
  for (const PayloadPart& part : parts_) bytes += part.size;
  return bytes;
}

}  // namespace basin::aggregator
