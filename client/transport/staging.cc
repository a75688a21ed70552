// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/staging.h"

#include <algorithm>

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

absl::Status StagedTensor::CopyPart(uint64_t size, uint64_t begin, void* to, uint64_t count) const {
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
  char* copied = static_cast<char*>(to);
  uint64_t at = 0;
  for (const StagedChunk& chunk : chunks_) {
    const uint64_t first = std::max(begin, at);
    const uint64_t end = std::min(begin + count, at + chunk.part.size);
    if (first < end) {
      const PayloadPart part = {chunk.part.owner, chunk.part.offset + (first - at), end - first};
      copied = CopyBytes(part, copied, count >= kBypassCacheBytes);
    }
    at += chunk.part.size;
  }
  return absl::OkStatus();
}

void StagedTensor::MakePrivate() {
  for (StagedChunk& chunk : chunks_) {
    if (chunk.shared == nullptr) continue;
    std::string bytes(chunk.part.size, '\0');
    CopyBytes(chunk.part, bytes.data());
    if (!chunk.intact()) continue;  // Readers must detect it.
    chunk = {{std::make_shared<OwnPayload>(std::move(bytes)), 0, chunk.part.size}, chunk.digest};
  }
}

bool StagedTensor::intact() const {
  return std::all_of(chunks_.begin(), chunks_.end(),
                     [](const StagedChunk& chunk) { return chunk.intact(); });
}

std::vector<std::string_view> StagedTensor::Pieces() const {
  std::vector<std::string_view> pieces;
  for (const StagedChunk& chunk : chunks_) {
    if (chunk.part.owner == nullptr) continue;
    ForEachPiece(chunk.part, [&](std::string_view piece) { pieces.push_back(piece); });
  }
  return pieces;
}

// ---- a round

const StagedTensor& StagedRound::Content::Find(TensorIndex tensor) const {
  static const StagedTensor* const kNothing = new StagedTensor();
  return tensor < tensors.size() ? tensors[tensor] : *kNothing;
}

void StagedRound::Keep(TensorIndex tensor, uint32_t chunk, StagedChunk staged) {
  MutexLock lock(mutex_);
  if (content_->tensors.size() <= tensor) content_->tensors.resize(size_t{tensor} + 1);
  content_->tensors[tensor].Keep(chunk, std::move(staged));
}

std::shared_ptr<const StagedRound::Content> StagedRound::content() const {
  MutexLock lock(mutex_);
  return content_;
}

void StagedRound::MakePrivate() {
  const auto copy = std::make_shared<Content>(*content());
  for (StagedTensor& tensor : copy->tensors) tensor.MakePrivate();
  MutexLock lock(mutex_);
  content_ = copy;
}

}  // namespace basin::client
