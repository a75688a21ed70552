// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The chunks of blobs that the runner keeps, so that one answer serves many workers.

#include <algorithm>
#include <utility>

#include "aggregator/core/blobs.h"

namespace basin::aggregator {
namespace {

// The kept blobs of all jobs may use one part in kCacheShare of the budget: rounds come first.
constexpr uint64_t kCacheShare = 4;

}  // namespace

void Blobs::ServeCached(const BlobScope& scope, const Key& key, Entry& entry, Request& request) {
  const auto known = entry.known.find(request.slot);
  const Worker& receiver = scope.workers[request.slot];
  if (!entry.cached.has_value() || known == entry.known.end() || !receiver.connected()) return;
  if (known->second.digest != entry.cached->value.digest) return;
  if (request.first < known->second.sent) {
    Drop(scope, key, entry);
    return;
  }
  const uint64_t frame = std::max<uint64_t>(1, scope.config.frame_bytes / kChunkBytes);
  while (request.count > 0 && entry.cached->chunks.Test(request.first)) {
    SendBlob send{scope.job, NameOf(key), request.first, 0, *receiver.session};
    while (send.count < std::min<uint64_t>(frame, request.count) &&
           entry.cached->chunks.Test(uint64_t{send.first} + send.count)) {
      ++send.count;
    }
    request.first += send.count;
    request.count -= send.count;
    known->second.sent = request.first;
    scope.actions.push_back(std::move(send));
  }
  Use(key, *entry.cached);
}

bool Blobs::MayCache(const BlobScope& scope, Entry& entry, const Holding& value) {
  if (entry.cached.has_value()) return entry.cached->value == value;
  const uint64_t bytes = *TensorBytes(value.spec);
  const uint64_t share = scope.memory.total / kCacheShare;
  const auto fits = [&] {
    return bytes <= scope.memory.free() && scope.memory.cached + bytes <= share;
  };
  if (bytes > share) return false;
  // Only kept blobs of this job make room; memory of lanes and other jobs cannot be taken.
  while (!fits() && !uses_.empty()) {
    const Key oldest = uses_.begin()->second;
    const auto it = entries_.find(oldest);
    Drop(scope, oldest, it->second);
    if (it->second.unused()) Erase(scope, it);
  }
  if (!fits()) return false;
  entry.cached = Cached{value, Bitmap(ChunkCount(bytes)), bytes, 0};
  scope.memory.reserved += bytes;
  scope.memory.cached += bytes;
  return true;
}

void Blobs::Use(const Key& key, Cached& cached) {
  uses_.erase(cached.use);
  cached.use = ++next_use_;
  uses_.emplace(cached.use, key);
}

void Blobs::Drop(const BlobScope& scope, const Key& key, Entry& entry) {
  if (!entry.cached.has_value()) return;
  scope.memory.reserved -= entry.cached->bytes;
  scope.memory.cached -= entry.cached->bytes;
  uses_.erase(entry.cached->use);
  entry.cached.reset();
  for (auto& [slot, known] : entry.known) known.sent = 0;
  scope.actions.push_back(DropBlob{scope.job, NameOf(key)});
}

// Drops a kept blob that no holder announces and whose digest no receiver has. It may come from a
// lineage that has ended, so later requests must not get it.
void Blobs::DropUnneeded(const BlobScope& scope, const Key& key, Entry& entry) {
  if (!entry.cached.has_value()) return;
  const Holding& value = entry.cached->value;
  const bool needed =
      std::any_of(entry.holders.begin(), entry.holders.end(),
                  [&](const auto& holder) { return holder.second.second == value; }) ||
      std::any_of(entry.known.begin(), entry.known.end(),
                  [&](const auto& known) { return known.second.digest == value.digest; });
  if (!needed) Drop(scope, key, entry);
}

void Blobs::DropCached(const BlobScope& scope) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    Drop(scope, it->first, it->second);
    it = it->second.unused() ? Erase(scope, it) : std::next(it);
  }
}

}  // namespace basin::aggregator
