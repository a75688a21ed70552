// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/staging.h"

#include "absl/strings/str_cat.h"

namespace basin::client {

namespace {

// The size of a tensor that does not fit the nearest caches together with its copy.
constexpr uint64_t kBypassCacheBytes = uint64_t{1} << 20;

}  // namespace

void StagedTensor::Keep(uint32_t chunk, StagedChunk staged) {
  if (chunks_.size() <= chunk) chunks_.resize(size_t{chunk} + 1);
  chunks_[chunk] = std::move(staged);
}

const StagedChunk* StagedTensor::Find(uint32_t chunk) const {
  if (chunk >= chunks_.size() || chunks_[chunk].part.owner == nullptr) return nullptr;
  return &chunks_[chunk];
}

absl::Status StagedTensor::CopyTo(void* to, uint64_t size) const {
  uint64_t held = 0;
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    if (Find(chunk) == nullptr) {
      return absl::DataLossError(absl::StrCat("chunk ", chunk, " was never received"));
    }
    held += chunks_[chunk].part.size;
  }
  if (held != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the destination has ", size, " bytes and the tensor ", held));
  }
  char* at = static_cast<char*>(to);
  for (const StagedChunk& chunk : chunks_) {
    at = CopyBytes(chunk.part, at, size >= kBypassCacheBytes);
  }
  return absl::OkStatus();
}

std::vector<std::string_view> StagedTensor::Pieces() const {
  std::vector<std::string_view> pieces;
  for (const StagedChunk& chunk : chunks_) {
    if (chunk.part.owner == nullptr) continue;
    ForEachPiece(chunk.part, [&](std::string_view piece) { pieces.push_back(piece); });
  }
  return pieces;
}

}  // namespace basin::client
