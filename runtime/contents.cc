// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/contents.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace basin {
namespace {

// Hashes bytes that arrive in pieces of any length.
class Hasher {
 public:
  explicit Hasher(uint64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  void Add(std::string_view bytes) {
    while (!bytes.empty()) {
      const uint64_t taken = std::min<uint64_t>(bytes.size(), chunk_bytes_ - filled_);
      content_.Update(bytes.data(), taken);
      bytes.remove_prefix(taken);
      filled_ += taken;
      if (filled_ == chunk_bytes_) EndChunk();
    }
  }
  void EndTensor() {
    if (filled_ > 0) EndChunk();
  }
  ChunkContents Take() { return std::move(contents_); }

 private:
  void EndChunk() {
    contents_.push_back(content_.Finish());
    filled_ = 0;
  }

  const uint64_t chunk_bytes_;
  kernels::ContentDigest content_;
  uint64_t filled_ = 0;
  ChunkContents contents_;
};

}  // namespace

ChunkContents HashChunks(absl::Span<const std::string_view> pieces, uint64_t chunk_bytes) {
  Hasher hasher(chunk_bytes);
  for (const std::string_view piece : pieces) hasher.Add(piece);
  hasher.EndTensor();
  return hasher.Take();
}

ChunkContents HashRuns(absl::Span<const std::string_view> pieces, const ChunkRuns& runs,
                       uint64_t chunk_bytes) {
  Hasher hasher(chunk_bytes);
  size_t next = 0;
  std::string_view piece;
  for (const ChunkRun& run : runs) {
    for (uint64_t left = run.bytes; left > 0;) {
      while (piece.empty()) piece = pieces[next++];
      const std::string_view part = piece.substr(0, left);
      hasher.Add(part);
      piece.remove_prefix(part.size());
      left -= part.size();
    }
    hasher.EndTensor();
  }
  return hasher.Take();
}

}  // namespace basin
