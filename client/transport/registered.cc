// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/registered.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::client {

absl::StatusOr<void*> Registered::Allocate(uint64_t bytes) {
  if (bytes == 0) return absl::InvalidArgumentError("0 bytes cannot be allocated. Pass a size.");
  absl::StatusOr<std::shared_ptr<Segment>> segment = Segment::Create(bytes);
  if (!segment.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes,
                     " bytes of memory that can be shared with an aggregator on this "
                     "machine are not available: ",
                     segment.status().message(),
                     ". Allocate less, raise the memory limit of the container, or use ordinary "
                     "memory."));
  }
  any_ = true;
  char* const begin = (*segment)->writable();
  MutexLock lock(mutex_);
  segments_.emplace(begin, *std::move(segment));
  return begin;
}

absl::Status Registered::Free(const void* memory) {
  std::shared_ptr<Segment> freed;  // Unmapped without the lock.
  MutexLock lock(mutex_);
  const auto found = segments_.find(static_cast<const char*>(memory));
  if (found == segments_.end()) {
    return absl::InvalidArgumentError(
        "This memory was not allocated by this worker, or was freed before. Free what "
        "basin_allocate has returned, once.");
  }
  freed = std::move(found->second);
  segments_.erase(found);
  return absl::OkStatus();
}

std::optional<ArenaPlace> Registered::Find(const void* data, uint64_t bytes,
                                           uint64_t alignment) const {
  const char* const begin = static_cast<const char*>(data);
  MutexLock lock(mutex_);
  const auto after = segments_.upper_bound(begin);
  if (after == segments_.begin()) return std::nullopt;
  const std::shared_ptr<Segment>& segment = std::prev(after)->second;
  const auto offset = static_cast<uint64_t>(begin - segment->data());
  if (!segment->Has({begin, bytes}) || offset % std::max<uint64_t>(1, alignment) != 0) {
    return std::nullopt;
  }
  return ArenaPlace{segment, offset};
}

}  // namespace basin::client
