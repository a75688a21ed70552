// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/checksum.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/xxh3.h"

namespace basin::kernels {
namespace {

// Small enough that the second pass over a piece finds it in the first-level cache.
constexpr size_t kCopyPieceBytes = size_t{16} << 10;

Digest ToDigest(XXH128_hash_t hash) { return Digest{hash.low64, hash.high64}; }

// Word by word and shifted, so that the bytes are little-endian on every machine.
void PutWord(uint64_t word, unsigned char* bytes) {
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(word >> (8 * i));
}

template <typename Hash>
void CopyPieces(void* destination, const void* source, size_t size, Hash* hash) {
  auto* to = static_cast<unsigned char*>(destination);
  const auto* from = static_cast<const unsigned char*>(source);
  while (size > 0) {
    const size_t piece = std::min(size, kCopyPieceBytes);
    std::memcpy(to, from, piece);
    hash->Update(to, piece);
    to += piece;
    from += piece;
    size -= piece;
  }
}

}  // namespace

uint64_t ChecksumOf(const void* data, size_t size) { return Xxh3Hash64(data, size); }

void Xxh3State::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Xxh3State::Xxh3State() : state_(XXH3_createState()) {
  if (state_ == nullptr) std::abort();  // Out of memory, where `new` would end the process too.
  Reset();
}

// The 64-bit and the 128-bit hash start from the same state.
void Xxh3State::Reset() { XXH3_128bits_reset(state_.get()); }

void Checksum::Update(const void* data, size_t size) {
  if (size > 0) Xxh3Update64(state_.get(), data, size);
}

uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

Digest& Digest::operator+=(Digest other) {
  low += other.low;
  high += other.high + (low < other.low ? 1 : 0);
  return *this;
}

Digest& Digest::operator-=(Digest other) {
  high -= other.high + (low < other.low ? 1 : 0);
  low -= other.low;
  return *this;
}

TensorKey::TensorKey(std::string_view name)
    : name_(ToDigest(Xxh3Hash128(name.data(), name.size()))) {}

Digest TermOf(const TensorKey& tensor, uint64_t block, const Digest& content) {
  const uint64_t words[] = {tensor.name_.low, tensor.name_.high, block, content.low, content.high};
  unsigned char bytes[sizeof(words)];
  for (size_t i = 0; i < 5; ++i) PutWord(words[i], bytes + 8 * i);
  return ToDigest(Xxh3Hash128(bytes, sizeof(bytes)));
}

void ContentDigest::Update(const void* data, size_t size) {
  if (size > 0) Xxh3Update128(state_.get(), data, size);
}

Digest ContentDigest::Finish() {
  const Digest content = ToDigest(XXH3_128bits_digest(state_.get()));
  Reset();
  return content;
}

RangeDigest::RangeDigest(const TensorKey& tensor, uint64_t first_block)
    : tensor_(tensor), block_(first_block) {}

void RangeDigest::Restart(const TensorKey& tensor, uint64_t first_block) {
  tensor_ = tensor;
  block_ = first_block;
  filled_ = 0;
  empty_ = true;
  sum_ = Digest{};
  Reset();
}

void RangeDigest::Update(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  while (size > 0) {
    empty_ = false;
    const size_t piece = std::min(size, kDigestBlockBytes - filled_);
    Xxh3Update128(state_.get(), bytes, piece);
    filled_ += piece;
    if (filled_ == kDigestBlockBytes) EndBlock();
    bytes += piece;
    size -= piece;
  }
}

Digest RangeDigest::Finish() {
  if (filled_ > 0 || empty_) EndBlock();
  return sum_;
}

void RangeDigest::EndBlock() {
  sum_ += TermOf(tensor_, block_, ToDigest(XXH3_128bits_digest(state_.get())));
  ++block_;
  filled_ = 0;
  Reset();
}

void CopyAndHash(void* destination, const void* source, size_t size, Checksum* hash) {
  CopyPieces(destination, source, size, hash);
}

void CopyAndHash(void* destination, const void* source, size_t size, RangeDigest* hash) {
  CopyPieces(destination, source, size, hash);
}

}  // namespace basin::kernels
