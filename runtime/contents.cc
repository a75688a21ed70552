// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/contents.h"

#include <algorithm>
#include <string_view>

namespace basin {

ChunkContents HashChunks(absl::Span<const std::string_view> pieces, uint64_t chunk_bytes) {
  ChunkContents contents;
  kernels::ContentDigest content;
  uint64_t filled = 0;
  for (std::string_view piece : pieces) {
    while (!piece.empty()) {
      const uint64_t taken = std::min<uint64_t>(piece.size(), chunk_bytes - filled);
      content.Update(piece.data(), taken);
      piece.remove_prefix(taken);
      filled += taken;
      if (filled == chunk_bytes) {
        contents.push_back(content.Finish());
        filled = 0;
      }
    }
  }
  if (filled > 0) contents.push_back(content.Finish());
  return contents;
}

}  // namespace basin
